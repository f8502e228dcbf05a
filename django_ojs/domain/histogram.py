"""Figures of what happened: counters, histograms of durations and their percentiles."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Protocol

BUCKETS: tuple[int, ...] = (
    *(1, 3, 5, 10, 25, 30, 50, 100, 250, 300, 500),
    *(1_000, 2_000, 2_500, 5_000, 10_000, 30_000, 60_000),
    *(120_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000),
)
"""Upper bounds in milliseconds; a histogram has one more place, for what took longer."""

COUNTS = ("completed", "failed", "discarded", "timed_out")


class Counted(Protocol):
    """What has the counts and histograms of a :class:`Counters`."""

    @property
    def completed(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def discarded(self) -> int: ...
    @property
    def timed_out(self) -> int: ...
    @property
    def durations(self) -> Sequence[int]: ...
    @property
    def waits(self) -> Sequence[int]: ...


def empty() -> list[int]:
    """A histogram of nothing."""
    return [0] * (len(BUCKETS) + 1)


def added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Both histograms together; one may be empty, or of another version."""
    if len(one) == len(other):
        return list(map(operator.add, one, other))
    return [mine + theirs for mine, theirs in zip_longest(one, other, fillvalue=0)]


def place(ms: float) -> int:
    """The bucket of a duration."""
    return bisect_left(BUCKETS, ms)


@dataclass(slots=True)
class Counters:
    """What happened somewhere in some time."""

    completed: int = 0
    failed: int = 0
    discarded: int = 0
    timed_out: int = 0
    durations: list[int] = field(default_factory=empty)
    waits: list[int] = field(default_factory=empty)

    def add(self, other: Counted) -> None:
        """Count the other one too."""
        self.completed += other.completed
        self.failed += other.failed
        self.discarded += other.discarded
        self.timed_out += other.timed_out
        self.durations = added(self.durations, other.durations)
        self.waits = added(self.waits, other.waits)

    @property
    def events(self) -> int:
        """The number of counted durations."""
        return self.completed + self.failed + self.discarded + self.timed_out

    @property
    def duration_ms(self) -> tuple[float | None, float | None]:
        """The median and the 95th percentile of what the completed jobs took."""
        return percentile(self.durations, 0.5), percentile(self.durations, 0.95)

    @property
    def wait_ms(self) -> tuple[float | None, float | None]:
        """The median and the 95th percentile of how long they had waited."""
        return percentile(self.waits, 0.5), percentile(self.waits, 0.95)


@dataclass(slots=True)
class SeriesPoint(Counters):
    """What happened from ``at`` on, for one step of a series."""

    at: datetime = field(kw_only=True)


class Dated(Counted, Protocol):
    """What was counted from a time on."""

    @property
    def at(self) -> datetime: ...


def series(
    rows: Iterable[Dated], since: datetime, step: timedelta, *, until: datetime
) -> list[SeriesPoint]:
    """One point for each step up to ``until``, also where nothing happened.

    An hour counts for the step that it begins in.
    """
    since = floor(since, step)
    steps = max(0, -(-(until - since) // step))
    points = [SeriesPoint(at=since + number * step) for number in range(steps)]
    for row in rows:
        number = (row.at - since) // step
        if 0 <= number < steps:
            points[number].add(row)
    return points


def total(rows: Iterable[Dated], since: datetime, until: datetime | None = None) -> Counters:
    """Everything from a time on, until another if one is given."""
    whole = Counters()
    for row in rows:
        if row.at >= since and (until is None or row.at < until):
            whole.add(row)
    return whole


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The milliseconds below which ``share`` of the jobs are, between the bounds of a bucket.

    Buckets grow by a factor, and so does the guess inside one. ``None`` without jobs; beyond the last
    bound it is that bound.
    """
    wanted = sum(histogram) * share
    below = 0
    for place, count in enumerate(histogram[: len(BUCKETS)]):
        if count and below + count >= wanted:
            part = (wanted - below) / count
            low, high = (BUCKETS[place - 1] if place else 0), BUCKETS[place]
            return float(low * (high / low) ** part if low else high * part)
        below += count
    return float(BUCKETS[-1]) if sum(histogram) else None


def wait_percentile(
    started: Sequence[int], waiting: Sequence[int], oldest_ms: float, share: float
) -> float | None:
    """The same of the waits of jobs that ``started`` and of those ``waiting``, of which the oldest has
    waited for ``oldest_ms``: never more than that, unless one that started had waited longer.
    """
    found = percentile(added(started, waiting), share)
    if found is None or any(started[place(oldest_ms) :]) or not any(waiting):
        return found
    return min(found, oldest_ms)


def floor(moment: datetime, step: timedelta) -> datetime:
    """The start of the step that a time is in, counted from 1970."""
    since = datetime(1970, 1, 1, tzinfo=UTC)
    return since + (moment.astimezone(UTC) - since) // step * step
