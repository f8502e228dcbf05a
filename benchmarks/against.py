"""This version beside an earlier one, by turns: ``python -m benchmarks --against REV --goals ...``.

Both are measured by the benchmark of this tree, in one environment, in the order ABBA: whatever makes
the machine slower hits both. Each turn gives a ratio of the two; the verdict is about their median.
"""

from __future__ import annotations

import fcntl
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from benchmarks.goals.checks import Check, Figure, Goal, number
from benchmarks.measuring import ROOT, Bench, Figures, Measure

LEAST = 0.97
"""An interval that lies below this ratio is a loss."""
CONFIDENCE = 0.95
FEWEST = 6
"""Fewer turns have no interval of that confidence."""
OURS = "ojs"


class NoSuchRevision(Exception):
    """Nothing can be checked out under this name."""


@contextmanager
def checked_out(revision: str, scratch: Path) -> Iterator[Path]:
    """The tree of a revision, with the benchmark of this one; it is gone after the block."""
    try:
        commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        raise NoSuchRevision(f"--against: git knows no commit {revision}") from None
    place = scratch / f"against-{commit[:12]}"
    _forget(place)
    _git("worktree", "add", "--detach", "--force", str(place), commit)
    try:
        shutil.rmtree(place / "benchmarks", ignore_errors=True)
        ignored = shutil.ignore_patterns(".venvs", ".scratch", "__pycache__", scratch.name)
        shutil.copytree(ROOT / "benchmarks", place / "benchmarks", ignore=ignored)
        yield place
    finally:
        _forget(place)


def _forget(place: Path) -> None:
    """Of an earlier run that was killed too."""
    with suppress(subprocess.CalledProcessError):
        _git("worktree", "remove", "--force", str(place))
    shutil.rmtree(place, ignore_errors=True)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def order(turns: int) -> list[tuple[bool, bool]]:
    """For each turn whether this version (``True``) or the other comes first: ABBA."""
    return [(turn % 2 == 0, turn % 2 == 1) for turn in range(turns)]


def interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest exact interval of the median with at least that confidence.

    By signs: how many of the ratios lie below their true median is a matter of fair coins, whatever
    their distribution. ``None`` for fewer than six.
    """
    count = len(ratios)
    if count < FEWEST:
        return None
    outside, rank = 0.0, 0
    while rank < count // 2:
        more = outside + 2 * comb(count, rank) / 2**count
        if more > 1 - CONFIDENCE:
            break
        outside, rank = more, rank + 1
    ordered = sorted(ratios)
    return ordered[rank - 1], ordered[count - rank]


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of both versions. Ratios are turned so that more is better."""

    goal: str
    what: str
    figure: Figure
    more_is_better: bool

    def ratios(self, ours: Figures, theirs: Figures) -> list[float]:
        """One for each turn in which both were measured, of undisturbed ones if they are enough."""
        pairs = list(
            zip(
                ours.samples.get(self.figure.measure.key, []),
                theirs.samples.get(self.figure.measure.key, []),
                strict=False,
            )
        )
        known = [pair for pair in pairs if all(sample.get(self.figure.name) for sample in pair)]
        calm = [pair for pair in known if not any(sample.get("disturbed") for sample in pair)]
        found = []
        for mine, other in calm if len(calm) >= FEWEST else known:
            ratio = mine[self.figure.name] / other[self.figure.name]
            found.append(ratio if self.more_is_better else 1 / ratio)
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a comparison; ``worse`` fails the run, ``why`` says why there is no ratio."""

    compared: Compared
    mine: float | None
    other: float | None
    turns: int
    median: float | None = None
    within: tuple[float, float] | None = None
    why: str = ""

    @property
    def worse(self) -> bool:
        """Whether the whole interval lies below what is allowed."""
        return self.within is not None and self.within[1] < LEAST

    @property
    def word(self) -> str:
        """For the table."""
        if self.median is None:
            return "not measured"
        if self.within is None:
            return f"not judged: fewer than {FEWEST} turns"
        return "WORSE" if self.worse else "better" if self.within[0] > 1 / LEAST else "not worse"


def compared(goals: Sequence[Goal]) -> list[Compared]:
    """Every figure of ours that the goals look at, each once."""
    found: dict[tuple[str, str], Compared] = {}
    for goal in goals:
        for check in goal.checks:
            for figure, what in _figures(check):
                if figure.measure.system.partition(".")[0] != OURS:
                    continue
                more = figure.unit.endswith("/s") or getattr(check, "least", None) is not None
                key = (figure.measure.key, figure.name)
                found.setdefault(key, Compared(goal.id, what, figure, more))
    return list(found.values())


def _figures(check: Check) -> list[tuple[Figure, str]]:
    """The sides of a check, with their names."""
    other = f"{check.what}: {getattr(check, 'beside', '')}"
    sides = [(getattr(check, "ours", None), check.what), (getattr(check, "other", None), other)]
    return [(side, what) for side, what in sides if isinstance(side, Figure)]


def judge(every: Sequence[Compared], ours: Figures, theirs: Figures) -> list[Verdict]:
    """A verdict on each."""
    found = []
    for one in every:
        mine, other = one.figure.of(ours), one.figure.of(theirs)
        ratios = one.ratios(ours, theirs)
        if not ratios:
            side = ours if mine is None else theirs
            why = side.why_not(one.figure.measure) if None in (mine, other) else "a figure is 0"
            found.append(Verdict(one, mine, other, 0, why=why))
            continue
        found.append(
            Verdict(one, mine, other, len(ratios), statistics.median(ratios), interval(ratios))
        )
    return found


def measure(
    ours: Bench, theirs: Bench, measures: Sequence[Measure], turns: int, lock: Path | None
) -> None:
    """All turns; a lock is held for a turn at a time."""
    benches = {True: ours, False: theirs}
    systems = list(dict.fromkeys(one.system for one in measures))
    for bench in benches.values():
        bench.prepare(systems)
    for turn, sides in enumerate(order(turns), start=1):
        print(f"turn {turn} of {turns}", flush=True)
        with nullcontext() if lock is None else lock.open("w") as held:
            if held is not None:
                fcntl.flock(held, fcntl.LOCK_EX)
            for one in measures:
                for side in sides:
                    benches[side].run(one, turn)


def render(verdicts: Sequence[Verdict], revision: str) -> str:
    """The table, then what was not measured and why."""
    head = ("goal", "figure", "this", revision, "turns", "ratio", "95 % interval", "verdict")
    rows = [head]
    for verdict in verdicts:
        one = verdict.compared
        rows.append(
            (
                one.goal,
                f"{one.what} ({one.figure.measure.system} {one.figure.measure.workload})",
                one.figure.text(verdict.mine),
                one.figure.text(verdict.other),
                str(verdict.turns),
                "-" if verdict.median is None else f"{verdict.median:.3f}",
                "-" if verdict.within is None else "{:.3f} to {:.3f}".format(*verdict.within),
                verdict.word,
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    told = [f"not measured ({v.compared.goal}): {v.why}" for v in verdicts if v.why]
    return "\n".join(
        [*lines, *dict.fromkeys(told), f"Ratios: more is better; {number(LEAST)} is allowed."]
    )


def record(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """For the JSON."""
    return [
        {
            "goal": verdict.compared.goal,
            "what": verdict.compared.what,
            "measure": verdict.compared.figure.measure.key,
            "figure": verdict.compared.figure.name,
            "this": verdict.mine,
            "other": verdict.other,
            "turns": verdict.turns,
            "ratio": verdict.median,
            "interval": verdict.within,
            "verdict": verdict.word,
            "why": verdict.why,
        }
        for verdict in verdicts
    ]
