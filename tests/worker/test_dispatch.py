"""Orders of frames that no process can be made to produce at will."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from django_ojs import clock
from django_ojs.domain.job import Actor
from django_ojs.models import AttemptLog
from django_ojs.services import leases, operate
from django_ojs.services.settle import Report
from django_ojs.worker.prefork.child import Child, Phase, Slot
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.pool import MALFORMED
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.supervisor.dispatcher import Dispatcher
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads.fetcher import Moment
from tests.services.support import make, take
from tests.support import not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


class Pool:
    """Executors that only take note of what they are sent."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.sent: list[Frame | str] = []
        self.killed: list[Child] = []

    def __iter__(self) -> Iterator[Child]:
        return iter(self.children)

    def slots(self) -> Iterator[Slot]:
        """Their slots."""
        return (slot for child in self.children for slot in child.slots)

    def send(self, child: Child, frame: Frame | str) -> None:
        """Keep it."""
        self.sent.append(frame)

    def wake(self, child: Child) -> None:
        """Nobody is there to hear it."""

    def kill(self, child: Child) -> None:
        """Keep it."""
        self.killed.append(child)


class Database:
    """Keeps outcomes and progress, and makes calls."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self.reported: list[Any] = []

    def settle(self, outcomes: Sequence[Any]) -> None:
        """Keep them."""
        self.outcomes.extend(outcomes)

    def progress(self, progress: Any) -> None:
        """Keep it."""
        self.reported.append(progress)

    def call(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Do it at once."""
        then(work(), None)


class SlowDatabase(Database):
    """Keeps calls until the test answers them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []

    def call(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Keep it."""
        self.calls.append(lambda: then(work(), None))


class FailingDatabase(Database):
    """Keeps what a call is answered with, until the test fails it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Callable[[Any, Exception | None], None]] = []

    def call(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Keep it."""
        self.answers.append(then)


def of(child: Child, database: Database | None = None) -> tuple[Dispatcher, Pool]:
    """A dispatcher with this executor alone, and its pool."""
    pool, database = Pool(), database or Database()
    pool.children.append(child)
    return Dispatcher(pool, database, Shutdown(), SharedTypes(0), Config("w1")), pool  # type: ignore[arg-type]


def taken(child: Child, count: int) -> Dispatcher:
    """A dispatcher with this executor alone, which has just taken so many jobs."""
    make(count)
    dispatcher, _ = of(child)
    dispatcher.take(take(count), Moment(clock.now("default"), clock.boottime()))
    return dispatcher


def ready_child(size: int = 1) -> Iterator[Child]:
    """An executor that is ready."""
    ours, theirs = socket.socketpair()
    made = Child(ours, theirs, -1, clock.boottime(), phase=Phase.READY, pid=1, size=size)
    yield made
    ours.close()
    theirs.close()


child = pytest.fixture(ready_child, name="child")
second_child = pytest.fixture(ready_child, name="second_child")


@pytest.fixture
def shared_child() -> Iterator[Child]:
    """One that coroutines share, ready."""
    yield from ready_child(2)


def test_a_job_that_begins_while_it_is_asked_back_keeps_its_clocks(child: Child) -> None:
    """The order crosses the ``begin`` on the channel; its timeouts must hold all the same."""
    make(2, timeout=60, grace_period=1)
    dispatcher, pool = of(child)
    dispatcher.take(take(2), Moment(clock.now("default"), clock.boottime()))
    first = child.slots[0].queued[0].lease
    dispatcher.on_frame(child, {"op": "begin", "lease": first})
    dispatcher.assign()
    assert len(child.slots[0].queued) == 1, "one frame waits behind the running job"
    second = child.slots[0].queued[0].lease
    dispatcher.tick(clock.boottime() + 0.2)
    assert {"op": "return", "lease": second} in pool.sent
    dispatcher.on_frame(child, {"op": "done", "lease": first, "ok": True, "result": None, "took": 0.2})
    dispatcher.on_frame(child, {"op": "begin", "lease": second})
    assert child.slots[0].running is not None
    moments = dispatcher.enforcer.moments()
    assert child.slots[0].running.deadlines.row in moments
    assert child.slots[0].running.deadlines.soft_at in moments


