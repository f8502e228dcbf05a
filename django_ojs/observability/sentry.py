"""Errors of jobs for Sentry: one event for each job that is discarded, and for each attempt that no
code has seen the end of.

An event is made where the outcome is written, from what is stored: it says what has become of the job,
and exists also where the process was killed, the host is gone, or a worker in another language ran it.
Needs the extra ``sentry``. Imports no models: settings name it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sentry_sdk
from sentry_sdk.integrations import Integration
from sentry_sdk.integrations.logging import ignore_logger

from django_ojs import hooks
from django_ojs.handlers import execution
from django_ojs.observability import sentry_check_ins as check_ins
from django_ojs.signals import EventRecord, job_cancelled, job_discarded, job_failed

if TYPE_CHECKING:
    from django_ojs.handlers.context import JobContext

NAME = "sentry"
"""What the middleware is called in the chain."""
_FLUSH_S = 1.5
_CRASH = "worker_crash"
_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)')
_TRACEBACK = "Traceback (most recent call last):"


class OJSIntegration(Integration):
    """``sentry_sdk.init(integrations=[OJSIntegration()])``, in the settings.

    With ``report_retries`` every attempt that fails is an event, not only those of which no code has
    seen the end (timeouts, stalls, crashes) and the last one. With ``send_arguments`` events have the
    arguments of the job. With ``check_ins`` each job of a schedule is a check-in of the monitor of that
    name, which Sentry makes.
    """

    identifier = "ojs"
    origin = "auto.queue.ojs"

    def __init__(
        self, *, report_retries: bool = False, send_arguments: bool = False, check_ins: bool = False
    ) -> None:
        self.report_retries = report_retries
        self.send_arguments = send_arguments
        self.check_ins = check_ins

    @staticmethod
    def setup_once() -> None:
        """Hook into jobs; called by ``sentry_sdk.init``, the first time."""
        # Its lines of level ERROR would be a second event for each job.
        ignore_logger("django_ojs.job")
        execution.chain.prepend(isolate, NAME)
        job_failed.connect(_failed, dispatch_uid=f"{__name__}.failed")
        job_discarded.connect(_discarded, dispatch_uid=f"{__name__}.discarded")
        job_cancelled.connect(_cancelled, dispatch_uid=f"{__name__}.cancelled")


def isolate(context: JobContext, next: execution.Next) -> Any:
    """Execution middleware: what the handler itself sends has the job as context, in its own scope."""
    integration = _integration()
    if integration is None:
        return next(context)
    with sentry_sdk.isolation_scope() as scope:
        scope.clear()
        scope.set_transaction_name(context.type, source="task")
        scope.set_tag("ojs.job_type", context.type)
        scope.set_tag("ojs.queue", context.queue)
        about = {
            "job_id": context.id,
            "job_type": context.type,
            "queue": context.queue,
            "attempt": context.attempt,
            "max_attempts": context.max_attempts,
        }
        if integration.send_arguments:
            about["args"] = context.args
            if context.kwargs:
                about["kwargs"] = context.kwargs
        scope.set_context("ojs", about)
        return check_ins.around(context, next) if integration.check_ins else next(context)


@hooks.before_exit
def flush() -> None:
    """Send what the client has queued, for 1.5 s at most."""
    if _integration() is not None:
        sentry_sdk.flush(timeout=_FLUSH_S)


def _integration() -> OJSIntegration | None:
    return sentry_sdk.get_client().get_integration(OJSIntegration)


def _failed(*, event: EventRecord, **_: object) -> None:
    """One attempt has failed; the last one is reported as the job is discarded."""
    integration, error = _integration(), event.data["error"]
    if integration is None or event.data["state"] == "discarded":
        return
    if integration.report_retries or _unseen(error):
        _capture(integration, event, error)


def _discarded(*, event: EventRecord, **_: object) -> None:
    """A job has been given up, unless a person has decided it, who needs no event."""
    integration, error = _integration(), event.data.get("last_error")
    if integration is None:
        return
    _end_check_in(integration, event)
    if error is not None:
        _capture(integration, event, error)


def _cancelled(*, event: EventRecord, **_: object) -> None:
    """A job was cancelled, which is no error."""
    integration = _integration()
    if integration is not None:
        _end_check_in(integration, event)


def _end_check_in(integration: OJSIntegration, event: EventRecord) -> None:
    if integration.check_ins:
        job_id = event.data["job_id"]
        check_ins.given_up(job_id, _stored_job(job_id).get("meta"))


def _unseen(error: Mapping[str, Any]) -> bool:
    """Whether the attempt was ended by a clock, or by the end of its process."""
    return "timeout_kind" in error or error["type"] == _CRASH


def _capture(integration: OJSIntegration, event: EventRecord, error: Mapping[str, Any]) -> None:
    data = event.data
    about = {
        name: data[name]
        for name in ("job_id", "job_type", "queue", "attempt", "state", "dead_letter")
        if name in data
    }
    stored, backtrace = _stored(data["job_id"], data["attempt"])
    about |= {name: value for name, value in stored.items() if name not in ("args", "meta")}
    if integration.send_arguments and "args" in stored:
        about["args"] = stored["args"]
    made: dict[str, Any] = {
        # The id of the event: however often it is sent, it is one.
        "event_id": event.id.hex,
        "timestamp": event.time,
        "level": "error",
        "transaction": data["job_type"],
        "transaction_info": {"source": "task"},
        "tags": {
            "ojs.job_type": data["job_type"],
            "ojs.queue": data["queue"],
            "ojs.error_code": error["code"],
        },
        "contexts": {"ojs": about, **_trace(stored.get("meta", {}))},
        "exception": {"values": [_exception(error, backtrace)]},
    }
    if _unseen(error):
        # A thousand timeouts of a type are one issue.
        kind = error.get("timeout_kind", error["type"])
        made["fingerprint"] = [OJSIntegration.identifier, data["job_type"], kind]
    with sentry_sdk.isolation_scope() as scope:
        # Of a web process that took the report: its request is that of the worker.
        scope.clear()
        sentry_sdk.capture_event(made)  # type: ignore[arg-type]


def _stored(job_id: str, attempt: int) -> tuple[dict[str, Any], list[str]]:
    """What the rows say: the job, if it is still there, and the traceback of the attempt."""
    from django_ojs.models import Attempt
    from django_ojs.services import databases

    using = databases.of_job(UUID(job_id))
    ended = Attempt.objects.using(using).filter(job_id=job_id, attempt=attempt)
    error = ended.order_by("-lease_seq").values_list("error", "worker_id").first()
    stored = _stored_job(job_id)
    if error is None:
        return stored, []
    stored["worker_id"] = error[1]
    return stored, (_value(error[0]) or {}).get("backtrace") or []


def _stored_job(job_id: str) -> dict[str, Any]:
    from django_ojs.models import Job
    from django_ojs.services import databases

    columns = ("max_attempts", "args", "meta")
    rows = Job.objects.using(databases.of_job(UUID(job_id))).filter(pk=job_id)
    return {name: _value(value) for name, value in (rows.values(*columns).first() or {}).items()}


def _value(stored: Any) -> Any:
    return json.loads(stored) if isinstance(stored, str) else stored


def _trace(meta: Any) -> dict[str, Any]:
    """The trace in which the job was enqueued, in the form of a context."""
    parent = str(meta.get("traceparent", "")) if isinstance(meta, Mapping) else ""
    found = re.fullmatch(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}", parent)
    return {} if found is None else {"trace": {"trace_id": found[1], "span_id": found[2]}}


def _exception(error: Mapping[str, Any], backtrace: Iterable[str]) -> dict[str, Any]:
    module, _, name = error["type"].rpartition(".")
    value: dict[str, Any] = {
        "type": name,
        "module": module or None,
        "value": error["message"],
        "mechanism": {"type": OJSIntegration.identifier, "handled": False},
    }
    if frames := frames_of(backtrace):
        value["stacktrace"] = {"frames": frames}
    return value


def frames_of(backtrace: Iterable[str]) -> list[dict[str, Any]]:
    """The frames of a Python traceback, outermost first; of a chain of exceptions, of the last one.

    Nothing for tracebacks of other languages.
    """
    frames: list[dict[str, Any]] = []
    for line in "\n".join(backtrace).splitlines():
        found = _FRAME.fullmatch(line)
        if found is not None:
            path, number, function = found.groups()
            frames.append(
                {"filename": path, "abs_path": path, "lineno": int(number), "function": function}
            )
        elif line == _TRACEBACK:
            frames = []
        elif frames and line.startswith("    ") and "context_line" not in frames[-1]:
            frames[-1]["context_line"] = line[4:]
    return frames
