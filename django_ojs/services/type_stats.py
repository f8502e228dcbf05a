"""What became of the attempts at jobs, by job type, in steps as long as each period needs.

Added to by the roll-up, in the transaction that moves its watermark: every minute counts once in each
of the steps that it is in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q

from django_ojs import conf
from django_ojs.domain import histogram
from django_ojs.domain.histogram import floor
from django_ojs.models import TypeStat
from django_ojs.services.totals import REST, Increments, Metric

MINUTE = timedelta(minutes=1)
STEPS: Mapping[timedelta, timedelta | None] = {
    MINUTE: timedelta(hours=2),
    timedelta(hours=1): timedelta(hours=26),
    timedelta(hours=6): timedelta(days=8),
    timedelta(days=1): None,
}
"""The lengths of the steps, and how long those of each are kept; ``None``: ``OJS["RETENTION"]``."""
MOST_TYPES = 50
"""The job types with rows of their own in a step, those that ran for longest; the others share one."""


@dataclass(slots=True)
class TypeFigures:
    """What became of the attempts at jobs of a type, or of several types together."""

    completed: int = 0
    failed: int = 0
    busy_ms: int = 0
    durations: list[int] = field(default_factory=histogram.empty)

    @property
    def attempts(self) -> int:
        return self.completed + self.failed

    def add(self, other: TypeFigures | TypeStat) -> None:
        """Count the other one too."""
        self.completed += other.completed
        self.failed += other.failed
        self.busy_ms += other.busy_ms
        self.durations = histogram.added(self.durations, other.durations)


Figures = Mapping[str, TypeFigures]


def of_minute(increments: Increments) -> Figures:
    """The figures of what a minute adds to the totals."""
    found: defaultdict[str, TypeFigures] = defaultdict(TypeFigures)
    for key, amount in increments.items():
        if key.metric is Metric.COMPLETED:
            found[key.type].completed += amount.count
        elif key.metric is Metric.EXPIRED:
            found[key.type].failed += amount.count
        elif key.metric is Metric.EXECUTION:
            figures = found[key.type]
            figures.busy_ms += amount.sum_ms
            if key.label == "completed":
                figures.durations = histogram.added(figures.durations, amount.buckets)
            else:
                figures.failed += amount.count
    return found


def store(minute: datetime, figures: Figures, *, using: str) -> None:
    """Add a minute; to be called by who alone may count it."""
    if not figures:
        return
    steps = {int(step.total_seconds()): floor(minute, step) for step in STEPS}
    rows = TypeStat.objects.using(using)
    within = Q(*(Q(step=step, at=at) for step, at in steps.items()), _connector=Q.OR)
    known = {(row.step, row.type): row for row in rows.filter(within)}
    new: dict[tuple[int, str], TypeStat] = {}
    changed: dict[tuple[int, str], TypeStat] = {}
    largest = sorted(figures, key=lambda name: (-figures[name].busy_ms, name))
    for step, at in steps.items():
        room = MOST_TYPES - sum(place == step for place, _type in known)
        for name in largest:
            key = (step, name)
            if key not in known and room <= 0:
                key = (step, REST)
            elif key not in known:
                room -= 1
            if key in known:
                _add(changed.setdefault(key, known[key]), figures[name])
            else:
                row = new.setdefault(key, TypeStat(step=step, at=at, type=key[1], durations=[]))
                _add(row, figures[name])
    rows.bulk_create(new.values())
    if changed:
        rows.bulk_update(changed.values(), ["completed", "failed", "busy_ms", "durations"])
    for length, keep in STEPS.items():
        if keep is not None:
            old = rows.filter(step=int(length.total_seconds()), at__lt=minute - keep)
            old._raw_delete(using)


def _add(row: TypeStat, figures: TypeFigures) -> None:
    whole = TypeFigures(row.completed, row.failed, row.busy_ms, list(row.durations))
    whole.add(figures)
    row.completed, row.failed, row.busy_ms = whole.completed, whole.failed, whole.busy_ms
    row.durations = whole.durations


def read(begin: datetime, step: timedelta, *, using: str | None = None) -> Figures:
    """The figures by type since a time, from the steps of one of the lengths, in one statement."""
    rows = TypeStat.objects.using(using or conf.current().database)
    rows = rows.filter(step=int(step.total_seconds()), at__gte=begin)
    found: defaultdict[str, TypeFigures] = defaultdict(TypeFigures)
    for name, *values in rows.values_list("type", "completed", "failed", "busy_ms", "durations"):
        found[name].add(TypeFigures(*values))
    return found


def forget(before: datetime, limit: int, dry_run: bool, using: str) -> int:
    """Delete up to ``limit`` rows from before a time, of the longest steps: the others go earlier."""
    rows = TypeStat.objects.using(using)
    longest = int(max(STEPS).total_seconds())
    old = list(rows.filter(step=longest, at__lt=before).values_list("pk", flat=True)[:limit])
    if old and not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)
