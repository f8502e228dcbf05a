"""Charts as SVG from the server, without scripts or inline styles, each with a table.

Colours come from ``currentColor`` and the classes of ``admin.css``, so that dark mode works and a
strict Content-Security-Policy accepts them. All text goes through ``format_html``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.domain.histogram import SeriesPoint

WIDTH, HEIGHT = 640, 160
MOST_POINTS = 120
_LEFT, _TOP, _BOTTOM = 84, 10, 20


@dataclass(frozen=True, slots=True)
class Series:
    """Values under one name, as many as there are labels; ``None`` is a gap."""

    name: Any
    values: Sequence[float | None]
    tone: str = ""
    """``good``, ``warn``, ``bad``, ``quiet`` or nothing: a class of ``admin.css``."""
    dashed: bool = False
    area: bool = False


Written = Callable[[float], Any]


def plain(value: float) -> str:
    """A number in the format of the user's language."""
    return str(number_format(round(value, 2) if value % 1 else int(value), force_grouping=True))


def at_least(value: float) -> str:
    return f"≥ {plain(value)}"


def line_chart(
    title: Any,
    labels: Sequence[str],
    lines: Sequence[Series],
    write: Written = plain,
    ends: Sequence[float] = (),
) -> SafeString:
    """A chart of lines or areas over an axis from zero, and the table of its values.

    The axis ends at the first of ``ends`` that is large enough.
    """
    labels, lines = _thin(labels, lines)
    top = _top((value for line in lines for value in line.values), ends)
    drawn = [_drawn(line, len(labels), top) for line in lines]
    return _figure(title, labels, lines, write, top, format_html_join("", "{}", ((d,) for d in drawn)))


def stacked_bars(
    title: Any, labels: Sequence[str], lines: Sequence[Series], write: Written = plain
) -> SafeString:
    """A stacked bar for each label, one part for each series, and the table of the values."""
    labels, lines = _thin(labels, lines)
    sums = [sum(line.values[place] or 0 for line in lines) for place in range(len(labels))]
    top = _top(sums)
    room = (WIDTH - _LEFT) / max(1, len(labels))
    bars = []
    for place, label in enumerate(labels):
        below = 0.0
        for line in lines:
            value = line.values[place] or 0
            if value <= 0:
                continue
            below += value
            bars.append(
                (
                    round(_LEFT + room * place, 1),
                    _y(below, top),
                    round(max(1.0, room * 0.8), 1),
                    round(max(0.5, _y(below - value, top) - _y(below, top)), 1),
                    _tone(line),
                    f"{label} {line.name}: {write(value)}",
                )
            )
    body = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}" class="{}" fill="currentColor">'
        "<title>{}</title></rect>",
        bars,
    )
    return _figure(title, labels, lines, write, top, body)


def throughput(title: Any, labels: Sequence[str], points: Sequence[SeriesPoint]) -> SafeString:
    """Ended jobs and failed attempts as stacked bars."""
    completed = Series(_("completed"), [point.completed for point in points], "good")
    failed = Series(_("failed"), [point.failed for point in points], "bad")
    return stacked_bars(title, labels, [completed, failed])


def sparkline(title: Any, values: Sequence[float | None], tone: str = "") -> SafeString:
    """A line chart the size of a word; its title has sum, maximum and last value."""
    (thin,) = _thin([""] * len(values), [Series("", values, tone)])[1]
    top = _top(thin.values)
    step = 96 / max(1, len(thin.values) - 1)
    points = " ".join(
        f"{round(2 + place * step, 1)},{round(22 - 20 * (value or 0) / top, 1)}"
        for place, value in enumerate(thin.values)
    )
    known = [value for value in values if value is not None]
    summary = _("sum %(sum)s, most %(most)s, last %(last)s") % {
        "sum": plain(sum(known)),
        "most": plain(max(known, default=0)),
        "last": plain(known[-1] if known else 0),
    }
    return format_html(
        '<svg class="ojs-chart ojs-spark {}" role="img" width="100" height="24" viewBox="0 0 100 24">'
        '<title>{}: {}</title><polyline points="{}" fill="none" stroke="currentColor"/></svg>',
        _tone(thin),
        title,
        summary,
        points,
    )


def table(
    title: Any, labels: Sequence[str], lines: Sequence[Series], write: Written = plain
) -> SafeString:
    head = format_html_join("", '<th scope="col">{}</th>', ((line.name,) for line in lines))
    rows = []
    for place, label in enumerate(labels):
        values = [line.values[place] for line in lines]
        cells = format_html_join(
            "", "<td>{}</td>", (("—" if value is None else write(value),) for value in values)
        )
        rows.append((label, cells))
    body = format_html_join("", '<tr><th scope="row">{}</th>{}</tr>', rows)
    return format_html(
        '<table><caption>{}</caption><thead><tr><th scope="col">{}</th>{}</tr></thead>'
        "<tbody>{}</tbody></table>",
        title,
        _("From"),
        head,
        body,
    )


