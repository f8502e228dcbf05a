"""Charts: axes that fit, round ticks, gaps, steps that are not over, and nothing that is not text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from django_ojs.admin import axes, charts
from django_ojs.admin.axes import HOUR, WINDOWS, AxisMark, TimeAxis
from django_ojs.admin.plots import LAST, MOST, TOTAL, Chart, Series

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
UNTIL = datetime(2026, 3, 4, 17, 40, tzinfo=UTC)


def axis(steps: int, *, partial: bool = False, marks: list[AxisMark] | None = None) -> TimeAxis:
    labels = [f"<i>{number}</i>" for number in range(steps)]
    return TimeAxis(UNTIL, timedelta(minutes=1), labels, (), partial, marks or [])


def chart(*lines: Series, steps: int = 4, partial: bool = False) -> Chart:
    return Chart("c", "title", "per minute", axis(steps, partial=partial), lines, (LAST, MOST, TOTAL))


@pytest.mark.parametrize(
    ("most", "ends"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (7, [0, 2, 4, 6, 8]),
        (99, [0, 25, 50, 75, 100]),
        (3400, [0, 1000, 2000, 3000, 4000]),
        (5100, [0, 2000, 4000, 6000]),
    ],
)
def test_an_axis_of_numbers_ends_just_above_the_largest(most: float, ends: list[float]) -> None:
    assert axes.counts(most) == ends


@pytest.mark.parametrize(
    ("most", "end"),
    [(0.4, 1), (34, 40), (800, 800), (4100, 5000), (70_000, 75_000), (240_000, 240_000)],
)
def test_an_axis_of_time_ends_at_a_round_time(most: float, end: float) -> None:
    assert axes.spans(most)[-1] == end


@pytest.mark.parametrize("most", [*range(1, 2000, 7), 12_345_678])
def test_no_plot_is_half_empty(most: float) -> None:
    for ends in (axes.counts(most), axes.spans(most * 10)):
        assert ends[0] == 0
        assert 2 <= len(ends) <= 6
    assert most <= axes.counts(most)[-1] <= max(2, most * 4 / 3)


def test_ticks_are_round_times_of_the_reader() -> None:
    found = {window.name: [text for _place, text in window.axis(UNTIL).ticks] for window in WINDOWS}
    assert found["1h"] == ["16:40", "16:50", "17:00", "17:10", "17:20", "17:30"]
    assert found["24h"] == ["20:00", "00:00", "04:00", "08:00", "12:00", "16:00"]
    assert found["7d"] == ["Thu 26", "Fri 27", "Sat 28", "Sun 1", "Mon 2", "Tue 3", "Wed 4"]
    assert len(found["30d"]) == 6
    # Half an hour beside the others: days still begin at midnight there.
    with timezone.override(ZoneInfo("Asia/Kolkata")):
        ticks = WINDOWS[1].axis(UNTIL).ticks
        assert [text for _place, text in ticks] == [
            "00:00",
            "04:00",
            "08:00",
            "12:00",
            "16:00",
            "20:00",
        ]
        assert WINDOWS[1].axis(UNTIL).labels[ticks[0][0]].endswith("00:00")


def test_days_are_days_across_a_change_of_the_clocks() -> None:
    with timezone.override(ZoneInfo("Europe/Berlin")):
        ticks = WINDOWS[2].axis(datetime(2026, 3, 31, 12, 0, tzinfo=UTC)).ticks
    assert [text for _place, text in ticks][-3:] == ["Sun 29", "Mon 30", "Tue 31"]


def test_the_last_step_says_that_it_is_not_over() -> None:
    whole = HOUR.axis(UNTIL)
    assert (len(whole), whole.partial) == (60, False)
    assert not whole.labels[-1].endswith("(not over yet)")
    part = WINDOWS[1].axis(UNTIL)
    assert part.partial
    assert part.labels[-1].endswith("17:30 (not over yet)")
    bars = str(chart(Series("a", [1, 1, 1, 1]), partial=True).as_bars())
    assert bars.count("ojs-partial") == 1
    assert "ojs-partial" not in str(chart(Series("a", [1, 1, 1, 1])).as_bars())
    lines = str(chart(Series("a", [1, 2, 3, 4]), partial=True).as_lines())
    assert re.findall(r'points="([^"]*)" stroke-dasharray="([^"]*)"', lines) == [
        ("0.5,136 1.5,96 2.5,56", "none"),
        ("2.5,56 3.5,16", "2 3"),
    ]


def test_gaps_are_gaps() -> None:
    line = Series("x", [1, 2, None, 3, None, 4, 5])
    text = str(chart(line, steps=7).as_lines())
    assert text.count("<polyline") == 2
    assert text.count("<circle") == 1
    areas = str(chart(line, Series("y", [1] * 7), steps=7).as_areas())
    assert areas.count("<polygon") == 6


def test_areas_are_on_top_of_each_other() -> None:
    text = str(chart(Series("a", [1, 1]), Series("b", [3, 3]), steps=2).as_areas())
    assert re.findall(r'points="([^"]*)"', text) == [
        "0.5,136 1.5,136 1.5,176 0.5,176",
        "0.5,16 1.5,16 1.5,136 0.5,136",
    ]


def test_the_figures_stand_beside_the_chart_and_below() -> None:
    text = str(chart(Series("a", [1, 5, None, 2]), Series("b", [None] * 4)).as_lines())
    beside = re.findall(r"</span> ([ab])</th>((?:<td>[^<]*</td>)*)", text)
    assert beside == [
        ("b", "<td>—</td><td>—</td><td>0</td>"),
        ("a", "<td>2</td><td>5</td><td>8</td>"),
    ]
    assert re.search(r'<details id="ojs-c-table"><summary>[^<]+</summary>.*</details></figure>$', text)


def test_nothing_is_said_to_be_nothing() -> None:
    for empty in (chart(), chart(Series("a", [0, 0, 0, 0])), chart(Series("a", [None] * 4))):
        for text in map(str, (empty.as_lines(), empty.as_bars(), empty.as_areas())):
            assert "Nothing in this time." in text
            assert "<svg" not in text


def test_marks_are_drawn_where_they_were() -> None:
    marks = [
        AxisMark(UNTIL + timedelta(minutes=1), HOSTILE),
        AxisMark(UNTIL - timedelta(minutes=1), "before"),
        AxisMark(UNTIL + timedelta(minutes=5), "after"),
    ]
    lines = (Series("a", [1, 1, 1, 1]),)
    text = str(Chart("c", "title", "", axis(4, marks=marks), lines).as_bars())
    assert re.findall(r'class="ojs-mark"><line x1="([^"]*)"', text) == ["25%"]
    assert "&lt;script&gt;" in text
    assert "before" not in text
    assert "after" not in text


def test_charts_are_escaped_and_bear_a_strict_policy() -> None:
    lines = (Series(HOSTILE, [1.0, 2.0, 3.0, 4.0], "good"), Series("b", [1.0, None, 2.0, 3.0]))
    whole = Chart("c", HOSTILE, HOSTILE, axis(4, partial=True), lines)
    made = [
        whole.as_lines(),
        whole.as_bars(),
        whole.as_areas(),
        charts.sparkline(HOSTILE, [1, 2], "bad"),
    ]
    for text in map(str, [*made, charts.sparkline("empty", [])]):
        assert '<svg class="ojs-chart' in text
        assert 'role="img"' in text
        assert "<title>" in text
        for bad in ("<script", "<img", "<i>", "<style", " style="):
            assert bad not in text


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.5, "50 %"),
        (0.98765, "98.8 %"),
        (0.99999, "< 100 %"),
        (1e-6, "> 0 %"),
    ],
)
def test_a_share_that_is_not_all_does_not_look_like_all(share: float, said: str) -> None:
    assert charts.percent(share) == said
