"""Call a handler, and turn what came out of it into something that can be stored."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from django_ojs.domain.errors import HandlerNotFound, InvalidRequest, OJSError, TooLarge
from django_ojs.domain.failures import Directive
from django_ojs.domain.jsonvalue import (
    MAX_BACKTRACE_BYTES,
    MAX_ERROR_MESSAGE_BYTES,
    sanitise_text,
)
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import DeadLetter, Discard, Fail, HandlerDecision, Retry, SoftStop
from django_ojs.handlers.registry import JobHandler
from django_ojs.worker import sessions
from django_ojs.worker.prefork.frames import Frame

Canceller = Callable[[Callable[[str], None] | None], None]
_DIRECTIVES: dict[type[HandlerDecision], Directive] = {
    Retry: Directive.RETRY,
    Discard: Directive.DISCARD,
    DeadLetter: Directive.DEAD_LETTER,
    Fail: Directive.FAIL,
}
_OWN_FRAMES = ("django_ojs/worker/",)


def invoke(
    handler: JobHandler[Any, Any],
    context: JobContext,
    args: Sequence[Any],
    set_canceller: Canceller,
) -> Any:
    """Run the handler; a coroutine in an event loop of its own."""
    values = (context, *args) if handler.wants_context else tuple(args)
    if not handler.is_async:
        return handler.function(*values)
    return asyncio.run(_run_coroutine(handler, values, context, set_canceller))


async def _run_coroutine(
    handler: JobHandler[Any, Any],
    values: tuple[Any, ...],
    context: JobContext,
    set_canceller: Canceller,
) -> Any:
    loop = asyncio.get_running_loop()
    task = loop.create_task(handler.function(*values))

    def cancel(reason: str) -> None:
        # From the wake-up signal's handler, in the loop's own thread: cancelled at the next turn of the
        # loop.
        def stop() -> None:
            sessions.close_connections()
            task.cancel(reason)

        loop.call_soon_threadsafe(stop)

    set_canceller(cancel)
    try:
        # The wakeup descriptor of asyncio lets a signal interrupt the loop's wait.
        return await task
    except asyncio.CancelledError:
        if context.cancel_reason is not None:
            raise SoftStop(context.cancel_reason) from None
        raise
    finally:
        set_canceller(None)


def failure_of(error: BaseException, stopped: str | None) -> Frame:
    """The failure to report for what a handler raised; never raises itself.

    ``stopped`` is the reason for which the handler was told to stop, if it was: then the failure is
    that reason, and what the handler decided (:class:`Retry` and the like) is what happens next.
    """
    try:
        return _failure_of(error, stopped)
    except BaseException:
        # It defends itself even against being looked at.
        kind = type(error)
        shown = f"<{kind.__name__} that cannot be shown>"
        if stopped is not None:
            return {"stopped": stopped, "message": shown}
        return {"type": _class_name(kind), "message": shown}


def _failure_of(error: BaseException, stopped: str | None) -> Frame:
    if stopped is not None:
        told: Frame = {"stopped": stopped, "message": _text(error), "backtrace": _backtrace(error)}
        return told | (_decided(error) if isinstance(error, HandlerDecision) else {})
    if isinstance(error, HandlerDecision):
        return _decision(error)
    kind, retryable = _type_name(error), True
    if isinstance(error, TooLarge) and error.field.startswith("result"):
        kind, retryable = "result_too_large", False
    elif isinstance(error, InvalidRequest) and error.field.startswith("result"):
        kind, retryable = "result_unserialisable", False
    elif isinstance(error, HandlerNotFound):
        kind = error.code
    return {
        "type": kind,
        "message": _text(error),
        "retryable": retryable,
        "details": {"error_class": type(error).__name__},
        "backtrace": [] if isinstance(error, OJSError) else _backtrace(error),
    }


def _decision(error: HandlerDecision) -> Frame:
    cause = error.__cause__
    named = error if cause is None else cause
    return {
        "type": _type_name(named),
        "message": _text(error) or _text(named),
        "details": {"error_class": type(named).__name__},
        "backtrace": [] if cause is None else _backtrace(cause),
        **_decided(error),
    }


def _decided(error: HandlerDecision) -> Frame:
    directive = next(d for kind, d in _DIRECTIVES.items() if isinstance(error, kind))
    after_ms = error.after_ms if isinstance(error, Retry) else None
    return {"directive": str(directive), "retry_after_ms": after_ms}


def _type_name(error: BaseException) -> str:
    own = getattr(error, "ojs_error_type", None)
    if isinstance(own, str) and own:
        return own
    return _class_name(type(error))


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    """The exception's message, whatever its ``__str__`` does."""
    try:
        return sanitise_text(str(error), MAX_ERROR_MESSAGE_BYTES)
    except BaseException:
        return f"<{type(error).__name__} that cannot be shown>"


def _backtrace(error: BaseException) -> list[str]:
    """Frames, outermost first, without locals and without the worker's own."""
    try:
        found = traceback.TracebackException.from_exception(error, limit=-100)
        lines = [line.rstrip("\n") for line in found.format()]
    except BaseException:
        return []
    kept: list[str] = []
    room = MAX_BACKTRACE_BYTES
    for line in reversed([line for line in lines if not any(own in line for own in _OWN_FRAMES)]):
        text = sanitise_text(line, 4096)
        room -= len(text.encode())
        if room < 0:
            break
        kept.append(text)
    return kept[::-1]
