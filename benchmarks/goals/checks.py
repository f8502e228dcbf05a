"""How a figure is judged. Nothing here measures; everything can be tested on given figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.measuring import Figures, Measure

MET, NOT_MET, REPORT = "met", "not met", ""
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value of a measure: ``name`` among its figures, in ``unit``."""

    measure: Measure
    name: str
    unit: str

    def of(self, figures: Figures) -> float | None:
        """The median of the repetitions."""
        return figures.median(self.measure, self.name)

    def text(self, value: float | None) -> str:
        """As it is printed."""
        return "-" if value is None else f"{number(value)} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the report. ``verdict`` is ``met``, ``not met``, ``not measured: why`` or empty where
    nothing is promised.
    """

    goal: str
    what: str
    figure: str
    beside: str = ""
    ratio: float | None = None
    needs: str = ""
    verdict: str = REPORT


class Check(Protocol):
    """One thing that a goal asks."""

    @property
    def what(self) -> str:
        """Its name in the report."""

    @property
    def measures(self) -> Sequence[Measure]:
        """What must be measured for it."""

    def judge(self, goal: str, figures: Figures) -> Row:
        """Whether it is met."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our figure divided by another of the same run: at ``least`` or at ``most`` so much.

    With neither it is only reported. ``aim`` is printed beside a promise that is lower than the wish.
    """

    what: str
    ours: Figure
    beside: str
    other: Figure
    least: float | None = None
    most: float | None = None
    aim: float | None = None

    @property
    def measures(self) -> Sequence[Measure]:
        """Both sides."""
        return (self.other.measure, self.ours.measure)

    def judge(self, goal: str, figures: Figures) -> Row:
        """Compare medians."""
        mine, theirs = self.ours.of(figures), self.other.of(figures)
        beside = f"{self.beside}: {self.other.text(theirs)}"
        row = Row(goal, self.what, self.ours.text(mine), beside, needs=self._needs())
        for value, side in ((mine, self.ours), (theirs, self.other)):
            if value is None:
                return _unknown(row, side.measure, figures)
        assert mine is not None and theirs is not None
        if not theirs:
            return _with(row, verdict=f"{NOT_MEASURED}: {self.beside} is 0" if row.needs else REPORT)
        ratio = mine / theirs
        if self.least is None and self.most is None:
            return _with(row, ratio=ratio)
        good = (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)
        return _with(row, ratio=ratio, verdict=MET if good else NOT_MET)

    def _needs(self) -> str:
        told = []
        if self.least is not None:
            told.append(f">= {self.least:g}x")
        if self.most is not None:
            told.append(f"<= {self.most:g}x")
        if self.aim is not None:
            told.append(f"(aim {self.aim:g}x)")
        return " ".join(told)


@dataclass(frozen=True, slots=True)
class Limit:
    """Our figure by itself: at ``least`` or at ``most`` so much; with neither it is reported."""

    what: str
    ours: Figure
    least: float | None = None
    most: float | None = None

    @property
    def measures(self) -> Sequence[Measure]:
        """The one."""
        return (self.ours.measure,)

    def judge(self, goal: str, figures: Figures) -> Row:
        """Compare with the limits."""
        value = self.ours.of(figures)
        told = [f">= {number(self.least)}"] if self.least is not None else []
        told += [f"<= {number(self.most)}"] if self.most is not None else []
        needs = " ".join([*told, self.ours.unit]).strip() if told else ""
        row = Row(goal, self.what, self.ours.text(value), needs=needs)
        if value is None:
            return _unknown(row, self.ours.measure, figures)
        if not told:
            return row
        good = (self.least is None or value >= self.least) and (self.most is None or value <= self.most)
        return _with(row, verdict=MET if good else NOT_MET)


@dataclass(frozen=True, slots=True)
class Same:
    """Two figures of ours that must not differ."""

    what: str
    ours: Figure
    beside: str
    other: Figure

    @property
    def measures(self) -> Sequence[Measure]:
        """Both."""
        return (self.ours.measure, self.other.measure)

    def judge(self, goal: str, figures: Figures) -> Row:
        """Compare them."""
        mine, theirs = self.ours.of(figures), self.other.of(figures)
        beside = f"{self.beside}: {self.other.text(theirs)}"
        row = Row(goal, self.what, self.ours.text(mine), beside, needs="the same")
        for value, side in ((mine, self.ours), (theirs, self.other)):
            if value is None:
                return _unknown(row, side.measure, figures)
        return _with(row, verdict=MET if mine == theirs else NOT_MET)


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise: its number, one line about it, and what it asks.

    A ``long`` one is measured in the full form, or when it is named.
    """

    id: str
    title: str
    checks: Sequence[Check]
    long: bool = False

    @property
    def measures(self) -> list[Measure]:
        """What must be measured, in the order in which it is compared, each once."""
        return list(dict.fromkeys(measure for check in self.checks for measure in check.measures))

    def judge(self, figures: Figures) -> list[Row]:
        """A row per check."""
        return [check.judge(self.id, figures) for check in self.checks]


def verdict_of(rows: Sequence[Row]) -> str:
    """Of a whole goal: not met if a part is not, not measured if a part is not."""
    told = [row.verdict for row in rows if row.needs]
    if NOT_MET in told:
        return NOT_MET
    if any(verdict.startswith(NOT_MEASURED) for verdict in told):
        return NOT_MEASURED
    return MET if told else REPORT


def number(value: float) -> str:
    """With as many digits as mean something."""
    if value == int(value) and abs(value) < 1000:
        return f"{value:g}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _unknown(row: Row, measure: Measure, figures: Figures) -> Row:
    return _with(row, verdict=f"{NOT_MEASURED}: {figures.why_not(measure)}")


def _with(row: Row, *, ratio: float | None = None, verdict: str = REPORT) -> Row:
    return Row(row.goal, row.what, row.figure, row.beside, ratio, row.needs, verdict)
