"""The JSON of jobs, workers, queues and events, with every field name that clients read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from django_ojs.domain.admission import VERBATIM
from django_ojs.domain.durations import format_instant, format_iso, parse_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.limits import NAMES as LIMITS
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import soft_deadline
from django_ojs.models import Event, Queue, Worker
from django_ojs.services.operate import Extension
from django_ojs.services.rate_limits.policies import own
from django_ojs.services.rate_limits.read import RateLimitState
from django_ojs.services.workers import STALE
from django_ojs.services.workflows.results import ParentResults

JsonObject = dict[str, Any]

_NOT_ENQUEUED = (State.SCHEDULED, State.PENDING)
_NOT_MIRRORED = frozenset({"args", "result"})


def moment(value: datetime | None) -> str | None:
    """RFC 3339 in UTC with three digits."""
    return None if value is None else format_instant(value)


def job(record: JobRow) -> JsonObject:
    """The job envelope (OJS core 5). A field without a value is left out."""
    extra = record.json("extra")
    verbatim = extra.pop(VERBATIM, {})
    state = record.state
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
    if record.unique_key is not None and "unique" in shape:
        shape["unique"] = _unique(shape["unique"])
    if record.workflow_id is not None:
        shape["workflow_id"] = str(record.workflow_id)
        shape.setdefault("workflow_step_id", f"step-{record.workflow_step}")
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
    if state == State.DISCARDED:
        shape["dead_letter"] = record.dead_letter
        shape["total_attempts"] = record.attempt
    if record.limits_from != record.created_at:
        shape["re_enqueued_at"] = format_instant(record.limits_from)
    return shape


def _unique(policy: JsonObject) -> JsonObject:
    """The policy with ``keys`` and ``key``, of which some clients read the one, some the other."""
    key = policy.get("key")
    keys = policy.get("keys") or (list(key) if isinstance(key, list) else None)
    if keys is None:
        return policy
    return {**policy, "keys": keys, "key": policy.get("key") or keys}


def _moments(record: JobRow, state: str, verbatim: Mapping[str, str]) -> JsonObject:
    started = record.attempt > 0
    finished = moment(record.finished_at)
    waits = state == State.RETRYABLE
    return {
        "enqueued_at": moment(record.enqueued_at) if _was_available(record) else None,
        "scheduled_at": verbatim.get("scheduled_at")
        if started
        else _as_written(record.scheduled_at, verbatim.get("scheduled_at")),
        "expires_at": _as_written(record.expires_at, verbatim.get("expires_at")),
        "started_at": moment(record.started_at),
        # Only after an attempt: a job that expired before its start has no completion.
        "completed_at": finished
        if state == State.COMPLETED or (state == State.DISCARDED and started)
        else None,
        "cancelled_at": finished if state == State.CANCELLED else None,
        "discarded_at": finished if state == State.DISCARDED else None,
        "next_attempt_at": moment(record.scheduled_at) if waits else None,
        "next_retry_at": moment(record.scheduled_at) if waits else None,
    }


def _was_available(record: JobRow) -> bool:
    """Whether a job has ever been available: one that ended while pending or scheduled was not."""
    if record.state in _NOT_ENQUEUED or record.enqueued_at is None:
        return False
    start = record.scheduled_at
    return record.attempt > 0 or start is None or start <= record.enqueued_at


def _as_written(value: datetime | None, text: str | None) -> str | None:
    """The text that the client sent, while it equals the stored value."""
    if text is not None and value is not None:
        with suppress(InvalidRequest):
            if parse_instant(text, "", value)[0] == value:
                return text
    return moment(value)


def _seconds(ms: int) -> int:
    return -(-ms // 1000)


def wrapped(record: JobRow, **more: Any) -> JsonObject:
    """``{"job": {...}}`` with the same fields beside it, but for the large ones."""
    shape = {**job(record), **more}
    mirror = {key: value for key, value in shape.items() if key not in _NOT_MIRRORED}
    return {"job": shape, **mirror}


def given(parents: ParentResults | None) -> JsonObject:
    """What a job of a workflow gets from those before it."""
    if parents is None:
        return {}
    truncated = {"parent_results_truncated": True} if parents.truncated else {}
    return {"parent_results": parents.values, **truncated}


def claimed(record: JobRow) -> JsonObject:
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


def acknowledged(record: JobRow) -> JsonObject:
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


def settled(record: JobRow) -> JsonObject:
    """The answer to ACK and NACK."""
    shape: JsonObject = {**acknowledged(record), "job": job(record)}
    names = ["completed_at", "discarded_at"]
    if record.state == State.RETRYABLE:
        names = ["next_attempt_at", "next_retry_at", "retry_delay_ms"]
    shape.update({name: shape["job"][name] for name in names if name in shape["job"]})
    return shape


def progress(record: JobRow, **more: Any) -> JsonObject:
    """What the attempt has reported; the data of an earlier one is only in the job."""
    fraction = record.progress
    return {
        "job_id": str(record.id),
        "state": record.state,
        "progress": fraction,
        "percentage": None if fraction is None else round(fraction * 100, 4),
        "message": record.progress_message or None,
        "data": None if fraction is None else record.json("progress_data"),
        **more,
    }


def checkpoint(record: JobRow) -> JsonObject:
    """A saved checkpoint, flat and wrapped."""
    info = record.json("checkpoint_info") or {}
    shape = {
        "job_id": str(record.id),
        "state": record.json("checkpoint"),
        "sequence": record.checkpoint_seq,
        **{key: value for key, value in info.items() if value is not None},
    }
    return {**shape, "checkpoint": shape}


def event(row: Event, trace_id: str | None = None) -> JsonObject:
    """The event envelope (OJS events 2), with the names of the SDKs beside it. ``trace_id`` is that of
    its job (OJS events 8.3).
    """
    when = format_instant(row.created_at)
    data = row.data
    subject = str(row.job_id) if row.job_id else data.get("workflow_id") or data.get("worker_id")
    if row.kind.startswith("cron."):
        subject = data.get("cron_name")
    return {
        "specversion": "1.0",
        "id": f"evt_{row.pk}",
        "type": row.kind,
        "event": row.kind,
        "source": "ojs://django-ojs",
        "time": when,
        "timestamp": when,
        "subject": subject or row.queue,
        "data": data if trace_id is None else {**data, "trace_id": trace_id},
    }


def worker(row: Worker, now: datetime) -> JsonObject:
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
        "labels": _labels(row.labels),
        "version": row.version,
        "started_at": format_instant(row.started_at),
        "last_heartbeat_at": format_instant(row.heartbeat_at),
    }


def _labels(stored: Mapping[str, Any]) -> Any:
    """Labels in the form in which the worker sent them: an array is stored in an object."""
    array = stored.get("labels")
    return array if len(stored) == 1 and isinstance(array, list) else stored


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


def rate_limit(state: RateLimitState) -> JsonObject:
    """A rate limit as it stands (OJS rate limiting 10.1)."""
    limits, row = state.limits, state.row
    shape: JsonObject = {"key": row.key}
    if limits.concurrency is not None:
        taken = state.admitted + state.running
        shape["concurrency"] = {
            "limit": limits.concurrency,
            "active": state.running,
            "admitted": state.admitted,
            "available": max(0, limits.concurrency - taken),
        }
    if limits.rate is not None:
        shape["rate"] = {
            "limit": limits.rate.limit,
            "period": format_iso(limits.rate.period_ms),
            "current_count": state.starts,
            "window_resets_at": moment(state.resets_at),
        }
    if limits.throttle is not None:
        shape["throttle"] = {
            "limit": limits.throttle.limit,
            "period": format_iso(limits.throttle.period_ms),
            "next_allowed_at": moment(state.next_start_at),
        }
    shape |= {
        "on_limit": limits.on_limit,
        "waiting_count": state.waiting,
        "next_opening_at": moment(state.opens_at) if state.waiting else None,
        "blocked_until": moment(row.blocked_until),
    }
    if state.overridden:
        shape["override"] = {**(row.override or {}), "expires_at": moment(row.override_until)}
    return shape


def rate_limit_headers(record: JobRow) -> dict[str, str]:
    """``X-RateLimit-Limit`` for a job with a rate limit: its rate, throttle or concurrency."""
    policy = own(record.extra, record.queue)
    if policy is None:
        return {}
    window = policy.rate or policy.throttle
    return {"X-RateLimit-Limit": str(policy.concurrency if window is None else window.limit)}
