"""The words of the field: names that were given up do not come back
(``docs/explanation/architecture.md``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
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
    "stumble": "start failure",
    "stumbled": "record_start_failure",
    "pulse": "liveness",
    "nonsense": "malformed",
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
    "Orders": "SignalQueue",
}
"""Names of classes that meant two things, or nothing to a newcomer."""
PLAIN = {
    "told": "asked, notified",
    "tell": "ask, notify",
    "tells": "asks, notifies",
    "say": "return, report",
    "says": "returns, reports",
    "said": "returned, reported",
    "whoever": "any",
    "nobody": "no",
    "somebody": "another",
    "anew": "again",
    "rings": "notifies",
}
"""Words in the worker and in what handlers import, and what is said instead."""
TWICE = {
    "Command": "Django asks for it",
    "DeadLetter": "the exception, and the admin's proxy model: its URL and permissions have the name",
}
"""Names of classes that two modules may have."""
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def given_up(source: str, words: Mapping[str, str] = GIVEN_UP) -> Iterator[str]:
    """Each given-up word in the names, docstrings and messages of a module."""
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
                if word in words or word.removesuffix("s") in words:
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


def test_the_worker_reports_and_notifies() -> None:
    found = {
        str(path.relative_to(PACKAGE)): sorted(words)
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] in ("worker", "handlers")
        and (words := set(given_up(path.read_text(), PLAIN)))
    }
    assert found == {}, "write instead: " + "; ".join(f"{a}: {b}" for a, b in PLAIN.items())


def test_a_class_has_its_name_to_itself() -> None:
    found: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name for name, places in found.items() if len(places) > 1} == set(TWICE)


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
