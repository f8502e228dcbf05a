"""The table of the lab, and the same as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tests.lab.judge import Figures


@dataclass
class Result:
    """What came of a case on a database; ``skipped`` says why nothing was tried."""

    case: str
    database: str
    figures: Figures
    skipped: str = ""
    seconds: float = 0.0


HEAD = ("case", "database", "rounds", "stalls", "repeated", "lost", "late (s)", "report (s)", "verdict")


def verdict(result: Result) -> str:
    """In one word, or why not."""
    if result.skipped:
        return f"skipped: {result.skipped}"
    return "good" if result.figures.good else "FAILED"


def table(results: list[Result]) -> str:
    """A row for each case and database, then what was wrong."""
    rows = [HEAD, *(_cells(result) for result in results)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for result in results:
        lines += [f"{result.case} ({result.database}): {line}" for line in lines_of(result.figures)]
    failed = sum(not result.skipped and not result.figures.good for result in results)
    played = sum(not result.skipped for result in results)
    lines.append(f"{played} cases, {failed} failed, {len(results) - played} skipped")
    return "\n".join(lines)


def lines_of(figures: Figures) -> list[str]:
    """What was wrong, in words."""
    return [*figures.wrong, *figures.late, *figures.excused]


def _cells(result: Result) -> tuple[str, ...]:
    found = result.figures
    if result.skipped:
        return (result.case, result.database, *("-",) * 6, verdict(result))
    counts = (found.rounds, found.stalls, found.repeated, found.lost)
    times = (found.lateness, found.report)
    return (
        result.case,
        result.database,
        *map(str, counts),
        *("-" if value is None else f"{value:.2f}" for value in times),
        verdict(result),
    )


def record(results: list[Result]) -> list[dict[str, Any]]:
    """For a file."""
    return [asdict(result) for result in results]


def restored(rows: list[dict[str, Any]]) -> list[Result]:
    """What :func:`record` gave."""
    return [Result(**{**row, "figures": Figures(**row["figures"])}) for row in rows]
