"""The timeouts: when each falls due, and which one has fired (OJS timeouts 5 to 8).

Two deadlines are stored as absolute times. ``deadline_at`` holds what heartbeats do not move: the
execution deadline (``started_at + timeout + grace_period``, plus extensions) and the total deadline
of an active job; the total deadline, ``enqueue_ttl``, ``attempt_ttl`` and ``expires_at`` of one that
waits.
``heartbeat_at`` and ``lease_expires_at`` move with every beat.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State

OUTAGE_GRACE = timedelta(seconds=15)
"""What an outage adds to execution deadlines, so that buffered reports land first."""


class TimeoutKind(StrEnum):
    """Which clock ran out; the values are the OJS ``timeout_kind`` but for ``visibility``."""

    EXECUTION = "execution"
    TOTAL = "total"
    ENQUEUE_TTL = "enqueue_ttl"
    STALLED = "stalled"
    VISIBILITY = "visibility"


class Fired(NamedTuple):
    """A timeout that is due: which, its limit, and how long its clock had run."""

    clock: TimeoutKind
    limit_ms: int
    elapsed_ms: int


_MILLISECOND = timedelta(milliseconds=1)


def after(start: datetime, ms: int) -> datetime:
    """``start`` plus ``ms``, at the end of time rather than an overflow."""
    try:
        return start + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=start.tzinfo)


def elapsed(start: datetime, now: datetime) -> int:
    """Whole milliseconds from ``start`` to ``now``, never negative."""
    return max(0, (now - start) // _MILLISECOND)


def total_deadline(job: JobRow) -> datetime | None:
    """When all attempts together must be over (OJS timeouts 5.2)."""
    return None if job.total_timeout_ms is None else after(job.limits_from, job.total_timeout_ms)


def start_deadline(job: JobRow) -> datetime | None:
    """Until when a waiting job must start: the first time (OJS timeouts 5.3, ``expires_at``), and each
    time once it is available (``attempt_ttl``).
    """
    return _earlier(_first_start(job), _attempt_start(job))


def _first_start(job: JobRow) -> datetime | None:
    if job.attempt:
        return None
    ttl = None if job.enqueue_ttl_ms is None else after(job.limits_from, job.enqueue_ttl_ms)
    return _earlier(ttl, job.expires_at)


def _attempt_start(job: JobRow) -> datetime | None:
    if job.attempt_ttl_ms is None or job.state != State.AVAILABLE or job.enqueued_at is None:
        return None
    return after(job.enqueued_at, job.attempt_ttl_ms)


def waiting_deadline(job: JobRow) -> datetime | None:
    """``deadline_at`` of a waiting job, ``None`` if it may wait without limit."""
    return _earlier(total_deadline(job), start_deadline(job))


def available_from(job: JobRow, now: datetime) -> dict[str, datetime | None]:
    """The changes with which ``job`` waits for a worker from ``now`` on."""
    available = job._replace(state=State.AVAILABLE, enqueued_at=now)
    return {"enqueued_at": now, "deadline_at": waiting_deadline(available)}


def soft_deadline(job: JobRow) -> datetime | None:
    """When the handler is asked to stop: at its execution timeout, or at the total deadline before.

    ``None`` for a job that has not started.
    """
    if job.started_at is None:
        return None
    soft = after(job.started_at, job.timeout_ms + job.extended_ms)
    return _earlier(soft, total_deadline(job))


def active_deadline(job: JobRow) -> datetime:
    """``deadline_at`` of a job that runs (OJS timeouts 7.1): beats never move it."""
    assert job.started_at is not None
    return _bounded(job, job.started_at, job.extended_ms)


def starting_deadline(job: JobRow, now: datetime) -> datetime:
    """``deadline_at`` of a job whose next attempt starts ``now``."""
    return _bounded(job, now, 0)


def _bounded(job: JobRow, start: datetime, extended_ms: int) -> datetime:
    execution = after(start, job.timeout_ms + job.grace_period_ms + extended_ms)
    return _earlier(execution, total_deadline(job)) or execution


def lease_end(job: JobRow, deadline: datetime) -> datetime | None:
    """When the visibility lease runs out once the execution deadline has moved to ``deadline``.

    A lease that the deadline cut short gets of its own length what the new one leaves it.
    """
    until = job.lease_expires_at
    if until is None or until != job.deadline_at:
        return until
    if job.heartbeat_at is None or job.lease_visibility_ms is None:
        return until
    return min(after(job.heartbeat_at, job.lease_visibility_ms), deadline)


def heartbeat_deadline(job: JobRow) -> datetime | None:
    """When a running job counts as stalled (OJS timeouts 5.5), ``None`` without heartbeats."""
    if job.heartbeat_at is None or not job.heartbeat_armed:
        return None
    if job.lease_expires_at is not None and not job.heartbeat_explicit:
        return None
    return after(job.heartbeat_at, job.heartbeat_timeout_ms)


def fired(job: JobRow, now: datetime) -> Fired | None:
    """The timeout of ``job`` that is due at ``now``; the first match of decision T8 wins.

    Running: total, execution, visibility, heartbeat. Waiting: total, then what it had to start by.
    """
    total = total_deadline(job)
    if job.state in _LIVE and total is not None and total <= now:
        assert job.total_timeout_ms is not None
        return Fired(TimeoutKind.TOTAL, job.total_timeout_ms, elapsed(job.limits_from, now))
    if job.state == State.ACTIVE:
        return _fired_running(job, now)
    return _fired_waiting(job, now) if job.state in _WAITING_TO_START else None


class Stop(NamedTuple):
    """The soft signal of an attempt: why it is given, when, and until when the handler may clean up."""

    reason: str
    at: datetime
    until: datetime


def stop_of(job: JobRow, *, started_at: datetime, total_at: datetime | None) -> Stop:
    """The first signal of an attempt, which is its only one (OJS timeouts 5.4).

    The grace period counts from it, also from the total deadline: at that moment the outcome is
    settled, but the handler may still save where a manual retry is to resume.
    """
    soft = after(started_at, job.timeout_ms + job.extended_ms)
    at, reason = soft, "timeout"
    if total_at is not None and total_at <= soft:
        at, reason = total_at, "total_timeout"
    return Stop(reason, at, after(at, job.grace_period_ms))


def out_of_time(job: JobRow, at: datetime) -> TimeoutKind | None:
    """The timeout that ends the running attempt at ``at`` regardless of its worker's reports: the total
    timeout or the execution deadline. ``None`` while neither has run out.
    """
    if job.state != State.ACTIVE:
        return None
    total = total_deadline(job)
    if total is not None and total <= at:
        return TimeoutKind.TOTAL
    return TimeoutKind.EXECUTION if job.deadline_at is not None and job.deadline_at <= at else None


def _fired_running(job: JobRow, now: datetime) -> Fired | None:
    assert job.started_at is not None
    if job.deadline_at is not None and job.deadline_at <= now:
        return Fired(
            TimeoutKind.EXECUTION, job.timeout_ms + job.extended_ms, elapsed(job.started_at, now)
        )
    beat = job.heartbeat_at or job.started_at
    if job.lease_expires_at is not None and job.lease_expires_at <= now:
        limit = job.lease_visibility_ms or job.visibility_timeout_ms or 0
        return Fired(TimeoutKind.VISIBILITY, limit, elapsed(beat, now))
    stalled = heartbeat_deadline(job)
    if stalled is not None and stalled <= now:
        return Fired(TimeoutKind.STALLED, job.heartbeat_timeout_ms, elapsed(beat, now))
    return None


def _fired_waiting(job: JobRow, now: datetime) -> Fired | None:
    ends = ((job.limits_from, _first_start(job)), (job.enqueued_at, _attempt_start(job)))
    due = [(end, since) for since, end in ends if since is not None and end is not None and end <= now]
    if not due:
        return None
    end, since = min(due)
    return Fired(TimeoutKind.ENQUEUE_TTL, elapsed(since, end), elapsed(since, now))


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return min(one, other)


_WAITING_TO_START = (State.AVAILABLE, State.SCHEDULED, State.PENDING)
_LIVE = (*_WAITING_TO_START, State.RETRYABLE, State.ACTIVE)
