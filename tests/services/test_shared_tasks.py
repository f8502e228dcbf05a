"""Of the workers on a database one prunes, and another when that one has died."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.hooks import MaintenanceResult, MaintenanceTask
from django_ojs.models import Job, MaintenanceRun, Queue
from django_ojs.services import health, maintenance, prune, rollup, shared_tasks
from django_ojs.store import unique_keys
from tests.management.test_commands import run
from tests.services.support import ack, make, take

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


@dataclass
class Process:
    """What a worker process knows, and what it is called."""

    name: str
    fronts: dict[str, prune.Front] = field(default_factory=dict)

    def turn(self, task: MaintenanceTask) -> MaintenanceResult:
        """One slice of a task in this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared_tasks, "this_process", lambda: self.name)
            patch.setattr(maintenance, "_fronts", self.fronts)
            patch.setattr(rollup, "_next", {})
            return task.run("default")

    def prune(self) -> int:
        """Slices until there is no more for this process to do; how many jobs were deleted."""
        before = Job.objects.count()
        for _ in range(100):
            if not self.turn(maintenance.PRUNE).more:
                return before - Job.objects.count()
        raise AssertionError("no end")


@pytest.fixture
def one() -> Process:
    return Process("one")


@pytest.fixture
def other() -> Process:
    return Process("other")


@pytest.fixture
def old(frozen: FrozenClock) -> Callable[..., None]:
    """Makes jobs that are past their retention."""

    def made(count: int = 1) -> None:
        make(count)
        ack(*take(count))
        Job.objects.update(finished_at=frozen.time - timedelta(days=60))

    return made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is a batch, and that is a row."""
    monkeypatch.setattr(prune, "BATCH", 1)
    monkeypatch.setattr(maintenance, "SLICE", 0.0)


def record() -> MaintenanceRun:
    return MaintenanceRun.objects.get(name="prune")


@pytest.mark.slow
def test_one_prunes(
    one: Process, other: Process, old: Callable[..., None], frozen: FrozenClock
) -> None:
    for _ in range(3):
        old()
        assert one.prune() == 1
        assert record().ran_by == "one"
        old()
        for seconds in (0, 30, 14):
            frozen.advance(seconds)
            with CaptureQueriesContext(connection) as made:
                assert not other.turn(maintenance.PRUNE).more
            assert len(made) == 1, "all that it costs"
        frozen.advance(16)
        assert record().last_run_at == frozen.time - timedelta(seconds=60)
        assert one.prune() == 1, "it has its turn after a minute, and nobody else has"


def test_another_takes_over_within_two_minutes(
    one: Process, other: Process, old: Callable[..., None], frozen: FrozenClock
) -> None:
    assert one.prune() == 0
    old()
    frozen.advance(44.9)
    assert other.prune() == 0
    frozen.advance(maintenance.PRUNE.every)
    assert frozen.time - record().last_run_at < timedelta(minutes=2)
    assert not [one for one in health.problems(using="default") if one.values.get("task") == "prune"]
    assert other.prune() == 1
    assert one.prune() == 0, "who was away, and comes back, leaves it to the other one"
    assert record().ran_by == "other"


def test_who_is_in_the_middle_goes_on(
    one: Process, other: Process, old: Callable[..., None], short: None
) -> None:
    old(5)
    turns = 0
    while one.turn(maintenance.PRUNE).more:
        assert other.prune() == 0
        turns += 1
    assert turns > 5
    assert not Job.objects.exists()


def test_what_is_left_by_one_that_died_is_done_by_another(
    one: Process, other: Process, old: Callable[..., None], short: None, frozen: FrozenClock
) -> None:
    old(5)
    while Job.objects.count() == 5:
        assert one.turn(maintenance.PRUNE).more
    frozen.advance(46)
    assert record().behind
    assert other.turn(maintenance.PRUNE).more
    assert record().behind, "it does not know better yet"
    assert not one.turn(maintenance.PRUNE).more, "it was suspended only, and has lost its place"
    assert other.prune() == 4
    assert not record().behind


def test_of_two_that_begin_together_one_goes_on(
    one: Process,
    other: Process,
    old: Callable[..., None],
    short: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old(5)
    first = unique_keys.unused_since
    with monkeypatch.context() as patch:

        def meanwhile(*args: Any, **kwargs: Any) -> Any:
            patch.undo()
            assert other.turn(maintenance.PRUNE).more
            assert record().ran_by == "other"
            return first(*args, **kwargs)

        patch.setattr(unique_keys, "unused_since", meanwhile)
        assert one.turn(maintenance.PRUNE).more
    assert record().ran_by == "one"
    assert other.prune() == 0
    assert one.prune() == 5


@pytest.mark.parametrize("seconds", [46, 3600, 10 * 365 * 86_400])
def test_a_record_from_the_future_stops_nobody(
    one: Process, other: Process, old: Callable[..., None], frozen: FrozenClock, seconds: float
) -> None:
    """The server's clock was set back."""
    assert one.prune() == 0
    frozen.advance(-seconds)
    old()
    assert other.prune() == 1
    assert (record().last_run_at, record().cadence_ms) == (frozen.time, 0)


def test_clocks_that_differ_by_less_than_that_are_no_reason(
    one: Process, other: Process, old: Callable[..., None], frozen: FrozenClock
) -> None:
    assert one.prune() == 0
    old()
    frozen.advance(-1)
    assert other.prune() == 0
    assert one.prune() == 1


def test_a_person_prunes_at_any_time(
    one: Process, old: Callable[..., None], frozen: FrozenClock
) -> None:
    assert one.prune() == 0
    old()
    assert prune.prune().counts["completed"] == 1
    old()
    assert "completed 1" in run("ojs", "prune")
    assert record().ran_by == "one", "who prunes again"
    old()
    frozen.advance(10)
    assert one.prune() == 1


def test_one_counts_and_samples(one: Process, other: Process, frozen: FrozenClock) -> None:
    make(2)
    assert one.turn(rollup.TASK).counts["samples"] > 0
    for seconds, process, samples in ((22, other, 0), (38, one, 2), (22, other, 0), (60, other, 2)):
        frozen.advance(seconds)
        assert process.turn(rollup.TASK).counts.get("samples", 0) == samples


@pytest.mark.parametrize("is_first", [True, False])
def test_of_those_whose_turns_come_together_one_counts(
    one: Process, other: Process, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """As those of workers do that were started together."""
    make(2)
    if not is_first:
        one.turn(rollup.TASK)
        frozen.advance(60)
    real = shared_tasks.last_run
    with monkeypatch.context() as patch:

        def meanwhile(name: str, *, using: str) -> MaintenanceRun | None:
            patch.undo()
            found = real(name, using=using)
            assert other.turn(rollup.TASK).counts["samples"] > 0
            return found

        patch.setattr(shared_tasks, "last_run", meanwhile)
        assert one.turn(rollup.TASK) == MaintenanceResult()


def test_one_gives_rows_to_queues(one: Process, other: Process, frozen: FrozenClock) -> None:
    make(queue="q")

    def found(process: Process) -> int:
        Queue.objects.all().delete()
        return process.turn(maintenance.DISCOVER).counts.get("queues", 0)

    assert found(one) == 1
    frozen.advance(22)
    assert found(other) == 0
    frozen.advance(8)
    assert found(one) == 1
    frozen.advance(23)
    assert found(other) == 1
    assert found(one) == 0
