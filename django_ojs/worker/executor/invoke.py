"""Call a handler, and describe what it raised in a form that can be stored."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from django_ojs.domain.errors import HandlerNotFound, InvalidRequest, OJSError, TooLarge
from django_ojs.domain.failures import Directive, last_frames
from django_ojs.domain.jsonvalue import MAX_ERROR_MESSAGE_BYTES, sanitise_text
from django_ojs.domain.retry import class_name
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import DeadLetter, Discard, Fail, HandlerDecision, Retry, SoftStop
from django_ojs.handlers.registry import JobHandler
from django_ojs.worker import sessions
from django_ojs.worker.executor.event_loop import CoroutineRunner
from django_ojs.worker.prefork.frames import Frame

Canceller = Callable[[Callable[[str], object] | None], None]
_DIRECTIVES: dict[type[HandlerDecision], Directive] = {
    Retry: Directive.RETRY,
    Discard: Directive.DISCARD,
    DeadLetter: Directive.DEAD_LETTER,
    Fail: Directive.FAIL,
}
_MOST_BASES = 20
_OWN_FRAMES = (
    "django_ojs/worker/",
    "django_ojs/handlers/execution.py",
    "django_ojs/handlers/registry.py",
    "django_ojs/observability/",
    "django_ojs/testing/",
)


def invoke(
    handler: JobHandler[Any, Any],
    context: JobContext,
    loop: CoroutineRunner,
    set_canceller: Canceller,
) -> Any:
    """Run the handler; a coroutine runs in ``loop``.

    It is asked to stop by the canceller that is set, which is ``None`` once it has ended: what the
    wake-up signal's handler raised would leave the loop in the middle.
    """
    if not handler.is_async:
        return handler.call(context)
    early: list[str] = []
    exited: list[BaseException] = []
    set_canceller(early.append)
    try:
        call = _guarded(handler.call(context), exited)
        result = loop.run(_run_coroutine(call, context, early, set_canceller))
    finally:
        set_canceller(None)
    if exited:
        raise exited[0]
    return result


async def _guarded(call: Awaitable[Any], exited: list[BaseException]) -> Any:
    """Await the handler; what asks the process to exit would leave the loop with all its tasks."""
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as error:
        exited.append(error)


async def _run_coroutine(
    call: Coroutine[Any, Any, Any], context: JobContext, early: list[str], set_canceller: Canceller
) -> Any:
    loop = asyncio.get_running_loop()
    task = loop.create_task(call)

    def stop(reason: str) -> None:
        if not task.done():
            sessions.close_connections()
            task.cancel(reason)

    # Called by the wake-up signal's handler, in the loop's own thread.
    set_canceller(lambda reason: loop.call_soon_threadsafe(stop, reason))
    for reason in early:
        stop(reason)
    try:
        # A signal interrupts the wait of the loop through asyncio's wake-up descriptor.
        return await task
    except asyncio.CancelledError:
        if context.cancel_reason is not None:
            raise SoftStop(context.cancel_reason) from None
        raise
    finally:
        set_canceller(None)


def failure_of(error: BaseException, stopped: str | None) -> Frame:
    """Describe what a handler raised, as a failure to report. Never raises.

    ``stopped`` is the reason if the handler was asked to stop: the failure then has that reason, and a
    decision of the handler (:class:`Retry` and the like) is carried out.
    """
    try:
        return _failure_of(error, stopped)
    except BaseException:
        # Even inspecting the exception raised.
        kind = type(error)
        shown = f"<unprintable {kind.__name__}>"
        if stopped is not None:
            return {"stopped": stopped, "message": shown}
        return {"type": class_name(kind), "message": shown}


def _failure_of(error: BaseException, stopped: str | None) -> Frame:
    if stopped is not None:
        failure: Frame = {"stopped": stopped, "message": _text(error), "backtrace": _backtrace(error)}
        return failure | (_decided(error) if isinstance(error, HandlerDecision) else {})
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
        "details": _classes(type(error)),
        "backtrace": [] if isinstance(error, OJSError) else _backtrace(error),
    }


def _decision(error: HandlerDecision) -> Frame:
    cause = error.__cause__
    named = error if cause is None else cause
    return {
        "type": _type_name(named),
        "message": _text(error) or _text(named),
        "details": _classes(type(named)),
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
        return sanitise_text(own, 255)
    return class_name(type(error))


def _classes(kind: type) -> Frame:
    """What ``non_retryable_errors`` may list besides the type: the class, and those above it."""
    above = [one for one in kind.__mro__ if issubclass(one, Exception)][:_MOST_BASES]
    return {"error_class": kind.__name__, "error_bases": [class_name(one) for one in above]}


def _text(error: BaseException) -> str:
    """Return the exception's message, even if its ``__str__`` raises."""
    try:
        return sanitise_text(str(error), MAX_ERROR_MESSAGE_BYTES)
    except BaseException:
        return f"<unprintable {type(error).__name__}>"


def _backtrace(error: BaseException) -> list[str]:
    """Format the frames, outermost first, without locals and without the worker's own frames."""
    try:
        found = traceback.TracebackException.from_exception(error, limit=-100)
        lines = [line.rstrip("\n") for line in found.format()]
    except BaseException:
        return []
    return last_frames([line for line in lines if not any(own in line for own in _OWN_FRAMES)])
