"""A job with its attempts as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from django_ojs.domain.job import JobRow

_WIDTH = 11
_MOST = 300
"""The characters of a value; ``--format json`` has all of it."""
_TIMES = (
    ("created", "created_at"),
    ("due", "scheduled_at"),
    ("enqueued", "enqueued_at"),
    ("started", "started_at"),
    ("heard", "heartbeat_at"),
    ("deadline", "deadline_at"),
    ("expires", "expires_at"),
    ("finished", "finished_at"),
)
_LIMITS = (
    ("timeout", "timeout_ms"),
    ("grace", "grace_period_ms"),
    ("heartbeat", "heartbeat_timeout_ms"),
    ("total", "total_timeout_ms"),
    ("enqueue TTL", "enqueue_ttl_ms"),
    ("attempt TTL", "attempt_ttl_ms"),
)
_VALUES = ("args", "meta", "tags", "result", "checkpoint")


def lines_of(
    job: JobRow,
    attempts: Sequence[Mapping[str, Any]],
    equals: Sequence[str] = (),
    log: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """The job first, then what went wrong, then its ended attempts; times are local. ``equals`` are the
    ids of equal unique jobs, ``log`` is what the running attempt has logged.
    """
    yield f"{job.type} {job.id}"
    place = f"queue {job.queue}, priority {job.priority}"
    yield _line("state", f"{job.state}, attempt {job.attempt} of {job.max_attempts}, {place}")
    if job.worker_id:
        yield _line("worker", job.worker_id)
    if job.workflow_id:
        yield _line("workflow", f"{job.workflow_id}, step {job.workflow_step}")
    if job.unique_key:
        shared = f", also of {', '.join(equals)}" if equals else ""
        yield _line("unique", f"{job.unique_key}{shared}")
    for name, column in _TIMES:
        moment = getattr(job, column)
        if moment is not None:
            yield _line(name, _local(moment))
    limits = [(name, getattr(job, column)) for name, column in _LIMITS]
    yield _line("limits", ", ".join(f"{name} {span(ms)}" for name, ms in limits if ms is not None))
    if job.progress is not None:
        message = f" {job.progress_message}" if job.progress_message else ""
        yield _line("progress", f"{job.progress:.0%}{message}")
    for name in _VALUES:
        value = job.json(name)
        if value not in (None, [], {}):
            yield _line(name, _clipped(json.dumps(value, ensure_ascii=False)))
    error = job.json("error")
    if error:
        yield _line("error", _error(error))
        for frame in error.get("backtrace") or _last_backtrace(attempts):
            yield from (f"  {line}" for line in str(frame).rstrip().splitlines())
    for row in attempts:
        yield _attempt(row)
        yield from _log(row["log"])
    if log is not None:
        yield _line("log", f"attempt {job.attempt}, which runs")
        yield from _log(log)


def span(ms: int) -> str:
    """A duration as people say it: ``1.5 s``, ``30 min``, ``6 h``."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms / 1000:g} s"


def _line(name: str, text: str) -> str:
    return f"{name:{_WIDTH}} {text}"


def _local(moment: datetime) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def _clipped(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text)} characters)"


def _error(error: Mapping[str, Any]) -> str:
    return _clipped(f"{error.get('type')}: {error.get('message')}")


def _last_backtrace(attempts: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    found = [(row["error"] or {}).get("backtrace") or () for row in attempts]
    return found[-1] if found else ()


def _log(log: Mapping[str, Any] | None) -> Iterator[str]:
    if log is None:
        return
    if log["dropped"]:
        yield f"  ... {log['dropped']} earlier lines are not kept"
    yield from (f"  {line}" for line in log["lines"])


def _attempt(row: Mapping[str, Any]) -> str:
    by = f" on {row['worker_id']}" if row["worker_id"] else ""
    why = f": {_error(row['error'])}" if row["error"] else ""
    return _line(f"attempt {row['attempt']}", f"{row['outcome']} after {row['seconds']:g} s{by}{why}")
