"""The table, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.goals.checks import Goal, Row, verdict_of
from benchmarks.measuring import Figures

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


def render(
    goals: Sequence[Goal], figures: Figures, facts: dict[str, str], problems: Sequence[str]
) -> str:
    """Everything that is printed at the end."""
    judged = {goal.id: goal.judge(figures) for goal in goals}
    rows = [row for found in judged.values() for row in found]
    parts = [
        "; ".join(f"{name} {value}" for name, value in facts.items()),
        table(rows),
        summary(judged),
    ]
    if whys := reasons(rows):
        parts.append(whys)
    if busy := figures.quiet():
        parts.append(busy)
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
        "machine": facts,
        "options": options,
        "goals": {goal.id: goal.title for goal in goals},
        "rows": [asdict(row) for goal in goals for row in goal.judge(figures)],
        "problems": list(problems),
        "busy": figures.quiet(),
        "missing": figures.missing,
        "samples": figures.samples,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