def test_the_end_of_a_job_says_that_the_next_one_in_line_begins(child: Child) -> None:
    make(3, timeout=60, grace_period=1)
    dispatcher, pool = of(child)
    dispatcher.take(take(3), Moment(clock.now("default"), clock.boottime()))
    first = child.slots[0].queued[0].lease
    dispatcher.on_frame(child, {"op": "begin", "lease": first})
    dispatcher.assign()
    done = {"op": "done", "lease": first, "ok": True, "result": None, "took": 0.2}
    second = child.slots[0].queued[0]
    dispatcher.on_frame(child, {**done, "next": second.lease})
    assert child.slots[0].running is second
    assert second.deadlines.soft_at in dispatcher.enforcer.moments()
    assert dispatcher.reported == {Report.ACK: 1}
    assert not pool.killed
    dispatcher.on_frame(child, {**done, "lease": second.lease, "next": first})
    assert pool.killed == [child], "no job of that lease waits in it"


def test_what_does_not_begin_in_time_is_given_back_and_half_as_many_are_claimed(child: Child) -> None:
    dispatcher = taken(child, 4)
    estimate, waiting = dispatcher.assignment.estimate, len(dispatcher.assignment.waiting)
    for _ in range(1000):
        estimate.add("test.other", 0.001, 0.001)
    before = estimate.prefetch(1, 1)
    dispatcher.tick(clock.boottime() + 0.1)
    assert (len(dispatcher.assignment.waiting), estimate.prefetch(1, 1)) == (waiting, before)
    dispatcher.tick(clock.boottime() + 0.2)
    assert waiting >= 2
    assert not dispatcher.assignment.waiting
    assert dispatcher.reported == {Report.RELEASE: waiting}
    assert estimate.prefetch(1, 1) == pytest.approx(before / 2, abs=1), "once, however many they were"


@pytest.mark.fault("F68")
def test_an_executor_that_is_slow_to_begin_gains_no_time(child: Child) -> None:
    """The attempt ends so long after the claim; what the handler may use of it is what is left."""
    make(timeout=60, grace_period=10)
    dispatcher, _ = of(child)
    late = 65.0
    claimed_at = clock.boottime() - late
    dispatcher.take(take(1), Moment(clock.now("default"), claimed_at))
    dispatcher.on_frame(child, {"op": "begin", "lease": child.slots[0].queued[0].lease})
    assert child.slots[0].running is not None
    assert child.slots[0].running.deadlines.ends == pytest.approx(claimed_at + 70, abs=1)
    assert child.slots[0].running.deadlines.soft_at == pytest.approx(claimed_at + 70, abs=1)
    assert child.slots[0].running.deadlines.ends in dispatcher.enforcer.moments()


def test_an_extension_before_the_beginning_counts(child: Child) -> None:
    """Somebody extends a job that its worker has claimed, and no executor has begun."""
    (job,) = make(timeout=60, grace_period=10)
    dispatcher, _ = of(child)
    dispatcher.take(take(1), Moment(clock.now("default"), clock.boottime()))
    running = child.slots[0].queued[0]
    operate.extend_timeout([job.id], 30_000, actor=Actor("operator"))
    dispatcher.enforcer.renewed([running.lease], leases.holds([running.held]))
    dispatcher.on_frame(child, {"op": "begin", "lease": running.lease})
    assert running.deadlines.ends == pytest.approx(clock.boottime() + 100, abs=1)
    assert running.deadlines.soft_at == pytest.approx(clock.boottime() + 90, abs=1)


