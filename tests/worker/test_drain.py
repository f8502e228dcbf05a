"""A drain ends only when no work is left and nothing is held."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from django_ojs.services.claim import sources
from django_ojs.worker.supervisor.drain import DrainController
from django_ojs.worker.supervisor.shutdown import Shutdown

Then = Callable[[Any, Exception | None], None]


class Database:
    """Keeps the question, to be answered by the test."""

    unwritten = 0

    def __init__(self) -> None:
        self.asked: list[Then] = []

    def call(self, work: Callable[[], Any], then: Then) -> None:
        """Keep it."""
        self.asked.append(then)

    def want(self, jobs: int, immediate: int) -> None:
        """Nothing is claimed here."""

    def wake(self) -> None:
        """Nothing is looked for here."""


def a_drain() -> tuple[DrainController, Any, Any, Any]:
    """One that is asked to end, with the threads that it asks and its dispatcher."""
    claimer: Any = Database()
    database: Any = Database()
    dispatcher: Any = SimpleNamespace(leases={})
    where = sources(["default"], ["test.job"])
    drain = DrainController(
        claimer, database, dispatcher, Shutdown(), where, promotes=True, using="default"
    )
    return drain, claimer, database, dispatcher


@pytest.mark.parametrize(
    ("left", "error", "held", "drained"),
    [
        (False, None, False, True),
        (True, None, False, False),
        (None, OSError(), False, False),
        (False, None, True, False),
    ],
    ids=["nothing", "work is left", "no answer", "a claim arrived meanwhile"],
)
def test_a_drain_is_over_when_nothing_is_left_or_held(
    left: bool | None, error: Exception | None, held: bool, drained: bool
) -> None:
    drain, claimer, database, dispatcher = a_drain()
    drain.queue_was_empty(left=False)
    assert not drain.drained()
    assert drain.near
    if held:
        # Claimed before the question, delivered while it was on its way.
        dispatcher.leases["lease"] = object()
    (before,) = database.asked
    assert claimer.asked == [], "calls that free places for jobs come first"
    before(None, None)
    (then,) = claimer.asked
    then(left, error)
    assert drain.drained() is drained
    assert drain.near is drained


def test_a_look_during_which_work_went_on_decides_nothing() -> None:
    """A job that has ended meanwhile may have enqueued another after the look."""
    drain, claimer, database, _ = a_drain()
    drain.queue_was_empty(left=False)
    assert not drain.drained()
    database.asked.pop()(None, None)
    drain.work_goes_on()
    drain.queue_was_empty(left=False)
    assert not drain.drained()
    assert database.asked == [], "there is one look at a time"
    claimer.asked.pop()(False, None)
    assert not drain.drained()
    drain.queue_was_empty(left=False)
    assert not drain.drained()
    database.asked.pop()(None, None)
    claimer.asked.pop()(False, None)
    assert drain.drained(), "the next look sees what it enqueued"
