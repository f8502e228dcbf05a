"""Decisions are referred to by their numbers."""

from __future__ import annotations

from collections import Counter

from tests.part import ROOT

PAGES = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


def test_each_number_is_one_decision() -> None:
    times = Counter(page.name[:4] for page in PAGES)
    assert len(times) > 20
    assert [number for number, count in times.items() if count > 1] == []


def test_the_heading_has_the_number_of_the_file() -> None:
    headings = {page.name: page.read_text().partition("\n")[0] for page in PAGES}
    wrong = {name for name, said in headings.items() if not said.startswith(f"# {int(name[:4])}. ")}
    assert wrong == set()
