"""What becomes of a job that finds no place under a rate limit and is not to wait for one (OJS rate
limiting 6.2, ``on_limit``).
"""

from __future__ import annotations

import json
from datetime import datetime

from django_ojs.domain.durations import format_instant
from django_ojs.domain.events import Kind, job_event
from django_ojs.domain.failures import Failure, error_object
from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.states import State, Trigger
from django_ojs.domain.timeouts import waiting_deadline

ERROR_TYPE = "rate_limited"


def drop(job: JobRow, *, key: str, now: datetime) -> Transition:
    """``on_limit: drop``: discard an available job; it does not enter the dead letter."""
    failure = Failure(ERROR_TYPE, f"the rate limit {key} had no place", retryable=False)
    error = error_object(failure, attempt=job.attempt, now=now)
    changes = {
        "error": json.dumps(error),
        "errors": json.dumps([*json.loads(job.errors), error]),
        "deadline_at": None,
        "finished_at": now,
    }
    job_events = (
        job_event(Kind.RATE_LIMIT_DROPPED, job, key=key),
        job_event(Kind.DISCARDED, job, total_attempts=job.attempt, last_error=error),
    )
    return Transition(Trigger.RATE_LIMIT, job, State.DISCARDED, changes, None, job_events)


def put_off(job: JobRow, *, key: str, until: datetime) -> Transition:
    """``on_limit: reschedule``: an available job is scheduled for when there may be a place."""
    moved = job_event(Kind.RESCHEDULED, job, scheduled_at=format_instant(until), rate_limit=key)
    changes = {
        "scheduled_at": until,
        # What it has to start by once it is available counts from then on.
        "deadline_at": waiting_deadline(job._replace(state=State.SCHEDULED)),
    }
    return Transition(Trigger.RATE_LIMIT, job, State.SCHEDULED, changes, None, (moved,))
