"""The page that compares the admin: each row has a picture, which a test takes, and a test."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from tests.browser import shots
from tests.part import ROOT

PAGE = ROOT / "docs" / "explanation" / "admin-compared.md"
_ROW = re.compile(
    r"^\| (?P<number>\d+) \| \*\*(?P<feature>[^|*]+)\*\* \| (?P<others>[^|]+) \| (?P<ours>[^|]+)"
    r" \| \[(?P<verdict>\w+)\]\((?P<picture>[^)]+)\) \| `(?P<test>[^`]+)` \|$"
)


class Row(NamedTuple):
    """A row of the comparison."""

    number: int
    feature: str
    others: str
    ours: str
    verdict: str
    picture: str
    test: str


@cache
def rows() -> list[Row]:
    """In the order of the page."""
    found = filter(None, map(_ROW.match, PAGE.read_text().splitlines()))
    return [Row(int(one["number"]), *one.groups()[1:]) for one in found]


def defined(test: str) -> bool:
    """Whether there is such a test."""
    path, _, name = test.partition("::")
    file = ROOT / path
    if not file.is_file() or not name.startswith("test_"):
        return False
    functions = [one for one in ast.parse(file.read_text()).body if isinstance(one, ast.FunctionDef)]
    return name in {one.name for one in functions}


def test_there_are_fifty_rows() -> None:
    assert sorted(row.number for row in rows()) == list(range(1, 51))
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| *\d", line)]
    assert len(lines) == 50, "a line that looks like a row is none"


def test_every_picture_is_there_and_is_taken_by_a_test() -> None:
    taken = {f"../images/{name}.png" for name in shots.names()}
    assert [row.picture for row in rows() if row.picture not in taken] == []
    assert [row.picture for row in rows() if not (PAGE.parent / row.picture).is_file()] == []
    compared = {picture for picture in taken if "/admin/" in picture}
    assert compared - {row.picture for row in rows()} == set(), "a picture that no row shows"


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.number}-{row.feature}")
def test_every_test_is_there(row: Row) -> None:
    assert defined(row.test), row.test


def test_the_verdicts_are_counted_right() -> None:
    found = Counter(row.verdict for row in rows())
    assert found.keys() <= {"ahead", "even", "behind"}
    said = re.search(r"ahead in (\d+), even in (\d+) and behind in (\d+)", PAGE.read_text())
    assert said is not None
    assert tuple(map(int, said.groups())) == (found["ahead"], found["even"], found["behind"])


def test_where_it_is_behind_is_said_what_is_left() -> None:
    left = PAGE.read_text().partition("## What is left")[2]
    for row in rows():
        if row.verdict == "behind":
            assert f"({row.number})" in left, row


def test_what_is_not_there_would_be_noticed() -> None:
    assert not defined("tests/docs/test_admin_compared.py::test_of_the_attic")
    assert not defined("tests/attic.py::test_there_are_fifty_rows")
    assert not defined("tests/docs/test_admin_compared.py::rows")
    assert defined("tests/docs/test_admin_compared.py::test_there_are_fifty_rows")
