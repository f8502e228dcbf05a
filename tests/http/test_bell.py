"""The bell of long polls: it remembers a bounded number of queues, and no ring is lost for that."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from django_ojs.http import waiting
from django_ojs.http.waiting import WorkNotifier


@pytest.fixture
def notifier(monkeypatch: pytest.MonkeyPatch) -> WorkNotifier:
    """One that remembers three queues."""
    monkeypatch.setattr(waiting, "_MOST_QUEUES", 3)
    return WorkNotifier("default")


def ring(notifier: WorkNotifier, *queues: str) -> None:
    for queue in queues:
        notifier._on_notification(f"q:{queue}/test.job")


def test_any_number_of_names_is_a_bounded_memory(notifier: WorkNotifier) -> None:
    """Each name of a queue stayed for ever in every web process that listens."""
    ring(notifier, *(f"q{number}" for number in range(100)))
    assert len(notifier._notified) == 3


def test_a_ring_that_is_forgotten_counts_for_whoever_has_waited_since_before(
    notifier: WorkNotifier,
) -> None:
    ring(notifier, "old")
    since = notifier.count()
    ring(notifier, "mine", "a", "b", "c")
    assert notifier.notified(["mine"], since)


def test_nobody_is_woken_by_what_was_forgotten_before(notifier: WorkNotifier) -> None:
    ring(notifier, "a", "b", "c", "d", "e")
    since = notifier.count()
    assert not notifier.notified(["mine"], since)
    ring(notifier, "other")
    assert not notifier.notified(["mine"], since)
    ring(notifier, "mine")
    assert notifier.notified(["mine"], since)


def test_a_ring_during_a_look_ends_the_wait_at_once(
    notifier: WorkNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is committed between the statement and the wait is found without a pause."""
    monkeypatch.setattr(notifier, "listens", lambda: True)
    monkeypatch.setitem(waiting._notifiers, "default", notifier)
    slept: list[bool] = []
    wait = notifier.wait

    def waiting_for(queues: Collection[str], since: int, seconds: float) -> int:
        slept.append(not notifier.notified(queues, since))
        return wait(queues, since, 0)

    monkeypatch.setattr(notifier, "wait", waiting_for)
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks in (2, 3):
            ring(notifier, "mine")
        return looks > 3

    assert waiting.until(look, ["mine"], 5000, gone=lambda: False, using="default")
    assert slept == [False, False]
