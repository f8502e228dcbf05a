"""Records of jobs for the tests of the rules: every column with a default that is legal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django_ojs.domain.job import LARGE, JobEvent, JobRow, Transition
from django_ojs.domain.retry import parse_policy

NOW = datetime(2026, 2, 12, 10, 30, tzinfo=UTC)
ID = UUID("019539a4-b68c-7def-8000-1a2b3c4d5e6f")
LEASE = UUID("019539a4-b68c-7def-8000-00000000aaaa")

_DEFAULTS: dict[str, Any] = {
    "id": ID,
    "state": "available",
    "queue": "media",
    "type": "video.transcode",
    "priority": 0,
    "attempt": 0,
    "max_attempts": 3,
    "lease_seq": 0,
    "lease_id": None,
    "worker_id": None,
    "lease_principal": None,
    "created_at": NOW,
    "limits_from": NOW,
    "enqueued_at": NOW,
    "scheduled_at": None,
    "expires_at": None,
    "started_at": None,
    "heartbeat_at": None,
    "lease_expires_at": None,
    "deadline_at": None,
    "finished_at": None,
    "timeout_ms": 1_800_000,
    "grace_period_ms": 30_000,
    "heartbeat_timeout_ms": 60_000,
    "total_timeout_ms": None,
    "enqueue_ttl_ms": None,
    "attempt_ttl_ms": None,
    "visibility_timeout_ms": None,
    "lease_visibility_ms": None,
    "extended_ms": 0,
    "timeout_explicit": False,
    "heartbeat_explicit": False,
    "heartbeat_armed": False,
    "dead_letter": False,
    "retry_delay_ms": None,
    **LARGE,
    "retry": json.dumps({"jitter": False}),
    "progress": None,
    "progress_message": "",
    "checkpoint_seq": 0,
    "digest": None,
    "hooks": 0,
    "workflow_id": None,
    "workflow_step": None,
}


def record(**changes: Any) -> JobRow:
    """A job that waits in a queue, but for ``changes``."""
    return JobRow(**{**_DEFAULTS, **changes})


def running(**changes: Any) -> JobRow:
    """A job in its first attempt, started at ``NOW`` under ``LEASE``, with a beating worker."""
    started: dict[str, Any] = {
        "state": "active",
        "attempt": 1,
        "lease_seq": 1,
        "lease_id": LEASE,
        "worker_id": "w1",
        "started_at": NOW,
        "heartbeat_at": NOW,
        "heartbeat_armed": True,
    }
    job = record(**{**started, **changes})
    if "deadline_at" in changes:
        return job
    ends = [job.timeout_ms + job.grace_period_ms + job.extended_ms]
    if job.total_timeout_ms is not None:
        ends.append(job.total_timeout_ms)
    return job._replace(deadline_at=NOW + timedelta(milliseconds=min(ends)))


def in_state(state: str, **changes: Any) -> JobRow:
    """A job in ``state`` with what is always set there."""
    if state == "active":
        return running(**changes)
    started: dict[str, Any] = {}
    if state in ("retryable", "completed", "discarded"):
        started = {"attempt": 1, "lease_seq": 1, "started_at": NOW}
    if state in ("scheduled", "retryable"):
        started["scheduled_at"] = NOW + timedelta(hours=1)
    if state in ("completed", "cancelled", "discarded"):
        started["finished_at"] = NOW
    return record(**{"state": state, **started, **changes})


def policy(**fields: Any) -> str:
    """The stored text of a retry policy without jitter."""
    return json.dumps(parse_policy({"jitter": False, **fields}).to_wire())


def at(seconds: float) -> datetime:
    """``NOW`` and so many seconds."""
    return NOW + timedelta(seconds=seconds)


def kinds(move: Transition) -> list[str]:
    """The kinds of the events of a transition, in order."""
    return [str(job_event.kind) for job_event in move.job_events]


def fact_of(move: Transition, kind: str) -> JobEvent:
    """The only event of that kind."""
    (found,) = [job_event for job_event in move.job_events if job_event.kind == kind]
    return found


def each(names: str, *values: object) -> list[tuple[str, Any]]:
    """Every one of the blank-separated names with every value: rows of a table of bad input."""
    return [(name, value) for name in names.split() for value in values]
