"""The table, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.goals.checks import Figure, Goal, Row, verdict_of
from benchmarks.measuring import Figures, Measure

_OPENINGS = (("all day", "day", "day"), ("at its fastest, and at rest", "drain", "pickup"))
"""Of what the opening tells: its name, the workload with the rate, the one with the wait."""
_HEAD = ("goal", "figure", "", "beside", "ratio", "needs", "verdict")


def table(rows: Sequence[Row]) -> str:
    """Markdown that is readable as it is."""
    cells = [
        (
            row.goal,
            row.what,
            row.figure,
            row.beside,
            "" if row.ratio is None else f"{row.ratio:.2f}x",
            row.needs,
            row.verdict.partition(":")[0],
        )
        for row in rows
    ]
    widths = [max(len(line[place]) for line in (_HEAD, *cells)) for place in range(len(_HEAD))]
    lines = [_line(_HEAD, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    return "\n".join([*lines, *(_line(cell, widths) for cell in cells)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    told = (f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True))
    return "|" + "|".join(told) + "|"


def summary(judged: dict[str, list[Row]]) -> str:
    """Goals by verdict, on a line each."""
    groups: dict[str, list[str]] = {}
    for goal, rows in judged.items():
        groups.setdefault(verdict_of(rows) or "reported", []).append(goal)
    return "\n".join(f"{verdict}: {', '.join(goals)}" for verdict, goals in groups.items())


def reasons(rows: Sequence[Row]) -> str:
    """Why what was not measured was not, a line each."""
    told: dict[str, list[str]] = {}
    for row in rows:
        _, colon, why = row.verdict.partition(": ")
        if colon and row.goal not in told.setdefault(why, []):
            told[why].append(row.goal)
    return "\n".join(f"not measured ({', '.join(goals)}): {why}" for why, goals in told.items())


def opening(goals: Sequence[Goal], figures: Figures) -> str:
    """What a user asks first: jobs a second, how long one waits, what a million cost; of the long load
    where it was measured, otherwise of a drain and of a worker that rests.
    """
    ours: dict[str, Measure] = {}
    for measure in (measure for goal in goals for measure in goal.measures):
        if measure.system in ("ojs", "ojs.lasting") and measure.profile == "default":
            ours.setdefault(measure.workload, measure)
    for what, rate, wait in _OPENINGS:
        if rate not in ours or wait not in ours:
            continue
        found = (
            Figure(ours[rate], "rate", "jobs/s"),
            Figure(ours[wait], "p99", "ms"),
            Figure(ours[rate], "cpu_per_million", "processor seconds per million jobs"),
        )
        jobs, p99, spent = (figure.text(figure.of(figures)) for figure in found)
        if found[0].of(figures) is not None:
            return f"This machine, {what}: {jobs}, pickup p99 {p99}, {spent}."
    return ""


def minutes(goals: Sequence[Goal], figures: Figures) -> str:
    """How long the measurements of each goal took; what several use counts for the first. And how long
    all of them waited.
    """
    seen: set[str] = set()
    took: dict[str, float] = {}
    for goal in goals:
        keys = {measure.key for measure in goal.measures} - seen
        seen |= keys
        spent = sum(sample.get("took_s", 0) for key in keys for sample in figures.samples.get(key, []))
        took[goal.id] = spent / 60
    every = [sample for samples in figures.samples.values() for sample in samples]
    took["waiting for a quiet machine"] = sum(sample.get("waited_s", 0) for sample in every) / 60
    told = [f"{what} {spent:.1f}" for what, spent in took.items() if spent >= 0.05]
    return f"minutes: {', '.join(told)}" if told else ""


def render(
    goals: Sequence[Goal], figures: Figures, facts: dict[str, str], problems: Sequence[str]
) -> str:
    """Everything that is printed at the end."""
    judged = {goal.id: goal.judge(figures) for goal in goals}
    rows = [row for found in judged.values() for row in found]
    parts = [
        *filter(None, [opening(goals, figures)]),
        "; ".join(f"{name} {value}" for name, value in facts.items()),
        table(rows),
        summary(judged),
    ]
    if whys := reasons(rows):
        parts.append(whys)
    if busy := figures.quiet():
        parts.append(busy)
    if took := minutes(goals, figures):
        parts.append(took)
    if problems:
        parts.append("\n".join(["PROBLEMS", *(f"  {problem}" for problem in problems)]))
    return "\n\n".join(parts)


def save(
    path: Path,
    goals: Sequence[Goal],
    figures: Figures,
    facts: dict[str, str],
    options: dict[str, Any],
    problems: Sequence[str],
) -> None:
    """The same, with every sample."""
    document = {
        "opening": opening(goals, figures),
        "machine": facts,
        "options": options,
        "goals": {goal.id: goal.title for goal in goals},
        "rows": [asdict(row) for goal in goals for row in goal.judge(figures)],
        "problems": list(problems),
        "busy": figures.quiet(),
        "missing": figures.missing,
        "samples": figures.samples,
    }
    # In one step: it is written again and again, and somebody may stop us.
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(document, indent=1) + "\n")
    new.replace(path)


def read(path: Path) -> dict[str, Any]:
    """A document that :func:`save` wrote. Raises ``ValueError`` for anything else."""
    document = json.loads(path.read_text())
    if not isinstance(document, dict) or not {"machine", "samples"} <= document.keys():
        raise ValueError(f"{path} is no document of this benchmark")
    return document
