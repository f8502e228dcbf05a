"""The JSON of jobs, workers, queues and events, with every field name that clients read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_ojs.domain.admission import VERBATIM
from django_ojs.domain.durations import format_instant, parse_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRecord
from django_ojs.domain.limits import NAMES as LIMITS
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import soft_deadline
from django_ojs.models import Event, Queue, Worker
from django_ojs.services.operate import Extension
from django_ojs.services.workers import STALE

JsonObject = dict[str, Any]

_NOT_ENQUEUED = (State.SCHEDULED, State.PENDING)
_NOT_MIRRORED = frozenset({"args", "result"})


def moment(value: datetime | None) -> str | None:
    """RFC 3339 in UTC with three digits."""
    return None if value is None else format_instant(value)


def job(record: JobRecord) -> JsonObject:
    """The job envelope (OJS core 5). A field without a value is left out."""
    extra = record.json("extra")
    verbatim = extra.pop(VERBATIM, {})
    state = State(record.state)
    shape: JsonObject = {
        **extra,
        "specversion": "1.0",
        "id": str(record.id),
        "type": record.type,
        "state": record.state,
        "queue": record.queue,
        # The arguments of internal jobs contain the signed order of a user.
        "args": [] if is_own(type=record.type) else record.json("args"),
        "meta": record.json("meta"),
        "priority": record.priority,
        "attempt": record.attempt,
        "max_attempts": record.max_attempts,
        "tags": record.json("tags"),
        "retry": record.json("retry"),
        "created_at": format_instant(record.created_at),
    }
    for name in LIMITS:
        ms = getattr(record, f"{name}_ms")
        if ms is not None:
            shape[name], shape[f"{name}_ms"] = _seconds(ms), ms
    for name, value in _moments(record, state, verbatim).items():
        if value is not None:
            shape[name] = value
    for name in ("worker_id", "retry_delay_ms", "progress"):
        value = getattr(record, name)
        if value is not None:
            shape[name] = value
    for name in ("result", "error", "progress_data"):
        if getattr(record, name) is not None:
            shape[name] = record.json(name)
    if record.progress_message:
        shape["progress_message"] = record.progress_message
    if errors := record.json("errors"):
        shape["errors"] = errors
    if record.checkpoint is not None:
        shape["last_checkpoint"] = record.json("checkpoint")
        shape["checkpoint"] = {"state": shape["last_checkpoint"], "sequence": record.checkpoint_seq}
    if state is State.DISCARDED:
        shape["dead_letter"] = record.dead_letter
        shape["total_attempts"] = record.attempt
    if record.limits_from != record.created_at:
        shape["re_enqueued_at"] = format_instant(record.limits_from)
    return shape


def _moments(record: JobRecord, state: State, verbatim: Mapping[str, str]) -> JsonObject:
    started = record.attempt > 0
    finished = moment(record.finished_at)
    waits = state is State.RETRYABLE
    return {
        "enqueued_at": None if state in _NOT_ENQUEUED else moment(record.enqueued_at),
        "scheduled_at": _as_written(
            None if started else record.scheduled_at, verbatim.get("scheduled_at"), started
        ),
        "expires_at": _as_written(record.expires_at, verbatim.get("expires_at"), False),
        "started_at": moment(record.started_at),
        # Only after an attempt: a job that expired before its start has no completion.
        "completed_at": finished
        if state is State.COMPLETED or (state is State.DISCARDED and started)
        else None,
        "cancelled_at": finished if state is State.CANCELLED else None,
        "discarded_at": finished if state is State.DISCARDED else None,
        "next_attempt_at": moment(record.scheduled_at) if waits else None,
        "next_retry_at": moment(record.scheduled_at) if waits else None,
    }


def _as_written(value: datetime | None, text: str | None, kept: bool) -> str | None:
    """The text that the client sent, while it equals the stored value (or ``kept``)."""
    if text is not None and (kept or value is not None):
        if kept:
            return text
        assert value is not None
        try:
            if parse_instant(text, "", value)[0] == value:
                return text
        except InvalidRequest:
            pass
    return moment(value)


def _seconds(ms: int) -> int:
    return -(-ms // 1000)


def wrapped(record: JobRecord, **more: Any) -> JsonObject:
    """``{"job": {...}}`` with the same fields beside it, but for the large ones."""
    shape = {**job(record), **more}
    mirror = {key: value for key, value in shape.items() if key not in _NOT_MIRRORED}
    return {"job": shape, **mirror}


def claimed(record: JobRecord) -> JsonObject:
    """A job as its worker receives it: with its lease, and without ``timeout``, which one SDK reads
    as milliseconds.
    """
    shape = job(record)
    del shape["timeout"]
    shape["lease"] = {
        "id": str(record.lease_id),
        "seq": record.lease_seq,
        "expires_at": moment(record.lease_expires_at),
        "deadline_at": moment(record.deadline_at),
        "soft_deadline_at": moment(soft_deadline(record)),
    }
    return shape


def extension(made: Extension) -> JsonObject:
    """The granted extension, and the resulting deadlines."""
    return {
        "extended_by_ms": made.extended_by_ms,
        "extended_ms": made.job.extended_ms,
        "soft_deadline_at": moment(made.soft_deadline_at),
        "deadline_at": moment(made.deadline_at),
    }


def acknowledged(record: JobRecord) -> JsonObject:
    """The answer to one report of many."""
    shape: JsonObject = {
        "acknowledged": True,
        "id": str(record.id),
        "job_id": str(record.id),
        "state": record.state,
        "attempt": record.attempt,
        "max_attempts": record.max_attempts,
    }
    if record.state == State.COMPLETED:
        shape["completed_at"] = moment(record.finished_at)
    return shape


def settled(record: JobRecord) -> JsonObject:
    """The answer to ACK and NACK."""
    shape: JsonObject = {**acknowledged(record), "job": job(record)}
    names = ["completed_at", "discarded_at"]
    if record.state == State.RETRYABLE:
        names = ["next_attempt_at", "next_retry_at", "retry_delay_ms"]
    shape.update({name: shape["job"][name] for name in names if name in shape["job"]})
    return shape


def progress(record: JobRecord, **more: Any) -> JsonObject:
    """The progress of a job."""
    fraction = record.progress
    return {
        "job_id": str(record.id),
        "state": record.state,
        "progress": fraction,
        "percentage": None if fraction is None else round(fraction * 100, 4),
        "message": record.progress_message or None,
        "data": record.json("progress_data"),
        **more,
    }


def checkpoint(record: JobRecord) -> JsonObject:
    """A saved checkpoint, flat and wrapped."""
    info = record.json("checkpoint_info") or {}
    shape = {
        "job_id": str(record.id),
        "state": record.json("checkpoint"),
        "sequence": record.checkpoint_seq,
        **{key: value for key, value in info.items() if value is not None},
    }
    return {**shape, "checkpoint": shape}


def event(row: Event) -> JsonObject:
    """The event envelope (OJS events 2), with the names of the SDKs beside it."""
    when = format_instant(row.created_at)
    subject = str(row.job_id) if row.job_id else row.data.get("worker_id") or row.queue
    return {
        "specversion": "1.0",
        "id": f"evt_{row.pk}",
        "type": row.kind,
        "event": row.kind,
        "source": "ojs://django-ojs",
        "time": when,
        "timestamp": when,
        "subject": subject,
        "data": row.data,
    }


def worker(row: Worker, now: datetime) -> JsonObject:
    """A worker as it is listed."""
    state = row.directive or row.phase
    status = "healthy"
    if row.phase == Worker.Phase.STOPPED or now - row.heartbeat_at > STALE:
        status = "stale"
    elif state != Worker.Phase.RUNNING:
        status = "degraded"
    return {
        "worker_id": row.name,
        "id": row.name,
        "client": row.principal or None,
        "state": state,
        "status": status,
        "directive": row.directive,
        "hostname": row.hostname,
        "pid": row.pid,
        "concurrency": row.concurrency,
        "active_jobs": row.running,
        "queues": row.queues,
        "labels": row.labels,
        "version": row.version,
        "started_at": format_instant(row.started_at),
        "last_heartbeat_at": format_instant(row.heartbeat_at),
    }


def queue(name: str, row: Queue | None, counts: Mapping[str, int]) -> JsonObject:
    """A queue and its jobs by state; ``row`` is ``None`` for a queue that does not exist yet."""
    paused = row is not None and row.paused
    shape: JsonObject = {
        "name": name,
        "status": "paused" if paused else "active",
        "state": "paused" if paused else "active",
        "paused": paused,
        **counts,
        "depth": sum(counts[state] for state in ("available", "scheduled", "retryable", "pending")),
        "counts": dict(counts),
        "created_at": None if row is None else format_instant(row.created_at),
    }
    if row is not None and row.paused_at is not None:
        shape["paused_at"] = format_instant(row.paused_at)
        shape["paused_by"] = row.paused_by
    return shape
