"""Axes that fit what they show: they end just above the largest value, and have round ticks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.domain import histogram

_MOST_PARTS, _BEST_PARTS = 5, 4
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_SPANS = (
    *(factor * power for power in (1, 10, 100) for factor in (1, 2, 5)),
    *(factor * unit for unit in (_SECOND, _MINUTE) for factor in (1, 2, 5, 10, 15, 20, 30)),
    *(factor * _HOUR for factor in (1, 2, 3, 4, 6, 12)),
    *(factor * power * _DAY for power in (1, 10, 100) for factor in (1, 2, 5)),
)
"""Milliseconds between two ticks that are round for those who read times."""


def counts(most: float) -> list[float]:
    """The ticks of an axis of whole numbers up to ``most``: from 0 to a round end."""
    steps, power = [1.0, 2.0, 5.0], 10.0
    while power < most:
        steps += [power, 2 * power, 2.5 * power, 5 * power]
        power *= 10
    return _ticks(most, [*steps, power])


def spans(most: float) -> list[float]:
    """The ticks of an axis of milliseconds up to ``most``."""
    return _ticks(most, _SPANS)


def _ticks(most: float, steps: Iterable[float]) -> list[float]:
    """Of the round ends the smallest that is not below ``most``, in about four parts."""
    found = []
    for step in steps:
        parts = int(max(1, -(-most // step)))
        if parts <= _MOST_PARTS:
            found.append((parts * step, abs(parts - _BEST_PARTS), step))
    top, _off, step = min(found, default=(most, 0, most))
    return [step * number for number in range(round(top / step) + 1)]


class AxisMark(NamedTuple):
    """A moment that is marked on an axis of time, such as a deployment."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Steps of time, the last of which may not be over."""

    begin: datetime
    step: timedelta
    labels: Sequence[str]
    """When each step begins."""
    ticks: Sequence[tuple[int, str]] = ()
    """Places at which a round time begins, and what it is called."""
    partial: bool = False
    """Whether the last step is not over, or not counted to its end."""
    marks: Sequence[AxisMark] = field(default=())

    def __len__(self) -> int:
        return len(self.labels)

    def x(self, place: float) -> str:
        """A place between 0 and the number of steps, as a share of the width."""
        return f"{100 * place / max(1, len(self)):.5g}%"

    def marked(self) -> Iterable[tuple[str, AxisMark]]:
        """The marks within the axis, and where they are."""
        for mark in self.marks:
            place = (mark.at - self.begin) / self.step
            if 0 <= place <= len(self):
                yield self.x(place), mark


@dataclass(frozen=True, slots=True)
class ChartWindow:
    """A choice of the period that charts cover, and its steps."""

    name: str
    label: Any
    span: timedelta
    step: timedelta
    each: Any
    """The length of a step, in words."""
    grid: timedelta
    """The time from tick to tick, in the reader's time zone."""
    tick: str
    """The format of the ticks."""
    time: str
    """The format of the times in tables."""
    ago: timedelta
    """How long before is the period that this one is compared with."""
    before: Any
    """That period, in words."""
    by_type: timedelta
    """The length of the steps from which figures by job type are summed up."""

    def begin(self, until: datetime) -> datetime:
        """When the first step begins."""
        return histogram.floor(until - self.span, self.step)

    def axis(self, until: datetime, marks: Sequence[AxisMark] = ()) -> TimeAxis:
        """The steps up to a time."""
        begin = self.begin(until)
        steps = -(-(until - begin) // self.step)
        moments = [timezone.localtime(begin + self.step * number) for number in range(steps)]
        labels = [date_format(moment, self.time) for moment in moments]
        partial = begin + self.step * steps > until
        if partial:
            labels[-1] = _("%s (not over yet)") % labels[-1]
        return TimeAxis(begin, self.step, labels, list(self._ticks(moments)), partial, marks)

    def _ticks(self, moments: Sequence[datetime]) -> Iterable[tuple[int, str]]:
        """Where a new part of the grid begins, by the reader's clock on the wall."""
        walls = [moment.replace(tzinfo=UTC) for moment in moments]
        parts = [histogram.floor(wall, self.grid) for wall in walls]
        for place, part in enumerate(parts):
            if part == walls[place] if place == 0 else part != parts[place - 1]:
                yield place, date_format(part, self.tick)


_DAYS = timedelta(days=1)
_HOURS = timedelta(hours=1)
_MINUTES = timedelta(minutes=1)
HOUR = ChartWindow(
    "1h",
    gettext_lazy("1 hour"),
    _HOURS,
    _MINUTES,
    gettext_lazy("per minute"),
    10 * _MINUTES,
    "H:i",
    "H:i",
    _DAYS,
    gettext_lazy("yesterday"),
    _MINUTES,
)
WINDOWS = (
    HOUR,
    ChartWindow(
        "24h",
        gettext_lazy("24 hours"),
        _DAYS,
        15 * _MINUTES,
        gettext_lazy("per 15 minutes"),
        4 * _HOURS,
        "H:i",
        "D H:i",
        _DAYS,
        gettext_lazy("the day before"),
        _HOURS,
    ),
    ChartWindow(
        "7d",
        gettext_lazy("7 days"),
        7 * _DAYS,
        2 * _HOURS,
        gettext_lazy("per 2 hours"),
        _DAYS,
        "D j",
        "D j. H:i",
        7 * _DAYS,
        gettext_lazy("the week before"),
        6 * _HOURS,
    ),
    ChartWindow(
        "30d",
        gettext_lazy("30 days"),
        30 * _DAYS,
        6 * _HOURS,
        gettext_lazy("per 6 hours"),
        5 * _DAYS,
        "j M",
        "j M H:i",
        30 * _DAYS,
        gettext_lazy("the 30 days before"),
        _DAYS,
    ),
)