def _figure(
    title: Any,
    labels: Sequence[str],
    lines: Sequence[Series],
    write: Written,
    top: float,
    body: SafeString,
) -> SafeString:
    legend = format_html_join(
        " ",
        '<span class="ojs-legend {}"><span aria-hidden="true">{}</span> {}</span>',
        ((_tone(line), "┅" if line.dashed else "━", line.name) for line in lines),
    )
    svg = format_html(
        '<svg class="ojs-chart" role="img" width="{w}" height="{h}" viewBox="0 0 {w} {h}">'
        "<title>{title}</title>{grid}{body}{axis}</svg>",
        w=WIDTH,
        h=HEIGHT,
        title=_("%s: the table below says the same") % title,
        grid=_grid(top, write),
        body=body,
        axis=_axis(labels),
    )
    return format_html(
        '<figure class="ojs-figure"><figcaption>{} <small>{}</small></figcaption>{}'
        "<details><summary>{}</summary>{}</details></figure>",
        title,
        legend,
        svg,
        _("As a table"),
        table(title, labels, lines, write),
    )


def _axis(labels: Sequence[str]) -> SafeString:
    """Up to five labels, from end to end."""
    last = len(labels) - 1
    places = sorted({round(last * part / 4) for part in range(5)}) if labels else []
    room = (WIDTH - _LEFT) / max(1, last)
    anchors = {0: "start", last: "end"}
    return format_html_join(
        "",
        '<text x="{}" y="{}" font-size="11" fill="currentColor" text-anchor="{}">{}</text>',
        (
            (round(_LEFT + room * place, 1), HEIGHT - 5, anchors.get(place, "middle"), labels[place])
            for place in places
        ),
    )


def _grid(top: float, write: Written) -> SafeString:
    return format_html_join(
        "",
        '<line x1="{}" x2="{}" y1="{}" y2="{}" stroke="currentColor" stroke-opacity="0.2"/>'
        '<text x="{}" y="{}" font-size="11" fill="currentColor" text-anchor="end">{}</text>',
        (
            (_LEFT, WIDTH, _y(value, top), _y(value, top), _LEFT - 6, _y(value, top) + 4, write(value))
            for value in (0, top / 2, top)
        ),
    )


def _drawn(line: Series, count: int, top: float) -> SafeString:
    step = (WIDTH - _LEFT) / max(1, count - 1)
    parts = [
        [(round(_LEFT + place * step, 1), _y(value, top)) for place, value in run]
        for run in _runs(line.values)
    ]
    made = []
    for part in parts:
        if line.area:
            base = _y(0, top)
            around = [(part[0][0], base), *part, (part[-1][0], base)]
            made.append(
                format_html(
                    '<polygon points="{}" fill="currentColor" fill-opacity="0.15"/>', _points(around)
                )
            )
        if len(part) == 1:
            dot = '<circle cx="{}" cy="{}" r="2" fill="currentColor"/>'
            made.append(format_html(dot, *part[0]))
            continue
        made.append(
            format_html(
                '<polyline points="{}" fill="none" stroke="currentColor" stroke-width="1.5"'
                ' stroke-dasharray="{}"/>',
                _points(part),
                "4 3" if line.dashed else "none",
            )
        )
    return format_html(
        '<g class="{}">{}</g>', _tone(line), format_html_join("", "{}", ((m,) for m in made))
    )


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The runs of values between gaps, each value with its place."""
    runs: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place, value))
    return [run for run in runs if run]


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * value / top, 1)


def _top(values: Iterable[float | None], ends: Sequence[float] = ()) -> float:
    """The end of the axis: one of ``ends``, or 1, 2 or 5 times a power of ten."""
    most = max((value for value in values if value is not None), default=0)
    for given in ends:
        if given >= most:
            return given
    end = 1.0
    while end < most:
        for factor in (2, 5, 10):
            if end * factor >= most:
                return end * factor
        end *= 10
    return end


def _tone(line: Series) -> str:
    return f"ojs-{line.tone}" if line.tone else ""


def _thin(labels: Sequence[str], lines: Sequence[Series]) -> tuple[Sequence[str], list[Series]]:
    """At most ``MOST_POINTS`` points; neighbours are replaced by their maximum."""
    each = -(-len(labels) // MOST_POINTS)
    if each <= 1:
        return labels, list(lines)

    def largest(values: Sequence[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    starts = range(0, len(labels), each)
    return [labels[place] for place in starts], [
        replace(line, values=[largest(line.values[place : place + each]) for place in starts])
        for line in lines
    ]
