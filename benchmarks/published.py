"""``python -m benchmarks.published FILE``: the figures of ``docs/performance.md``.

They come from what ``make bench JSON=FILE`` has written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.goals import all_goals
from benchmarks.goals.checks import Row
from benchmarks.goals.scale import Scale
from benchmarks.measuring import ROOT, Figures

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
_NEEDS = (("<= ", "at most "), (">= ", "at least "))


def main(given: Sequence[str] | None = None) -> int:
    """Put them into the page; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("file", type=Path, nargs="+", help="what --json has written; the last counts")
    try:
        document = together([report.read(file) for file in parser.parse_args(given).file])
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    PAGE.write_text(replaced(PAGE.read_text(), block(document)))
    return 0


def together(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first of them, with the samples of all: what a later run has measured again replaces them."""
    samples = {key: found for document in documents for key, found in document["samples"].items()}
    return {**documents[0], "samples": samples}


def replaced(page: str, figures: str) -> str:
    """The page with these figures. Raises ``ValueError`` if it has no place for them."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"there is no place between {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{figures}\n{END}{tail}"


def block(document: Mapping[str, Any]) -> str:
    """What a user asks first, a row for each figure that was measured, judged by the goals of this
    tree, and where that was.
    """
    figures = Figures(samples=document["samples"])
    scale = Scale.full() if document["options"].get("full") else Scale()
    goals = all_goals(scale)
    found = [row for goal in goals for row in goal.judge(figures)]
    rows = [row for row in found if not row.verdict.startswith("not measured")]
    lines = ["| | What | Ours | Beside | Ratio | Goal | |", "|---|---|---|---|---|---|---|"]
    lines += [_line(row) for row in rows]
    options, machine = document["options"], document["machine"]
    where = "; ".join(f"{name} {value}" for name, value in machine.items())
    form = "full form" if options.get("full") else "short form"
    parts = [
        *filter(None, [report.opening(goals, figures)]),
        "\n".join(lines),
        f"`make bench`, {form}, medians of {_rounds(document)}. {where}.",
    ]
    return "\n\n".join(parts)


def _rounds(document: Mapping[str, Any]) -> str:
    counts = sorted({len(found) for found in document["samples"].values()})
    most = counts[-1]
    return f"{most} round{'s' * (most > 1)}" if len(counts) == 1 else f"{counts[0]} to {most} rounds"


def _line(row: Row) -> str:
    needs = row.needs
    for short, words in _NEEDS:
        needs = needs.replace(short, words)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    cells = (row.goal, row.what, row.figure, row.beside, ratio, needs, row.verdict)
    return "| " + " | ".join(re.sub(r"\s*\|\s*", " / ", str(cell)) for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
