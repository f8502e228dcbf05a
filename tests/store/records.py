"""Rows of the job table as they are stored, for tests that need many of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State


def record(queue: str, job_type: str, at: datetime, **fields: Any) -> JobRow:
    """A job of this type in this queue; available since ``at`` unless ``fields`` say otherwise."""
    values: dict[str, Any] = dict.fromkeys(JobRow._fields)
    values |= {
        "id": clock.new_id(),
        "state": State.AVAILABLE,
        "queue": queue,
        "type": job_type,
        "priority": 0,
        "attempt": 0,
        "max_attempts": 3,
        "lease_seq": 0,
        "created_at": at,
        "limits_from": at,
        "enqueued_at": at,
        "timeout_ms": 1000,
        "grace_period_ms": 0,
        "heartbeat_timeout_ms": 1000,
        "extended_ms": 0,
        "timeout_explicit": False,
        "heartbeat_explicit": False,
        "heartbeat_armed": False,
        "dead_letter": False,
        "retry": "{}",
        "args": "[]",
        "meta": "{}",
        "tags": "[]",
        "errors": "[]",
        "extra": "{}",
        "progress_message": "",
        "checkpoint_seq": 0,
    }
    return JobRow(**values | fields)
