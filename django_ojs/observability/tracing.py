"""Traces of jobs by OpenTelemetry: a span where jobs are enqueued, and one for each attempt.

The W3C context travels in the job's ``meta``. An attempt begins a trace of its own, with a *link* to
the span that enqueued the job: a job that runs tomorrow must not stretch today's trace (OJS
observability, OpenTelemetry's conventions for messaging). The span of an attempt whose process is
killed is recorded by the worker. Needs the extra ``otel``.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode, Tracer, TracerProvider

from django_ojs import __version__, hooks
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.jsonvalue import MAX_BACKTRACE_BYTES, MAX_ERROR_MESSAGE_BYTES, sanitise_text
from django_ojs.handlers import execution
from django_ojs.handlers.exceptions import SoftStop
from django_ojs.services import middleware
from django_ojs.services.job_defaults import resolve_defaults
from django_ojs.signals import EventRecord, executor_died

if TYPE_CHECKING:
    from django_ojs.handlers.context import JobContext

NAME = "tracing"
"""What the middleware is called in both chains."""
_MAX_BAGGAGE = 8192
_FLUSH_MS = 1500
_TIMEOUT_KINDS = {"timeout": "execution", "total_timeout": "total", "stalled": "stalled"}
_CANCELLED = "cancelled"


class Conventions:
    """How spans are called: as they always were, or by the stable conventions for messaging.

    These are chosen by ``OTEL_SEMCONV_STABILITY_OPT_IN`` with ``messaging`` or ``messaging/dup``.
    """

    def __init__(self) -> None:
        words = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
        self._stable = not {"messaging", "messaging/dup"}.isdisjoint(word.strip() for word in words)
        self._publish = "send" if self._stable else "publish"

    def name(self, operation: str, queue: str) -> str:
        """The name of a span."""
        return f"{operation} {queue}" if self._stable else f"{queue} {operation}"

    def attributes(self, operation: str, queue: str, job_type: str) -> dict[str, Any]:
        """What both kinds of spans have; ``operation`` is ``enqueue`` or ``process``."""
        return {
            "messaging.system": "ojs",
            "messaging.destination.name": queue,
            "messaging.operation.type": self._publish if operation == "enqueue" else operation,
            "messaging.operation.name": operation,
            "ojs.job.type": job_type,
        }


class EnqueueTracing:
    """Enqueue middleware: one PRODUCER span for each call, whose context all of its jobs carry.

    A job that comes with a context keeps it: its client has traced it.
    """

    shared = True

    def __init__(self, tracer: Tracer, conventions: Conventions) -> None:
        self._tracer = tracer
        self._conventions = conventions

    def __call__(self, request: EnqueueRequest, next: middleware.Next) -> EnqueueRequest | None:
        """Put the context of the current span into ``meta``, if there is room."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if len(carrier.get("baggage", "")) > _MAX_BAGGAGE:
            del carrier["baggage"]
        meta = request.meta
        if carrier and meta.keys().isdisjoint(carrier):
            try:
                request = request.replace(meta={**meta, **carrier})
            except InvalidRequest:
                # With it ``meta`` is too large: the job matters more than its trace.
                pass
        return next(request)

    def around(
        self, request: EnqueueRequest, count: int, store: Callable[[], list[JobRow]]
    ) -> list[JobRow]:
        """Store the jobs within the span."""
        queue = resolve_defaults(request.envelope).queue
        attributes = self._conventions.attributes("enqueue", queue, request.type)
        if count > 1:
            attributes["messaging.batch.message_count"] = count
        else:
            attributes["ojs.job.id"] = attributes["messaging.message.id"] = str(request.id)
        name = self._conventions.name("enqueue", queue)
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes):
            return store()


