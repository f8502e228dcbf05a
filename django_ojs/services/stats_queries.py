"""What the roll-up has counted, for screens: minutes, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from django.db.models import Q, Sum
from django.db.models.functions import Coalesce

from django_ojs import clock, conf
from django_ojs.domain.histogram import floor
from django_ojs.models import FailureStat, MaintenanceRun, MinuteStat
from django_ojs.services import incidents
from django_ojs.services.rollup import ALL, HOUR, LATE, MINUTE, NAME

WINDOWS: tuple[timedelta, ...] = (
    timedelta(hours=1),
    timedelta(hours=3),
    timedelta(hours=24),
    timedelta(days=3),
    timedelta(days=7),
)


def watermark(*, now: datetime | None = None, using: str | None = None) -> datetime:
    """The time up to which everything is counted."""
    using = using or conf.current().database
    now = now or clock.now(using)
    marks = MaintenanceRun.objects.using(using).filter(name=NAME).values_list("watermark_at", flat=True)
    return marks.first() or floor(now - LATE, MINUTE)


class StatRow(NamedTuple):
    """What happened in a minute or an hour."""

    at: datetime
    completed: int
    failed: int
    discarded: int
    timed_out: int
    durations: list[int]
    waits: list[int]


def minute_stats(
    since: datetime,
    queue: str | None = None,
    *,
    also: tuple[datetime, datetime] | None = None,
    using: str | None = None,
) -> list[StatRow]:
    """The counts since a time, and ``also`` those of an earlier period, of all queues or of one: per
    minute, per hour for older days.
    """
    rows = MinuteStat.objects.using(using or conf.current().database)
    wanted = Q(at__gte=since)
    if also is not None:
        wanted |= Q(at__gte=also[0], at__lt=also[1])
    whose = ALL if queue is None else queue
    found = rows.filter(wanted, step__in=(60, 3600), queue=whose)
    return [StatRow._make(row) for row in found.values_list(*StatRow._fields)]


@dataclass(frozen=True, slots=True)
class FailureRow:
    """How often jobs of a type failed with an error, within each window."""

    type: str
    error: str
    counts: Sequence[int]

    @property
    def is_rest(self) -> bool:
        """Whether this is what was too rare for a row of its own."""
        return self.type == incidents.OTHER


def failures(
    windows: Sequence[timedelta] = WINDOWS,
    *,
    by: int = 0,
    limit: int = 50,
    now: datetime | None = None,
    using: str | None = None,
) -> list[FailureRow]:
    """The most frequent failures of the window number ``by``; then of the longer ones.

    A window that is longer than minutes are kept begins at a whole hour.
    """
    using = using or conf.current().database
    now = now or clock.now(using)
    begins = [
        now - window if window <= incidents.KEPT else floor(now - window, HOUR) for window in windows
    ]
    rows = FailureStat.objects.using(using).filter(step__in=(60, 3600), at__gte=min(begins))
    names = [f"n{number}" for number in range(len(windows))]
    sums = {
        name: Coalesce(Sum("count", filter=Q(at__gte=begin)), 0)
        for name, begin in zip(names, begins, strict=True)
    }
    order = chain([f"-{names[by]}"], (f"-{name}" for name in names), ["type", "error"])
    found = rows.values_list("type", "error").annotate(**sums).order_by(*dict.fromkeys(order))
    return [FailureRow(kind, error, list(map(int, counts))) for kind, error, *counts in found[:limit]]
