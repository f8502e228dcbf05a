"""The charts of the dashboard: what waited, what was done, how long it took, how busy workers were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.admin import axes
from django_ojs.admin.axes import AxisMark, ChartWindow, TimeAxis
from django_ojs.admin.charts import milliseconds, plain
from django_ojs.admin.plots import LAST, MOST, Chart, Series
from django_ojs.domain import histogram
from django_ojs.domain.histogram import SeriesPoint
from django_ojs.services import queue_samples
from django_ojs.services.queue_samples import MINUTE, Backlog, Sample

TOP_QUEUES = 8
"""The queues with an area of their own."""


class BacklogCharts:
    """The charts of samples. They end with this minute: samples are not as late as counts."""

    def __init__(
        self, window: ChartWindow, now: datetime, marks: Sequence[AxisMark], using: str
    ) -> None:
        self._window = window
        self._axis = window.axis(histogram.floor(now, MINUTE) + MINUTE, marks)
        self.samples = queue_samples.read(self._axis.begin, window.step, using=using)

    def backlog(self) -> SafeString:
        """What waited, by queue."""
        samples, steps = self.samples, range(len(self._axis))
        names = samples.largest(TOP_QUEUES)
        lines = [
            Series(name, [self._waiting(samples.queues[name].get(n), n) for n in steps], f"c{place}")
            for place, name in enumerate(names)
        ]
        rest: list[float | None] = []
        for place in steps:
            known = sum(line.values[place] or 0 for line in lines)
            whole = samples.whole.get(place)
            rest.append(None if whole is None else max(0, whole.waiting - known))
        if any(rest):
            lines.append(Series(_("other queues"), rest, "c8"))
        title = _("Jobs that waited, by queue")
        return Chart("backlog", title, self._said(), self._axis, lines, (LAST, MOST)).as_areas()

    def _waiting(self, row: Sample | None, place: int) -> float | None:
        if row is None:
            return 0 if place in self.samples.whole else None
        return row.waiting

    def _said(self) -> str:
        each = str(self._window.each)
        if self._window.step != MINUTE:
            each = _("the fullest moment %s") % each
        if any(row.capped for row in self.samples.whole.values()):
            each += " · " + _("at least: of all, %s were counted") % plain(queue_samples.COUNTED)
        return each

    def slots(self) -> SafeString:
        """How many slots there were, and how many jobs ran."""
        lines = (
            Series(_("slots"), self._of_all(lambda row: row.slots), "quiet", dashed=True),
            Series(_("running jobs"), self._of_all(lambda row: row.running), "run"),
        )
        title = _("How busy the workers were")
        return Chart("slots", title, self._said(), self._axis, lines, (LAST, MOST)).as_lines()

    def _of_all(self, value: Callable[[Sample], float]) -> list[float | None]:
        rows = self.samples.whole
        return [value(rows[n]) if n in rows else None for n in range(len(self._axis))]


def durations(axis: TimeAxis, points: Sequence[SeriesPoint]) -> SafeString:
    """How long completed jobs took."""
    return _percentiles(
        "durations", _("How long completed jobs took"), axis, [point.duration_ms for point in points]
    )


def waits(axis: TimeAxis, points: Sequence[SeriesPoint], samples: Backlog) -> SafeString:
    """How long jobs had waited when they started, and those have that still waited then."""
    pairs = []
    for place, point in enumerate(points):
        sample = samples.whole.get((axis.begin + place * axis.step - samples.begin) // samples.step)
        ages, oldest = ((), 0) if sample is None else (sample.ages, sample.oldest_ms)
        pairs.append(
            [histogram.wait_percentile(point.waits, ages, oldest, share) for share in (0.5, 0.95)]
        )
    title = _("How long jobs waited, those that still wait among them")
    return _percentiles("waits", title, axis, pairs)


def _percentiles(
    name: str, title: Any, axis: TimeAxis, pairs: Sequence[Sequence[float | None]]
) -> SafeString:
    lines = (
        Series(_("median"), [pair[0] for pair in pairs]),
        Series(_("95th percentile"), [pair[1] for pair in pairs], "warn"),
    )
    chart = Chart(name, title, "", axis, lines, (LAST, MOST), write=milliseconds, ticks=axes.spans)
    return chart.as_lines()
