"""Decisions are referred to by their numbers, and the index has them all.

``python -m tests.docs.test_decisions`` writes the index.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.part import ROOT

FOLDER = ROOT / "docs" / "adr"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
INDEX = FOLDER / "README.md"
HOW = "run: python -m tests.docs.test_decisions"
_STATUS = re.compile(r"^Status: (accepted|superseded by ADR \d+), (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def table() -> str:
    """The table of the index: number, title, status and date of each record."""
    lines = ["| | Decision | Status | Date |", "|---|---|---|---|"]
    for page in PAGES:
        title = page.read_text().partition("\n")[0].partition(". ")[2]
        status, date = _said(page) or ("?", "?")
        lines.append(f"| {int(page.name[:4])} | [{title}]({page.name}) | {status} | {date} |")
    return "\n".join([*lines, ""])


def _said(page: Path) -> tuple[str, str] | None:
    """Status and date, which stand below the title."""
    found = _STATUS.search("\n".join(page.read_text().splitlines()[:5]))
    return (found[1], found[2]) if found else None


def _filled(text: str) -> str:
    """The index with the table as it should be."""
    return re.sub(r"^\| \| Decision .*?(?=^[^|]|\Z)", lambda _: table(), text, flags=re.M | re.S)


def test_each_number_is_one_decision() -> None:
    times = Counter(page.name[:4] for page in PAGES)
    assert len(times) > 20
    assert [number for number, count in times.items() if count > 1] == []


def test_the_heading_has_the_number_of_the_file() -> None:
    headings = {page.name: page.read_text().partition("\n")[0] for page in PAGES}
    wrong = {name for name, said in headings.items() if not said.startswith(f"# {int(name[:4])}. ")}
    assert wrong == set()


def test_each_decision_has_a_status_and_a_date() -> None:
    assert [page.name for page in PAGES if _said(page) is None] == []


def test_the_index_has_every_decision() -> None:
    text = INDEX.read_text()
    assert table() in text, HOW
    assert _filled(text) == text, HOW


if __name__ == "__main__":
    INDEX.write_text(_filled(INDEX.read_text()))
