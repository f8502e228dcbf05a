"""OJS lifecycle events: their kinds and their data fields (OJS events, OJS timeouts 11.1)."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobEvent, JobRow
from django_ojs.domain.timeouts import elapsed


class Kind(StrEnum):
    """The kinds of events of the core. Values are the OJS event types."""

    __hash__ = str.__hash__

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
    DEDUPLICATED = "job.deduplicated"
    DEAD_LETTER_ADDED = "dead_letter.added"
    DEAD_LETTER_RETRIED = "dead_letter.retried"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    WORKER_STARTED = "worker.started"
    WORKER_QUIET = "worker.quiet"
    WORKER_STOPPED = "worker.stopped"
    WORKFLOW_STARTED = "workflow.started"
    WORKFLOW_STEP_COMPLETED = "workflow.step_completed"
    WORKFLOW_STEP_FAILED = "workflow.step_failed"
    WORKFLOW_COMPLETED = "workflow.completed"
    WORKFLOW_FAILED = "workflow.failed"
    WORKFLOW_CANCELLED = "workflow.cancelled"
    WORKFLOW_RESUMED = "workflow.resumed"
    RATE_LIMIT_EXCEEDED = "rate_limit.exceeded"
    RATE_LIMIT_RELEASED = "rate_limit.released"
    RATE_LIMIT_DROPPED = "rate_limit.dropped"
    RATE_LIMIT_DYNAMIC_ADJUSTED = "rate_limit.dynamic_adjusted"
    CRON_TRIGGERED = "cron.triggered"
    CRON_SKIPPED = "cron.skipped"
    CRON_MISSED = "cron.missed"


ROUTINE: frozenset[str] = frozenset(
    {Kind.ENQUEUED, Kind.SCHEDULED, Kind.STARTED, Kind.COMPLETED}
    | {Kind.HEARTBEAT, Kind.PROGRESS, Kind.RELEASED, Kind.DEDUPLICATED}
)
"""Kinds of healthy work. All others, problems and operators' actions, are always stored."""


NEVER_EMITTED: frozenset[str] = frozenset(
    f"{subject}.{verb}"
    for subject, verbs in {
        "backpressure": "cleared dropped rejected warning",
        "dead_letter": "deleted pruned replayed",
        "job": "attempt_completed attempt_failed attempt_started checkpoint_saved created"
        " state_changed",
        "queue": "config_updated created deleted full overflow",
        "result": "pruned rejected retrieved stored",
        "worker": "heartbeat",
        "workflow": "callback_fired created job_completed job_failed",
    }.items()
    for verb in verbs.split()
)
"""Kinds of the documents (OJS events 3, workflows, dead letter, queue configuration, results,
backpressure, execution history) that nothing here emits: whoever asks for them gets none.
"""


_registered: dict[str, bool] = {str(kind): kind in ROUTINE for kind in Kind}


def register_kind(name: str, *, routine: bool) -> None:
    """Add a kind of event. Raises ``ValueError`` for a name that is taken or malformed."""
    if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name) or len(name) > 64:
        raise ValueError(
            f"{name!r} is no kind of event: it must be like 'subject.verb', up to 64 letters"
        )
    if name in _registered:
        raise ValueError(f"the kind of event {name!r} is registered already")
    _registered[name] = routine


def kinds() -> frozenset[str]:
    """All kinds of events, those of other apps too."""
    return frozenset(_registered)


def problems() -> frozenset[str]:
    """The kinds that are always stored."""
    return frozenset(kind for kind, routine in _registered.items() if not routine)


def stored(item: object, where: str) -> frozenset[str]:
    """Read ``EVENTS``: the kinds that are stored. Raises :class:`InvalidRequest`."""
    every, always = kinds(), problems()
    if item in ("all", "problems"):
        return every if item == "all" else always
    found = item if isinstance(item, (list, tuple, set, frozenset)) else (None,)
    if all(isinstance(kind, str) and kind in every for kind in found):
        return always | frozenset(map(str, found))
    raise InvalidRequest(where, "must be 'all', 'problems' or a list of event kinds")


def job_event(kind: Kind, job: JobRow, **data: Any) -> JobEvent:
    """An event about ``job``: the four fields that all job events share, and ``data``."""
    return JobEvent(kind, data, job)


def attempt_facts(job: JobRow, outcome: str, now: datetime) -> dict[str, Any]:
    """Data about an attempt that ends ``now``: how, how long it ran, how long it had been available."""
    began = job.started_at or now
    waited_ms = elapsed(job.enqueued_at or began, began)
    return {"outcome": outcome, "duration_ms": elapsed(began, now), "waited_ms": waited_ms}
