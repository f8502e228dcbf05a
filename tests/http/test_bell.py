"""The bell of long polls: it remembers a bounded number of queues, and no ring is lost for that."""

from __future__ import annotations

import pytest

from django_ojs.http import waiting
from django_ojs.http.waiting import WorkNotifier


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> WorkNotifier:
    """One that remembers three queues."""
    monkeypatch.setattr(waiting, "_MOST_QUEUES", 3)
    return WorkNotifier("default")


def ring(bell: WorkNotifier, *queues: str) -> None:
    for queue in queues:
        bell._ring(f"q:{queue}/test.job")


def test_any_number_of_names_is_a_bounded_memory(bell: WorkNotifier) -> None:
    """Each name of a queue stayed for ever in every web process that listens."""
    ring(bell, *(f"q{number}" for number in range(100)))
    assert len(bell._rung) == 3


def test_a_ring_that_is_forgotten_counts_for_whoever_has_waited_since_before(
    bell: WorkNotifier,
) -> None:
    ring(bell, "old")
    since = bell.count()
    ring(bell, "mine", "a", "b", "c")
    assert bell.rang(["mine"], since)


def test_nobody_is_woken_by_what_was_forgotten_before(bell: WorkNotifier) -> None:
    ring(bell, "a", "b", "c", "d", "e")
    since = bell.count()
    assert not bell.rang(["mine"], since)
    ring(bell, "other")
    assert not bell.rang(["mine"], since)
    ring(bell, "mine")
    assert bell.rang(["mine"], since)
