"""OJS lifecycle events: their kinds and their data fields (OJS events, OJS timeouts 11.1)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from django_ojs.domain.job import JobEvent, JobRecord


class Kind(StrEnum):
    """The kinds of events. Values are the OJS event types."""

    ENQUEUED = "job.enqueued"
    SCHEDULED = "job.scheduled"
    STARTED = "job.started"
    COMPLETED = "job.completed"
    HEARTBEAT = "job.heartbeat"
    PROGRESS = "job.progress"
    FAILED = "job.failed"
    RETRYING = "job.retrying"
    RELEASED = "job.released"
    DISCARDED = "job.discarded"
    CANCELLED = "job.cancelled"
    TIMEOUT = "job.timeout"
    STALLED = "job.stalled"
    TTL_EXPIRED = "job.ttl_expired"
    EXPIRED = "job.expired"
    TOTAL_TIMEOUT = "job.total_timeout"
    RETRIED = "job.retried"
    RESCHEDULED = "job.rescheduled"
    EDITED = "job.edited"
    TIMEOUT_EXTENDED = "job.timeout_extended"
    PURGED = "job.purged"
    DEAD_LETTER_ADDED = "dead_letter.added"
    DEAD_LETTER_RETRIED = "dead_letter.retried"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    WORKER_STARTED = "worker.started"
    WORKER_QUIET = "worker.quiet"
    WORKER_STOPPED = "worker.stopped"


ROUTINE: frozenset[str] = frozenset(
    {Kind.ENQUEUED, Kind.SCHEDULED, Kind.STARTED, Kind.COMPLETED}
    | {Kind.HEARTBEAT, Kind.PROGRESS, Kind.RELEASED}
)
"""Kinds of healthy work. All others, problems and operators' actions, are always stored."""


def job_event(kind: Kind, job: JobRecord, **data: Any) -> JobEvent:
    """An event about ``job``: the four fields that all job events share, and ``data``."""
    return JobEvent(kind, data, job)
