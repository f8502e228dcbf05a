"""The text formats of Prometheus and OpenMetrics: families of samples as lines."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

PLAIN = "text/plain"
VERSIONED = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations: how many were at most so many seconds, how many there were, and their sum."""

    below: Sequence[tuple[float, int]]
    count: int
    sum: float


class Durations:
    """A histogram that grows, written by one thread; ``bounds`` are in seconds, ascending."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def histogram(self) -> Histogram:
        """What was counted so far."""
        totals = list(accumulate(self._counts))
        return Histogram(list(zip(self._bounds, totals, strict=False)), totals[-1], self._sum)


@dataclass(slots=True)
class Family:
    """A metric: ``kind`` is ``counter``, ``gauge`` or ``histogram``; values by the labels' values."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    values: dict[tuple[str, ...], float | Histogram] = field(default_factory=dict)


MOST_BYTES = 4 << 20
"""The most that a scrape may be."""


def render(families: Sequence[Family], *, openmetrics: bool = False, most: int = MOST_BYTES) -> str:
    """All of it as text. A counter's name ends in ``_total`` in its samples; in OpenMetrics its family
    has the name without.

    Text of more than ``most`` bytes has fewer buckets: every second one, every fourth, or none.
    """
    text = ""
    for every in (1, 2, 4, 0):
        text = _text(families, openmetrics, every)
        if len(text.encode()) <= most:
            break
    return text


def _text(families: Iterable[Family], openmetrics: bool, every: int) -> str:
    lines: list[str] = []
    for family in families:
        counter = family.kind == "counter"
        name = family.name.removesuffix("_total") if openmetrics and counter else family.name
        lines.append(f"# HELP {name} {_escaped(family.help, quote=False)}")
        lines.append(f"# TYPE {name} {family.kind}")
        for values, value in sorted(family.values.items()):
            labels = _labels(family.labels, values)
            if isinstance(value, Histogram):
                lines += _histogram(family.name, labels, value, every)
            else:
                lines.append(f"{family.name}{_braced(labels)} {number_text(value)}")
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _histogram(name: str, labels: str, value: Histogram, every: int) -> Iterator[str]:
    below = value.below[every - 1 :: every] if every else ()
    bucket = f'{name}_bucket{{{labels},le="' if labels else f'{name}_bucket{{le="'
    for bound, count in (*below, (math.inf, value.count)):
        yield f'{bucket}{_bound_text(bound)}"}} {count}'
    yield f"{name}_sum{_braced(labels)} {number_text(value.sum)}"
    yield f"{name}_count{_braced(labels)} {value.count}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = zip(names, values, strict=True)
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(text: str, *, quote: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


@lru_cache(maxsize=256)
def _bound_text(bound: float) -> str:
    return number_text(bound)


def number_text(value: float) -> str:
    """A value, or the bound of a bucket, as text."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
