"""How long a lease has been silent, not counting outages, in which no heartbeat could arrive.

A *span* is time in which the database answered no process. Spans are ordered and do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.states import State, Trigger
from django_ojs.domain.timeouts import after, lease_end, total_deadline


class Span(NamedTuple):
    """Time in which no heartbeat could be written."""

    start: datetime
    end: datetime


def unheard(spans: Sequence[Span], start: datetime, end: datetime) -> timedelta:
    """Return how much of the time from ``start`` to ``end`` the spans cover."""
    return sum(
        (max(timedelta(0), min(end, span.end) - max(start, span.start)) for span in spans),
        timedelta(0),
    )


def united(spans: Iterable[Span]) -> list[Span]:
    """Sort spans and merge those that overlap."""
    made: list[Span] = []
    for span in sorted(spans):
        if made and span.start <= made[-1].end:
            made[-1] = Span(made[-1].start, max(made[-1].end, span.end))
        else:
            made.append(span)
    return made


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return the time that both cover."""
    shared: list[Span] = []
    a = b = 0
    while a < len(one) and b < len(other):
        start, end = max(one[a].start, other[b].start), min(one[a].end, other[b].end)
        if start < end:
            shared.append(Span(start, end))
        if one[a].end == end:
            a += 1
        else:
            b += 1
    return united(shared)


class Hearing(NamedTuple):
    """Up to when silence is judged, and the outages before that.

    ``air`` is the time after an outage in which the execution deadlines of jobs that ran then do not
    fire.
    """

    until: datetime
    spans: Sequence[Span] = ()
    air: Span | None = None

    def uncounted(self, start: datetime, now: datetime) -> timedelta:
        """Return how much of the time from ``start`` to ``now`` does not count as silence."""
        after_it = max(timedelta(0), now - max(start, self.until))
        return unheard(self.spans, start, min(now, self.until)) + after_it


def began_at(job: JobRow) -> datetime:
    """Return when the running attempt began."""
    assert job.started_at is not None
    return job.started_at


def as_heard(
    job: JobRow,
    *,
    beat_at: datetime | None,
    visibility_ms: int | None,
    hearing: Hearing,
    now: datetime,
) -> JobRow:
    """Return the running job with its lease as if the time that does not count had not passed.

    ``beat_at`` is a beat that is not on its row, ``visibility_ms`` the visibility lease that the beat
    asked for (decision T10).
    """
    heard = job.heartbeat_at or began_at(job)
    deadline = job.deadline_at
    air = hearing.air
    if deadline is not None and air is not None and began_at(job) < air.start <= now:
        # The scan that found the outage has written this to the rows that were not locked.
        deadline = max(deadline, air.end)
        total = total_deadline(job)
        if total is not None:
            deadline = min(deadline, total)
    until = job.lease_expires_at if deadline is None else lease_end(job, deadline)
    if beat_at is not None and beat_at > heard:
        heard = beat_at
        visibility = job.visibility_timeout_ms or visibility_ms or job.lease_visibility_ms
        if visibility is not None:
            until = after(heard, visibility)
    uncounted = hearing.uncounted(heard, now)
    if until is not None:
        until += uncounted
        if deadline is not None:
            until = min(until, deadline)
    return job._replace(
        deadline_at=deadline,
        heartbeat_at=heard + uncounted,
        heartbeat_armed=job.heartbeat_armed or beat_at is not None,
        lease_expires_at=until,
    )


def clock_set(job: JobRow, step: timedelta) -> Transition:
    """Move the times of a running job after a step of the server's clock, so that all durations stay.

    The total timeout is a time of day and does not move.
    """
    assert job.started_at is not None and job.deadline_at is not None
    total = total_deadline(job)
    changes: dict[str, Any] = {"started_at": job.started_at + step}
    if job.deadline_at == total:
        # The execution deadline, which the total deadline hides, follows from the limits.
        limit = job.timeout_ms + job.grace_period_ms + job.extended_ms
        deadline = after(job.started_at + step, limit)
    else:
        deadline = job.deadline_at + step
    changes["deadline_at"] = deadline if total is None else min(deadline, total)
    for name in ("heartbeat_at", "lease_expires_at"):
        moment = getattr(job, name)
        if moment is not None:
            changes[name] = moment + step
    return Transition(Trigger.RECOVER, job, State.ACTIVE, changes)
