"""When a worker stops what must not overlap, and who does it if the worker cannot."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ojs import clock, hooks
from django_ojs.boottime import boottime
from django_ojs.conf import job_defaults
from django_ojs.domain.errors import InvalidRequest
from django_ojs.models import Event
from django_ojs.services import leases
from django_ojs.services.job_defaults import stops_on_partition
from django_ojs.services.settle import Report, settle
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.child import Child, Phase
from django_ojs.worker.prefork.frames import pack
from django_ojs.worker.prefork.journal import Journal
from django_ojs.worker.prefork.kill_timer import KillTimer
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.prefork.zygote import SpawnServer
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.supervisor.dispatcher import Dispatcher
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads import fetcher
from django_ojs.worker.threads.fetcher import Moment
from tests.process.tools import attempts
from tests.services.support import make, take
from tests.support import not_none
from tests.worker import test_dispatch

TYPE = "test.exclusive"
child = test_dispatch.child
on_linux = pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux only")


class Limiting(test_dispatch.Pool):
    """Takes note of the limits too."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self.children.append(child)

    def limit(self, child: Child, moments: tuple[float, float] | None, *, wait: bool = False) -> None:
        """Keep it, in its place among the frames."""
        self.sent.append({"limit": moments, "wait": wait})


class Worker:
    """A worker with one executor, at a time that the test moves."""

    def __init__(self, child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.began = boottime()
        self.child, self.pool, self.database = child, Limiting(child), test_dispatch.Database()
        pool: Any = self.pool
        database: Any = self.database
        self.shutdown = Shutdown()
        self.dispatcher = Dispatcher(pool, database, self.shutdown, SharedTypes(0), Config("w1"))
        monkeypatch.setattr("django_ojs.worker.supervisor.deadlines.clock.boottime", lambda: self.now)

    def claim(self, count: int = 1, ago: float = 0.0, **limits: Any) -> None:
        """Take jobs that were claimed so many seconds ago."""
        make(count, TYPE, **{"heartbeat_timeout": 8, "grace_period": 60, **limits})
        at = clock.now("default")
        jobs = [job._replace(started_at=at) for job in take(count, types=[TYPE])]
        self.dispatcher.take(jobs, Moment(at, self.now - ago))

    def begin(self) -> LeasedJob:
        """Its executor begins the job."""
        self.dispatcher.on_frame(
            self.child, {"op": "begin", "lease": self.child.slots[0].queued[0].lease}
        )
        return not_none(self.child.slots[0].running)

    def tick(self, after: float) -> None:
        """So many seconds after the start of the test."""
        self.now = self.began + after
        self.dispatcher.tick(self.now)

    def told(self) -> list[str]:
        """The reasons of the soft stops that were sent."""
        return [
            frame["reason"]
            for frame in self.pool.sent
            if isinstance(frame, dict) and frame.get("op") == "cancel"
        ]

    def limits(self) -> list[tuple[float, float] | None]:
        """The limits that the monitor was sent, in seconds after the start of the test."""
        found = [f["limit"] for f in self.pool.sent if isinstance(f, dict) and "limit" in f]
        return [one and (one[0] - self.began, one[1] - self.began) for one in found]

    def outcomes(self) -> list[Any]:
        """What it reports."""
        self.dispatcher.hand_over()
        return [pending.outcome for pending in self.database.outcomes]


@pytest.fixture
def worker(
    child: Child,
    monkeypatch: pytest.MonkeyPatch,
) -> Worker:
    """A worker, and a type whose jobs must not overlap."""
    monkeypatch.setitem(hooks._job_types, TYPE, job_defaults({"on_partition": "stop"}, TYPE))
    return Worker(child, monkeypatch)


@pytest.mark.parametrize(
    ("timeout", "soft", "kill", "watched"), [(8, 4, 7, (7.25, 7.5)), (2, 1, 1.5, (1.625, 1.75))]
)
@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_a_handler_is_asked_to_stop_and_killed_when_no_heartbeat_arrives(
    worker: Worker, timeout: int, soft: float, kill: float, watched: tuple[float, float]
) -> None:
    worker.claim(heartbeat_timeout=timeout)
    worker.begin()
    assert worker.limits() == [pytest.approx(watched)]
    assert min(worker.dispatcher.enforcer.moments()) == pytest.approx(worker.began + soft)
    worker.tick(soft - 0.1)
    assert not worker.told()
    worker.tick(soft + 0.01)
    assert worker.told() == ["lost"]
    assert min(worker.dispatcher.enforcer.moments()) == pytest.approx(worker.began + kill)
    worker.tick(kill - 0.1)
    assert not worker.pool.killed
    worker.tick(kill + 0.01)
    assert set(worker.pool.killed) == {worker.child}


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_a_heartbeat_that_arrived_counts_from_when_it_was_sent(worker: Worker) -> None:
    worker.claim()
    running = worker.begin()
    enforcer, kept = worker.dispatcher.enforcer, leases.holds([running.held])
    worker.now += 6
    enforcer.heard([running.lease], kept, worker.began + 3)
    enforcer.heard([running.lease], kept, worker.began + 2)
    enforcer.renewed([running.lease], kept)
    assert worker.limits()[1:] == [pytest.approx((10.25, 10.5))] * 2
    worker.tick(6.9)
    assert not worker.told()
    worker.tick(7.1)
    assert worker.told() == ["lost"]


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_others_go_on(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hooks._job_types, TYPE, job_defaults({}, TYPE))
    worker.claim()
    worker.begin()
    worker.tick(100)
    assert not worker.told()
    assert not worker.pool.killed
    assert worker.limits() == []


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
@pytest.mark.parametrize("by_monitor", [False, True])
def test_what_nobody_has_ended_is_reported_as_stalled(worker: Worker, by_monitor: bool) -> None:
    worker.claim()
    running = worker.begin()
    if by_monitor:
        worker.now = worker.began + 7.3  # the supervisor itself was suspended until now
    else:
        worker.tick(7.05)
    worker.dispatcher.on_gone(worker.child, None if by_monitor else signal.SIGKILL)
    (outcome,) = worker.outcomes()
    assert outcome.report is Report.FAIL
    settle([outcome])
    (attempt,) = attempts(running.job)
    assert attempt.outcome == "stalled"
    error = not_none(attempt.error)
    assert (error["type"], error["timeout_kind"]) == ("stalled", "stalled")
    assert error["limit_ms"] == 8000
    assert 7000 <= error["elapsed_ms"] < 8000
    assert Event.objects.filter(job_id=running.job_id, kind="job.stalled").count() == 1


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
@pytest.mark.parametrize("ok", [False, True])
def test_a_handler_that_ends_in_its_grace_period(worker: Worker, ok: bool) -> None:
    """A result stands, as after other signals; what it raises is a stall."""
    worker.claim()
    running = worker.begin()
    worker.tick(4.1)
    ending = (
        {"result": None}
        if ok
        else {"failure": {"stopped": "lost", "message": "m", "directive": "DISCARD"}}
    )
    worker.dispatcher.on_frame(
        worker.child, {"op": "done", "lease": running.lease, "ok": ok, "took": 4.1, **ending}
    )
    assert worker.limits()[-1] is None
    (outcome,) = worker.outcomes()
    settle([outcome])
    (attempt,) = attempts(running.job)
    assert attempt.outcome == ("completed" if ok else "stalled")
    if not ok:
        assert not_none(attempt.error)["details"] == {"raised": "m"}


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_what_the_server_has_ended_is_not_reported(worker: Worker) -> None:
    worker.claim()
    running = worker.begin()
    worker.tick(7.05)
    worker.dispatcher.enforcer.renewed([running.lease], [])
    worker.dispatcher.on_gone(worker.child, signal.SIGKILL)
    assert worker.outcomes() == []


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_such_a_job_is_alone_in_its_process(worker: Worker) -> None:
    """What waited there with it would die with it; and the limit is set before it is sent."""
    worker.claim(3)
    worker.begin()
    worker.dispatcher.assign()
    assert len(worker.child.assigned) == 1
    limit, run = worker.pool.sent
    assert isinstance(limit, dict) and limit["wait"]
    assert isinstance(run, str) and '"op":"run"' in run
    assert worker.dispatcher.last_done == 0


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_what_was_claimed_before_a_suspension_does_not_begin(worker: Worker) -> None:
    worker.claim(ago=4.5)
    assert not worker.child.assigned
    assert [outcome.report for outcome in worker.outcomes()] == [Report.RELEASE]


def test_the_job_type_goes_over_the_queue_and_the_queue_over_the_defaults(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not stops_on_partition(TYPE, "default")
    settings.OJS = {
        "DEFAULTS": {"on_partition": "stop"},
        "QUEUES": {"mail": {"on_partition": "continue"}},
    }
    assert stops_on_partition(TYPE, "default")
    assert not stops_on_partition(TYPE, "mail")
    monkeypatch.setitem(hooks._job_types, TYPE, job_defaults({"on_partition": "stop"}, TYPE))
    assert stops_on_partition(TYPE, "mail")
    with pytest.raises(InvalidRequest, match="on_partition: must be one of continue, stop"):
        job_defaults({"on_partition": "halt"}, TYPE)


class Started(SpawnServer):
    """Starts nothing, and keeps the other ends."""

    def spawn(self, control: socket.socket, channel: socket.socket, liveness: int) -> None:
        """Keep copies of them."""
        self.control, self.channel = control.dup(), channel.dup()


@pytest.fixture
def started() -> Iterator[tuple[Pool, Child, Started, Callable[[], None]]]:
    """A pool with an executor whose part the test plays, and what has the pool read."""
    server = Started()
    with selectors.DefaultSelector() as selector:
        pool = Pool(selector, server, on_frame=lambda *_: None, on_gone=lambda *_: None)
        child = pool.spawn()
        Journal.received(server.channel)
        child.phase = Phase.READY

        def read() -> None:
            for key, mask in selector.select(5):
                key.data[0](key.data[1], mask)

        yield pool, child, server, read
        for end in (child.channel, child.control, server.channel, server.control):
            end.close()
        os.close(child.liveness)


def test_an_executor_gets_the_job_when_its_limit_is_set(
    started: tuple[Pool, Child, Started, Callable[[], None]],
) -> None:
    pool, child, server, read = started
    server.channel.setblocking(False)
    pool.limit(child, (5.0, 6.0), wait=True)
    pool.send(child, messages.READY)
    for earlier in (None, 4.0):
        server.control.sendall(pack(messages.limited(earlier)))
        read()
        pool.flush()
        with pytest.raises(BlockingIOError):
            server.channel.recv(100)
    server.control.sendall(pack(messages.limited(5.0)))
    read()
    pool.flush()
    assert server.channel.recv(100) == pack(messages.READY)


@on_linux
def test_the_system_kills_even_a_stopped_process() -> None:
    def play() -> None:
        timer = KillTimer()
        timer.set(None)
        timer.set(boottime() + 60)
        timer.set(boottime() + 0.3)
        os.kill(os.getpid(), signal.SIGSTOP)

    assert os.WTERMSIG(_status_of(play)) == signal.SIGKILL


@on_linux
def test_a_limit_that_was_lifted_kills_nobody() -> None:
    def play() -> None:
        timer = KillTimer()
        timer.set(boottime() + 0.5)
        timer.set(None)
        signal.sigtimedwait([], 0.7)

    assert os.waitstatus_to_exitcode(_status_of(play)) == 7


def _status_of(play: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        play()
        os._exit(7)
    return os.waitpid(pid, 0)[1]


def test_two_clocks_that_a_suspension_tore_apart_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deadline would be taken for a later one by as long as the suspension was."""
    steady, began = [100.0], datetime(2026, 1, 1, tzinfo=UTC)
    pauses = iter([50.0])

    def read(using: str) -> datetime:
        steady[0] += next(pauses, 0.0)
        return began + timedelta(seconds=steady[0] - 100)

    monkeypatch.setattr("django_ojs.worker.threads.fetcher.clock.boottime", lambda: steady[0])
    monkeypatch.setattr("django_ojs.worker.threads.fetcher.clock.now", read)
    at = fetcher._moment("default")
    assert at.of(began) == 100