def test_time_that_a_claimed_job_waits_for_a_busy_runner_counts(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors that starve beside claimed jobs start fewer: what is claimed beyond that goes back."""
    make(40)
    dispatcher, _ = of(child)
    began = now = clock.boottime()
    monkeypatch.setattr(clock, "boottime", lambda: now)
    child.phase = Phase.STARTING
    dispatcher.take(take(40), Moment(clock.now("default"), now))
    child.phase = Phase.READY
    while dispatcher.assignment.waiting or child.slots[0].queued:
        now += 0.02  # so long the runner does something else
        dispatcher.assign()
        while child.slots[0].queued:
            lease = child.slots[0].queued[0].lease
            dispatcher.on_frame(child, {"op": "begin", "lease": lease})
            now += 0.001
            done = {"op": "done", "lease": lease, "ok": True, "result": None, "took": 0.001}
            dispatcher.on_frame(child, done)
    took = (now - began) / 40
    assert dispatcher.assignment.estimate.prefetch(1, 1) <= 1.5 * 0.1 / took


def test_a_handler_has_its_grace_period_behind_the_total_timeout_and_no_more(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution deadline is later, and no longer counts: the attempt has ended."""
    make(timeout=60, grace_period=2, total_timeout=300)
    dispatcher, pool = of(child)
    now = clock.boottime()
    monkeypatch.setattr(clock, "boottime", lambda: now)
    dispatcher.take(take(1), Moment(clock.now("default"), now))
    dispatcher.on_frame(child, {"op": "begin", "lease": child.slots[0].queued[0].lease})
    assert child.slots[0].running is not None
    dispatcher.enforcer.request_stop(child, child.slots[0].running, "total_timeout")
    assert min(dispatcher.enforcer.moments()) == now + 2
    now += 1.9
    dispatcher.tick(now)
    assert not pool.killed
    now += 0.2
    dispatcher.tick(now)
    assert pool.killed == [child]
    assert child.slots[0].running.deadlines.kill_reason == "total_timeout"


def test_an_end_that_is_malformed_is_handled_as_a_crash(child: Child) -> None:
    """Nothing of it counts: the job fails with its executor, and its lease is kept no longer."""
    dispatcher = taken(child, 1)
    lease = child.slots[0].queued[0].lease
    dispatcher.on_frame(child, {"op": "begin", "lease": lease})
    done = {"op": "done", "lease": lease, "ok": True, "result": None, "took": 0.2}
    values: list[Frame] = [{"left": 5}, {"took": "x"}, {"took": -1}, {"result": 5}, {"result": {}}]
    for wrong in values:
        with pytest.raises(MALFORMED):
            dispatcher.on_frame(child, {**done, **wrong})
        assert dispatcher.reported == {}
    dispatcher.on_gone(child, 0)
    assert dispatcher.leases == {}
    assert dispatcher.reported == {Report.FAIL: 1}


def test_progress_that_is_malformed_does_not_reach_the_database(child: Child) -> None:
    dispatcher = taken(child, 1)
    lease = child.slots[0].queued[0].lease
    dispatcher.on_frame(child, {"op": "begin", "lease": lease})
    said = {"op": "progress", "lease": lease, "fraction": 0.5, "message": "half", "data": None}
    values: list[Frame] = [{"message": None}, {"message": 5}, {"data": 5}, {"data": {}}]
    for wrong in [*values, {"fraction": "x"}]:
        with pytest.raises(MALFORMED):
            dispatcher.on_frame(child, {**said, **wrong})
    kept: list[Any] = dispatcher._database.reported  # type: ignore[attr-defined]
    assert kept == []
    dispatcher.on_frame(child, said)
    assert [(each.fraction, each.message, each.data) for each in kept] == [(0.5, "half", None)]


def test_a_call_that_is_malformed_is_not_made(child: Child) -> None:
    """Its answer comes where no error would be handled as that of one executor."""
    make()
    database = FailingDatabase()
    dispatcher, pool = of(child, database)
    dispatcher.take(take(1), Moment(clock.now("default"), clock.boottime()))
    lease = child.slots[0].queued[0].lease
    dispatcher.on_frame(child, {"op": "begin", "lease": lease})
    call = {"op": "call", "lease": lease, "verb": "checkpoint", "state": "1"}
    for wrong in ({}, {"number": None}, {"number": "\ud800"}):
        with pytest.raises(MALFORMED):
            dispatcher.on_frame(child, {**call, **wrong})
    assert database.answers == []
    dispatcher.on_frame(child, {**call, "number": 7})
    database.answers[0](None, RuntimeError("refused: \ud800"))
    reply = pool.sent[-1]
    assert isinstance(reply, dict)
    assert (reply["number"], reply["message"]) == (7, "refused: \N{REPLACEMENT CHARACTER}")


def test_a_log_is_no_sign_of_life_and_may_come_late(child: Child) -> None:
    """Else a thread that logs would keep a handler alive that has stopped sending heartbeats."""
    dispatcher = taken(child, 1)
    lease = child.slots[0].queued[0].lease
    dispatcher.on_frame(child, {"op": "begin", "lease": lease})
    running = not_none(child.slots[0].running)
    running.seen_at = 1.0
    said = {"op": "log", "lease": lease, "lines": ["one"], "count": 3}
    dispatcher.on_frame(child, said)
    assert running.seen_at == 1.0
    assert (list(not_none(running.log).lines), not_none(running.log).count) == (["one"], 3)
    for wrong in ({"lines": [1]}, {"lines": None}, {"count": "x"}, {"lines": ["a", None]}):
        with pytest.raises(MALFORMED):
            dispatcher.on_frame(child, {**said, **wrong})
    dispatcher.on_frame(child, {"op": "done", "lease": lease, "ok": True, "result": None, "took": 0.2})
    dispatcher.on_frame(child, said)
    assert child.phase is Phase.READY, "it is not killed for it"
    dispatcher.logs.close()
    row = AttemptLog.objects.get()
    assert (row.text, row.lines, row.dropped) == ("one", 1, 2)


def test_what_a_thread_sends_after_its_job_costs_the_others_in_its_process_nothing(
    shared_child: Child,
) -> None:
    """The end of the job may overtake it."""
    dispatcher, pool = of(shared_child)
    late: list[Frame] = [
        {"op": "heartbeat", "lease": "gone"},
        {"op": "progress", "lease": "gone", "fraction": 0.5, "message": "", "data": None},
        {"op": "blocked", "lease": "gone", "seconds": 1.0},
    ]
    for frame in late:
        dispatcher.on_frame(shared_child, frame)
    assert not pool.killed
    dispatcher.on_frame(shared_child, {"op": "begin", "lease": "gone"})
    assert pool.killed == [shared_child]


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "out of patience"])
def test_a_row_check_stops_its_own_jobs_only(
    child: Child, second_child: Child, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """A second job is due while the first check is on its way, and was extended before its own."""
    make(2, timeout=60, grace_period=10)
    pool, database, now = Pool(), SlowDatabase(), clock.boottime()
    monkeypatch.setattr(clock, "boottime", lambda: now)
    pool.children += [child, second_child]
    dispatcher = Dispatcher(pool, database, Shutdown(), SharedTypes(0), Config("w1"))  # type: ignore[arg-type]
    dispatcher.take(take(2), Moment(clock.now("default"), now))
    first, second = (one.slots[0].queued[0] for one in pool)
    dispatcher.on_frame(child, {"op": "begin", "lease": first.lease})
    now += 0.15
    dispatcher.on_frame(second_child, {"op": "begin", "lease": second.lease})
    now += 59.9
    dispatcher.tick(now)
    operate.extend_timeout([second.job_id], 30_000, actor=Actor("operator"))
    now += 0.1
    dispatcher.tick(now)
    assert len(database.calls) == 2
    assert dispatcher.next_wait(now) == pytest.approx(0.1)
    if answered:
        database.calls[0]()
    else:
        now += 0.11
        dispatcher.tick(now)
    assert first.deadlines.stop_reason == "timeout"
    assert second.deadlines.stop_reason is None
    database.calls[1]()
    dispatcher.tick(now)
    assert second.deadlines.stop_reason is None
    assert second.deadlines.soft_at == pytest.approx(now + 30, abs=1)
    assert [frame["op"] for frame in pool.sent if isinstance(frame, dict)] == ["cancel"]
    assert not pool.killed
