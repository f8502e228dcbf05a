"""How long a lease has been silent: only time in which its holder could have been heard counts.

A *span* is time in which nobody saw the database answer. Spans are in order and do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_ojs.domain.job import JobRecord
from django_ojs.domain.timeouts import after


class Span(NamedTuple):
    """Time in which nobody could be heard."""

    start: datetime
    end: datetime


def unheard(spans: Sequence[Span], start: datetime, end: datetime) -> timedelta:
    """How much of the time from ``start`` to ``end`` the spans cover."""
    return sum(
        (max(timedelta(0), min(end, span.end) - max(start, span.start)) for span in spans),
        timedelta(0),
    )


def united(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans in order that do not overlap."""
    made: list[Span] = []
    for span in sorted(spans):
        if made and span.start <= made[-1].end:
            made[-1] = Span(made[-1].start, max(made[-1].end, span.end))
        else:
            made.append(span)
    return made


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The time that both cover."""
    shared = [
        Span(max(a.start, b.start), min(a.end, b.end))
        for a in one
        for b in other
        if a.start < b.end and b.start < a.end
    ]
    return united(shared)


def as_heard(
    job: JobRecord,
    *,
    beat_at: datetime | None,
    visibility_ms: int | None,
    spans: Sequence[Span],
    now: datetime,
) -> JobRecord:
    """The running job as its silence is to be judged: its lease as if the time that does not count
    had not passed.

    ``beat_at`` is a beat that is not on its row, ``visibility_ms`` the visibility lease that it asked
    for (decision T10).
    """
    heard = job.heartbeat_at or job.started_at
    assert heard is not None
    until = job.lease_expires_at
    if beat_at is not None and beat_at > heard:
        heard = beat_at
        visibility = job.visibility_timeout_ms or visibility_ms or job.lease_visibility_ms
        if visibility is not None:
            until = after(heard, visibility)
    uncounted = unheard(spans, heard, now)
    if until is not None:
        until += uncounted
        if job.deadline_at is not None:
            until = min(until, job.deadline_at)
    return job._replace(
        heartbeat_at=heard + uncounted,
        heartbeat_armed=job.heartbeat_armed or beat_at is not None,
        lease_expires_at=until,
    )
