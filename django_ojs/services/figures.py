"""What the roll-up has counted, for screens: series, sums, failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from django.db.models import Q, Sum
from django.db.models.functions import Coalesce

from django_ojs import clock, conf
from django_ojs.domain.tallies import Point, Tally, floor
from django_ojs.models import ChoreRun, FailureStat, MinuteStat
from django_ojs.services.rollup import ALL, LATE, MINUTE, NAME, OTHER

WINDOWS: tuple[timedelta, ...] = (
    timedelta(hours=1),
    timedelta(hours=3),
    timedelta(hours=24),
    timedelta(days=3),
    timedelta(days=7),
)


def reached(*, now: datetime | None = None, using: str | None = None) -> datetime:
    """The time up to which everything is counted."""
    using = using or conf.current().database
    now = now or clock.now(using)
    marks = ChoreRun.objects.using(using).filter(name=NAME).values_list("resumed_at", flat=True)
    return marks.first() or floor(now - LATE, MINUTE)


def series(
    since: datetime,
    step: timedelta,
    queue: str | None = None,
    *,
    until: datetime,
    using: str | None = None,
) -> list[Point]:
    """One point for each step up to ``until``, also where nothing happened; all queues without one.

    Minutes older than a day are hours, which count for the step that they begin in.
    """
    using = using or conf.current().database
    since = floor(since, step)
    steps = max(0, -(-(until - since) // step))
    points = [Point(at=since + number * step) for number in range(steps)]
    for row in _rows(since, queue, using):
        number = (row.at - since) // step
        if number < steps:
            points[number].add(row)
    return points


def summary(
    hours: float = 1, queue: str | None = None, *, until: datetime, using: str | None = None
) -> Tally:
    """Everything within the hours before ``until``."""
    whole = Tally()
    for row in _rows(until - timedelta(hours=hours), queue, using or conf.current().database):
        whole.add(row)
    return whole


def _rows(since: datetime, queue: str | None, using: str) -> Iterable[MinuteStat]:
    rows = MinuteStat.objects.using(using).filter(step__in=(60, 3600), at__gte=since)
    return rows.filter(queue=ALL if queue is None else queue).iterator()


@dataclass(frozen=True, slots=True)
class FailureRow:
    """How often jobs of a type failed with an error, within each window."""

    type: str
    error: str
    counts: Sequence[int]

    @property
    def is_rest(self) -> bool:
        """Whether this is what was too rare for a row of its own."""
        return self.type == OTHER


def failures(
    windows: Sequence[timedelta] = WINDOWS,
    *,
    by: int = 0,
    limit: int = 50,
    now: datetime | None = None,
    using: str | None = None,
) -> list[FailureRow]:
    """The most frequent failures of the window number ``by``; then of the longer ones."""
    using = using or conf.current().database
    now = now or clock.now(using)
    rows = FailureStat.objects.using(using).filter(step__in=(60, 3600), at__gte=now - max(windows))
    names = [f"n{number}" for number in range(len(windows))]
    sums = {
        name: Coalesce(Sum("count", filter=Q(at__gte=now - window)), 0)
        for name, window in zip(names, windows, strict=True)
    }
    order = chain([f"-{names[by]}"], (f"-{name}" for name in names), ["type", "error"])
    found = rows.values_list("type", "error").annotate(**sums).order_by(*dict.fromkeys(order))
    return [FailureRow(kind, error, list(map(int, counts))) for kind, error, *counts in found[:limit]]
