"""The words of the field: names that were given up do not come back
(``docs/explanation/architecture.md``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "django_ojs"
GIVEN_UP = {
    "desk": "database thread",
    "intake": "fetcher",
    "inbox": "main loop",
    "nursery": "fork server",
    "keeper": "monitor",
    "doorbell": "wake-up signal",
    "bell": "wake-up signal, notifier",
    "chore": "maintenance task",
    "bury": "dispose",
    "farewell": "deregister",
    "stumbled": "record_start_failure",
    "lookout": "due probe",
    "outlook": "next due",
    "tally": "counters",
    "tallies": "histogram",
    "rival": "earlier attempt",
}
"""Words, in any name or docstring, and what is said instead."""
CLASSES = {
    "Held": "Lease",
    "Kept": "RenewedLease",
    "Fact": "JobEvent",
    "Evidence": "LeaseClaim",
    "Terms": "JobDefaults",
    "Running": "LeasedJob",
    "Beats": "HeartbeatThread",
    "Pulse": "LivenessThread",
    "Silence": "StallDeadline, PartitionGuard",
    "Ending": "DrainController",
    "Coverage": "SourceSelector",
    "Estimate": "PrefetchPolicy",
    "Loop": "ReaperLoop",
    "Reaped": "ReapResult",
    "Watcher": "PollSchedule",
    "Listener": "Notifier",
}
"""Names of classes that meant two things, or nothing to a newcomer."""
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def given_up(source: str) -> Iterator[str]:
    """Each given-up word in the names and docstrings of a module."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names = [node.name]
            if isinstance(node, ast.ClassDef) and node.name.lstrip("_") in CLASSES:
                yield node.name
        elif isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = re.findall(r"\w+", node.value)
        for name in names:
            for part in _PARTS.findall(name):
                word = part.lower()
                if word in GIVEN_UP or word.removesuffix("s") in GIVEN_UP:
                    yield name


def modules() -> list[Path]:
    """Every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def test_no_word_that_was_given_up_comes_back() -> None:
    found = {
        str(path.relative_to(PACKAGE)): sorted(words)
        for path in modules()
        if (words := set(given_up(path.read_text())))
    }
    assert found == {}, "say instead: " + "; ".join(
        f"{a}: {b}" for a, b in {**GIVEN_UP, **CLASSES}.items()
    )
    assert len(modules()) > 200


@pytest.mark.parametrize(
    "source",
    [
        "class Held: ...",
        "def ring_bell(): ...",
        "x.keepers",
        '"""Tells the desk."""',
        "def f(chore): ...",
    ],
)
def test_a_word_that_comes_back_is_found(source: str) -> None:
    assert list(given_up(source))
