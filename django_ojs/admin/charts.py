"""Numbers in the reader's language, and charts the size of a word."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.domain import histogram
from django_ojs.services.phrases import humanize_duration


def plain(value: float) -> str:
    """A number in the format of the user's language."""
    return str(number_format(round(value, 2) if value % 1 else int(value), force_grouping=True))


def at_least(value: float) -> str:
    return f"≥ {plain(value)}"


def percent(share: float) -> str:
    """A share of 1, with enough digits to tell it from all and from nothing."""
    value = 100 * share
    digits = 2 if 99 < value < 100 or 0 < value < 1 else 1
    shown = round(value, digits)
    if shown in (0, 100) and value != shown:
        return _("%s %%") % (("> " if shown == 0 else "< ") + plain(shown))
    return _("%s %%") % plain(shown)


def milliseconds(value: float) -> str:
    """A span given in milliseconds."""
    if 0 < value < 1000:
        return _("%s ms") % plain(float(f"{value:.3g}"))
    return humanize_duration(timedelta(milliseconds=value))


def sparkline(title: Any, values: Sequence[float], tone: str = "") -> SafeString:
    """A line chart the size of a word; its title has sum, maximum and last value."""
    top = max([1, *values])
    step = 96 / max(1, len(values) - 1)
    points = " ".join(
        f"{round(2 + place * step, 1)},{round(22 - 20 * value / top, 1)}"
        for place, value in enumerate(values)
    )
    summary = _("sum %(sum)s, most %(most)s, last %(last)s") % {
        "sum": plain(sum(values)),
        "most": plain(max(values, default=0)),
        "last": plain(values[-1] if values else 0),
    }
    return format_html(
        '<svg class="ojs-chart ojs-spark {}" role="img" width="100" height="24" viewBox="0 0 100 24">'
        '<title>{}: {}</title><polyline points="{}" fill="none" stroke="currentColor"/></svg>',
        f"ojs-{tone}" if tone else "",
        title,
        summary,
        points,
    )


def spread(durations: Sequence[int]) -> SafeString:
    """A histogram of durations the size of a word: a bar for each bucket, from the shortest that there
    was to the longest; empty when there were none. Its title has the counts.
    """
    taken = [place for place, count in enumerate(durations) if count]
    if not taken:
        return SafeString("")
    shown = range(taken[0], taken[-1] + 1)
    most, step = max(durations), min(12.0, 96 / len(shown))
    bars = [
        (round(2 + number * step, 1), max(1.0, round(22 * durations[place] / most, 1)))
        for number, place in enumerate(shown)
        if durations[place]
    ]
    said = ", ".join(f"{_bucket(place)}: {plain(durations[place])}" for place in taken)
    return format_html(
        '<svg class="ojs-chart ojs-spark" role="img" width="100" height="24" viewBox="0 0 100 24">'
        "<title>{}</title>{}</svg>",
        _("How long they took: %s") % said,
        format_html_join(
            "",
            '<rect x="{}" y="{}" width="{}" height="{}" fill="currentColor"/>',
            ((x, round(23 - height, 1), round(step - 1, 1), height) for x, height in bars),
        ),
    )


def _bucket(place: int) -> str:
    """The bound of a bucket of durations in words."""
    if place < len(histogram.BUCKETS):
        return f"≤ {milliseconds(histogram.BUCKETS[place])}"
    return f"> {milliseconds(histogram.BUCKETS[-1])}"