class ExecutionTracing:
    """Execution middleware: the CONSUMER span of an attempt; and the end of one that was killed."""

    def __init__(self, tracer: Tracer, conventions: Conventions) -> None:
        self._tracer = tracer
        self._conventions = conventions

    def __call__(self, context: JobContext, next: execution.Next) -> Any:
        """Run the handler within the span."""
        sender, links = _sender(context.meta)
        attributes = self._attributes(context.id, context.type, context.queue, context.attempt)
        span = self._tracer.start_span(
            self._conventions.name("process", context.queue),
            context=sender,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=attributes,
        )
        token = contexts.attach(trace.set_span_in_context(span, sender))
        try:
            return next(context)
        except BaseException as error:
            reason = context.cancel_reason
            if reason is not None:
                span.set_attributes(_of_stop(reason))
            if isinstance(error, SoftStop):
                span.set_status(*_status(reason or error.reason))
            else:
                described = _described(error)
                span.set_attribute("error.type", described["exception.type"])
                span.add_event("exception", described)
                message = described["exception.message"]
                span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {message}")
            raise
        finally:
            contexts.detach(token)
            span.end()

    def record_death(self, *, event: EventRecord, **_: object) -> None:
        """Record the span that a process could not end: a receiver of ``executor_died``."""
        data = event.data
        sender, links = _sender(data["meta"])
        ended = round(event.time.timestamp() * 1e9)
        reason = data["reason"]
        span = self._tracer.start_span(
            self._conventions.name("process", data["queue"]),
            context=sender,
            kind=SpanKind.CONSUMER,
            links=links,
            start_time=ended - round(data["seconds"] * 1e9),
            attributes={
                **self._attributes(data["job_id"], data["job_type"], data["queue"], data["attempt"]),
                **_of_stop(reason),
                "ojs.killed": True,
                "ojs.worker.id": data["worker_id"] or "",
            },
        )
        code, text = _status(reason)
        span.set_status(code, data["message"] or text)
        span.end(ended)

    def _attributes(self, job_id: str, job_type: str, queue: str, attempt: int) -> dict[str, Any]:
        attributes = self._conventions.attributes("process", queue, job_type)
        attributes["ojs.job.id"] = attributes["messaging.message.id"] = job_id
        attributes["ojs.job.attempt"] = attempt
        return attributes


def _sender(meta: Mapping[str, Any]) -> tuple[Context, list[Link]]:
    """The context that a job carries, without its span, and a link to that span."""
    carried = {key: value for key, value in meta.items() if isinstance(value, str)}
    found = propagate.extract(carried, context=Context()) if carried else Context()
    sender = trace.get_current_span(found).get_span_context()
    if not sender.is_valid:
        return found, []
    # Baggage stays; the span would be the parent.
    return trace.set_span_in_context(trace.INVALID_SPAN, found), [Link(sender)]


def _of_stop(reason: str) -> dict[str, Any]:
    attributes = {"ojs.stop_reason": reason}
    if reason != _CANCELLED:
        attributes["error.type"] = reason
    if reason in _TIMEOUT_KINDS:
        attributes["ojs.timeout_kind"] = _TIMEOUT_KINDS[reason]
    return attributes


def _status(reason: str) -> tuple[StatusCode, str | None]:
    return (StatusCode.OK, None) if reason == _CANCELLED else (StatusCode.ERROR, reason)


def _described(error: BaseException) -> dict[str, str]:
    """The attributes of the event ``exception``, in text that can be sent: because of one character
    that cannot, exporters drop the whole batch.
    """
    kind = type(error)
    name = kind.__qualname__
    try:
        message, lines = str(error), "".join(traceback.format_exception(error))
    except Exception:
        message = lines = f"<unprintable {name}>"
    return {
        "exception.type": name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}",
        "exception.message": sanitise_text(message, MAX_ERROR_MESSAGE_BYTES),
        "exception.stacktrace": sanitise_text(lines, MAX_BACKTRACE_BYTES),
    }


_active: ExecutionTracing | None = None
_provider: TracerProvider | None = None


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Trace every job that this process enqueues or runs, from now on; a second call does nothing.

    Call it where the tracer provider is set up, in the settings or in ``AppConfig.ready``, so that web
    processes and workers do the same. Without a provider the global one is used.
    """
    global _active, _provider
    if _active is not None:
        return
    _provider = tracer_provider
    tracer = trace.get_tracer("django_ojs", __version__, tracer_provider)
    conventions = Conventions()
    middleware.chain.prepend(EnqueueTracing(tracer, conventions), NAME)
    _active = ExecutionTracing(tracer, conventions)
    execution.chain.prepend(_active, NAME)
    executor_died.connect(_active.record_death, dispatch_uid=f"{__name__}.{NAME}")


def uninstrument() -> None:
    """Trace no more."""
    global _active
    if _active is not None:
        middleware.chain.remove(NAME)
        execution.chain.remove(NAME)
        executor_died.disconnect(dispatch_uid=f"{__name__}.{NAME}")
        _active = None


@hooks.before_exit
def flush() -> None:
    """Export what a batching processor has kept, for 1.5 s at most."""
    if _active is not None:
        provider: Any = _provider or trace.get_tracer_provider()
        if hasattr(provider, "force_flush"):
            provider.force_flush(_FLUSH_MS)
