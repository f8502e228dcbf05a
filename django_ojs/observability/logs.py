"""Log records that say which job they were written in.

Imports no models, so that ``LOGGING`` may name it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django_ojs.handlers.execution import current

if TYPE_CHECKING:
    from django_ojs.handlers.context import JobContext

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "more_follow",
}  # fmt: skip
"""The attributes that every record has: the others come from ``extra``."""
_FIELDS = ("job_id", "job_type", "attempt", "trace_id")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def job_fields() -> dict[str, Any]:
    """``job_id``, ``job_type``, ``attempt`` and ``trace_id`` of the job that runs here; else nothing.

    The trace is that of the current span of OpenTelemetry; where there is none, the one that the job
    was enqueued in (``meta["traceparent"]``), or ``None``.
    """
    context = current()
    if context is None:
        return {}
    values = (context.id, context.type, context.attempt, _trace_id(context))
    return dict(zip(_FIELDS, values, strict=True))


def _trace_id(context: JobContext) -> str | None:
    # Not imported for its own sake: without it there is no span.
    traces = sys.modules.get("opentelemetry.trace")
    if traces is not None:
        span = traces.get_current_span().get_span_context()
        if span.is_valid:
            return f"{span.trace_id:032x}"
    parent = context.meta.get("traceparent")
    found = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    return found[1] if found else None


class JobContextFilter(logging.Filter):
    """Gives every record of a handler ``job_id``, ``job_type``, ``attempt`` and ``trace_id``.

    ``None`` outside of a job; what a record has already stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; no record is left out."""
        fields = job_fields()
        for name in _FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name))
        return True


class JSONFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the job that runs, what is in ``extra``,
    traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **job_fields(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if "traceback" in line:
            # The message has it too, below its first line.
            line["message"] = line["message"].partition("\n")[0]
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
