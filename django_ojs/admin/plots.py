"""Charts over time as SVG from the server, without scripts or inline styles, each beside its table.

They are as wide as there is room: places across are shares of the width, and only lines are stretched,
so that letters and strokes keep their size. Colours are classes of ``figures.css``, for light and dark.
All text goes through ``format_html``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin import axes
from django_ojs.admin.axes import ChartWindow, TimeAxis
from django_ojs.admin.charts import plain
from django_ojs.domain.histogram import Counters, SeriesPoint

_TOP, _PLOT, _BOTTOM = 16, 160, 20
_HEIGHT = _TOP + _PLOT + _BOTTOM


@dataclass(frozen=True, slots=True)
class Series:
    """Values under one name, one for each step of the axis; ``None`` is a gap."""

    name: Any
    values: Sequence[float | None]
    tone: str = ""
    """``good``, ``warn``, ``bad``, ``quiet`` or ``c0`` to ``c8``: a class of the style sheet."""
    dashed: bool = False
    before: float | None = None
    """The sum of the values of the period that this one is compared with."""

    @property
    def known(self) -> list[float]:
        """The values without the gaps."""
        return [value for value in self.values if value is not None]


class LegendColumn(NamedTuple):
    """A column of the table beside a chart."""

    label: Any
    value: Callable[[Series], float | None]


TOTAL = LegendColumn(gettext_lazy("total"), lambda line: sum(line.known))
MOST = LegendColumn(gettext_lazy("most"), lambda line: max(line.known, default=None))
LAST = LegendColumn(gettext_lazy("last"), lambda line: line.known[-1] if line.known else None)


@dataclass(frozen=True, slots=True)
class Chart:
    """What is common to charts: ``name`` for addresses within the page, the title, the length of a step
    in words, the steps, the series and the columns of the table beside them.
    """

    name: str
    title: Any
    each: Any
    axis: TimeAxis
    lines: Sequence[Series]
    columns: Sequence[LegendColumn] = (LAST, MOST)
    write: Callable[[float], Any] = plain
    ticks: Callable[[float], list[float]] = axes.counts

    def as_lines(self) -> SafeString:
        """A line for each series."""
        ends = self.ticks(self._most(value for line in self.lines for value in line.known))
        return self._figure(ends, self._strokes(self.lines, ends[-1]))

    def as_bars(self) -> SafeString:
        """A stacked bar for each step; one that is not over is pale."""
        ends = self.ticks(self._most(map(sum, self._stacks())))
        return self._figure(ends, format_html_join("", _BAR, self._bars(ends[-1])))

    def as_areas(self) -> SafeString:
        """The series on top of each other, the first at the bottom."""
        sums = [list(accumulate(values, initial=0)) for values in self._stacks()]
        ends = self.ticks(self._most(stack[-1] for stack in sums))
        bands = []
        for run in _runs(self.lines[0].values if self.lines else ()):
            # A sample alone is half a step wide.
            edge = [(place + 0.5, place) for place, _value in run]
            if len(run) == 1:
                edge = [(run[0][0] + share, run[0][0]) for share in (0.25, 0.75)]
            for number, line in enumerate(self.lines):
                upper = [(x, sums[place][number + 1]) for x, place in edge]
                lower = [(x, sums[place][number]) for x, place in reversed(edge)]
                bands.append((_tone(line), _points([*upper, *lower], ends[-1])))
        areas = format_html_join("", '<polygon class="{}" points="{}"/>', bands)
        return self._figure(ends, self._stretched(areas))

    @staticmethod
    def _most(values: Iterable[float]) -> float:
        return max(values, default=0)

    def _stacks(self) -> list[list[float]]:
        """The values of each step; a gap counts as nothing."""
        return [[line.values[place] or 0 for line in self.lines] for place in range(len(self.axis))]

    # Shapes. Down they are in pixels, across in shares of the width or, stretched, in steps.

    def _bars(self, top: float) -> Iterable[tuple[Any, ...]]:
        last = len(self.axis) - 1
        for place, values in enumerate(self._stacks()):
            below = 0.0
            for line, value in zip(self.lines, values, strict=True):
                if value <= 0:
                    continue
                below += value
                upper, lower = _y(below, top), _y(below - value, top)
                pale = self.axis.partial and place == last
                yield (
                    self.axis.x(place + 0.1),
                    upper,
                    self.axis.x(0.8),
                    round(max(0.5, lower - upper), 1),
                    f"{_tone(line)} ojs-partial" if pale else _tone(line),
                )

    def _strokes(self, lines: Sequence[Series], top: float) -> SafeString:
        strokes: list[tuple[str, str, str]] = []
        dots: list[tuple[str, str, float]] = []
        last = len(self.axis) - 1
        for line in lines:
            for run in _runs(line.values):
                if len(run) == 1:
                    dots.append((_tone(line), self.axis.x(run[0][0] + 0.5), _y(run[0][1], top)))
                    continue
                whole = run[:-1] if self.axis.partial and run[-1][0] == last else run
                dash = "5 3" if line.dashed else "none"
                for part, dashes in ((whole, dash), (run[len(whole) - 1 :], "2 3")):
                    if len(part) > 1:
                        places = _points([(place + 0.5, value) for place, value in part], top)
                        strokes.append((_tone(line), places, dashes))
        drawn = format_html_join(
            "",
            '<polyline class="{}" points="{}" stroke-dasharray="{}" fill="none" stroke="currentColor"'
            ' stroke-width="1.5" vector-effect="non-scaling-stroke"/>',
            strokes,
        )
        alone = '<circle class="{}" cx="{}" cy="{}" r="2" fill="currentColor"/>'
        return self._stretched(drawn) + format_html_join("", alone, dots)

    def _stretched(self, shapes: SafeString) -> SafeString:
        return format_html(
            '<svg width="100%" height="{h}" viewBox="0 0 {w} {h}" preserveAspectRatio="none"'
            ' fill="currentColor">{shapes}</svg>',
            w=max(1, len(self.axis)),
            h=_HEIGHT,
            shapes=shapes,
        )

    # What is around them.

    def _figure(self, ends: Sequence[float], body: SafeString) -> SafeString:
        title = format_html(
            "<figcaption>{} <small>{}</small></figcaption>", self.title, self.each or ""
        )
        if not any(value for line in self.lines for value in line.known):
            nothing = _("Nothing in this time.")
            return format_html(
                '<figure class="ojs-figure">{}<p class="ojs-quiet">{}</p></figure>', title, nothing
            )
        values = format_html_join(
            "", "<span>{}</span>", ((self.write(value),) for value in reversed(ends))
        )
        # Written once: numbers are in the hints, and in the table.
        texts = [[self._said(value) for value in line.values] for line in self.lines]
        svg = format_html(
            '<svg class="ojs-chart" role="img" width="100%" height="{}"><title>{}</title>'
            "{}{}{}{}</svg>",
            _HEIGHT,
            _("%s: the tables say the same") % self.title,
            self._grid(ends),
            body,
            self._hints(texts),
            self._ticks(),
        )
        return format_html(
            '<figure class="ojs-figure">{}<div class="ojs-plot"><div class="ojs-ends"'
            ' aria-hidden="true">{}</div>{}{}</div>{}</figure>',
            title,
            values,
            svg,
            self._beside(),
            self._folded(texts),
        )

    def _grid(self, ends: Sequence[float]) -> SafeString:
        return format_html_join(
            "",
            '<line x1="0" x2="100%" y1="{0}" y2="{0}" stroke="currentColor" stroke-opacity="0.2"/>',
            ((_y(value, ends[-1]),) for value in ends),
        )

    def _hints(self, texts: Sequence[Sequence[str]]) -> SafeString:
        """Over each step an invisible rectangle that tells its values; and the marks."""
        said = (
            "\n".join(
                [label]
                + [
                    f"{line.name}: {values[place]}"
                    for line, values in zip(self.lines, texts, strict=True)
                    if line.values[place] is not None
                ]
            )
            for place, label in enumerate(self.axis.labels)
        )
        steps = format_html_join(
            "",
            '<rect class="ojs-step" x="{}" y="{}" width="{}" height="{}" fill="none">'
            "<title>{}</title></rect>",
            (
                (self.axis.x(place), _TOP, self.axis.x(1), _PLOT, text)
                for place, text in enumerate(said)
            ),
        )
        marks = format_html_join(
            "",
            '<g class="ojs-mark"><line x1="{0}" x2="{0}" y1="{1}" y2="{2}" stroke="currentColor"'
            ' stroke-dasharray="3 2"/><text x="{0}" y="{3}" text-anchor="middle" fill="currentColor"'
            ' font-size="11">▼<title>{4}</title></text></g>',
            ((x, _TOP - 4, _TOP + _PLOT, _TOP - 4, mark.text) for x, mark in self.axis.marked()),
        )
        return steps + marks

    def _ticks(self) -> SafeString:
        steps = len(self.axis)
        return format_html_join(
            "",
            '<line x1="{0}" x2="{0}" y1="{1}" y2="{2}" stroke="currentColor" stroke-opacity="0.5"/>'
            '<text class="{5}" x="{0}" y="{3}" text-anchor="{4}" fill="currentColor" font-size="11">{6}'
            "</text>",
            (
                (
                    self.axis.x(place),
                    _TOP + _PLOT,
                    _TOP + _PLOT + 4,
                    _HEIGHT - 3,
                    "start" if place < 0.02 * steps else "end" if place > 0.96 * steps else "middle",
                    "ojs-every-other" if number % 2 else "",
                    text,
                )
                for number, (place, text) in enumerate(self.axis.ticks)
            ),
        )

    def _beside(self) -> SafeString:
        """The legend: each series with its figures, the topmost first."""
        head = format_html_join(
            "", '<th scope="col">{}</th>', ((column.label,) for column in self.columns)
        )
        rows = [
            (
                _tone(line),
                "┅" if line.dashed else "━",
                line.name,
                format_html_join(
                    "", "<td>{}</td>", ((self._said(column.value(line)),) for column in self.columns)
                ),
            )
            for line in reversed(self.lines)
        ]
        body = format_html_join(
            "",
            '<tr><th scope="row"><span class="ojs-key {}" aria-hidden="true">{}</span> {}</th>{}</tr>',
            rows,
        )
        return format_html(
            '<table class="ojs-legend"><thead><tr><th scope="col"><span class="visually-hidden">{}'
            "</span></th>{}</tr></thead><tbody>{}</tbody></table>",
            _("Series"),
            head,
            body,
        )

    def _folded(self, texts: Sequence[Sequence[str]]) -> SafeString:
        """All values, for those who want to read or to copy them."""
        head = format_html_join("", '<th scope="col">{}</th>', ((line.name,) for line in self.lines))
        rows = []
        for place, label in enumerate(self.axis.labels):
            cells = ((values[place],) for values in texts)
            rows.append((label, format_html_join("", "<td>{}</td>", cells)))
        return format_html(
            '<details id="ojs-{}-table"><summary>{}</summary><div class="ojs-scroll" tabindex="0"'
            ' role="region" aria-label="{}"><table><caption>{}</caption><thead><tr><th scope="col">{}'
            "</th>{}</tr></thead><tbody>{}</tbody></table></div></details>",
            self.name,
            _("As a table"),
            self.title,
            self.title,
            _("From"),
            head,
            format_html_join("", '<tr><th scope="row">{}</th>{}</tr>', rows),
        )

    def _said(self, value: float | None) -> Any:
        return "—" if value is None else self.write(value)


def throughput(
    window: ChartWindow, axis: TimeAxis, points: Sequence[SeriesPoint], before: Counters | None = None
) -> SafeString:
    """Completed jobs and failed attempts as stacked bars, beside what there was ``before``."""
    completed, failed = (None, None) if before is None else (before.completed, before.failed)
    lines = (
        Series(_("completed"), [point.completed for point in points], "good", before=completed),
        Series(_("failed attempts"), [point.failed for point in points], "bad", before=failed),
    )
    title = _("Completed jobs and failed attempts")
    columns = [TOTAL, MOST]
    if before is not None:
        columns.insert(1, LegendColumn(window.before, lambda line: line.before))
    return Chart("throughput", title, window.each, axis, lines, columns).as_bars()


_BAR = '<rect x="{}" y="{}" width="{}" height="{}" class="{}" fill="currentColor"/>'


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The runs of values between gaps, each value with its place."""
    runs: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place, value))
    return [run for run in runs if run]


def _points(places: Iterable[tuple[float, float]], top: float) -> str:
    return " ".join(f"{x:g},{_y(value, top):g}" for x, value in places)


def _y(value: float, top: float) -> float:
    return round(_TOP + _PLOT * (1 - value / top), 1)


def _tone(line: Series) -> str:
    return f"ojs-{line.tone}" if line.tone else ""
