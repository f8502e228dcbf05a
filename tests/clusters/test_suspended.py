"""A server whose host answers and whose processes do not: stopped, or waiting for a dead disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from django.db import OperationalError, connection, connections

from django_ojs import clock
from django_ojs.services.workers import WorkerInfo
from django_ojs.store import hung_sessions, sessions
from django_ojs.store.sockets import unanswered_s, waits_for_answer
from django_ojs.worker.threads.heartbeat import HeartbeatThread, WorkerSnapshot
from tests.clusters.clusters import Cluster
from tests.clusters.pointing import default_is
from tests.clusters.proxy import Proxy
from tests.clusters.test_cuts import says
from tests.clusters.test_restarts import nothing_is_violated
from tests.lab.databases import suspended
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state
from tests.support import poll
from tests.workload import jobs

CUT = "the database server does not answer"


@pytest.mark.fault("F130")
@pytest.mark.parametrize(
    "cluster", ["pg", pytest.param("mariadb", marks=pytest.mark.long)], indirect=True
)
def test_workers_and_reapers_do_not_wait_for_it(
    cluster: Cluster, worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    """Every packet is acknowledged, by the kernel: keepalive sees nothing."""
    ends = Flag(Path(flag.path + "-ends"))
    job = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, ends.path)
    goes_on = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=2", "--no-maintenance")
    reaper = manage("reap_timeouts", "--loop")
    diary.wait("started", 2, timeout=30)
    poll(lambda: "reaping" in reaper.stdout, 30)
    connections["default"].close()
    with suspended(cluster):
        ends.set()
        until = time.monotonic() + 20
        for process, words in (
            (runner, CUT),
            (runner, "a database call failed"),
            (runner, "a heartbeat failed"),
            (reaper, CUT),
            (reaper, "the database failed"),
        ):
            poll(partial(says, process, words), until - time.monotonic())
    assert in_state(job, "completed", timeout=30).result == "attempt 1"
    flag.set()
    in_state(goes_on, "completed")
    assert runner.running and reaper.running
    for one in (job, goes_on):
        assert [attempt.outcome for attempt in attempts(one)] == ["completed"]
    nothing_is_violated()


@pytest.mark.fault("F130")
def test_a_slow_statement_is_let_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers others: it is there, and cutting would only add to its load."""
    monkeypatch.setattr(hung_sessions, "WAITS_S", 0.5)
    asked: list[int] = []
    monkeypatch.setattr(
        hung_sessions.SessionThread, "look", _recording(asked, hung_sessions.SessionThread.look)
    )
    sleep = {"postgresql": "SELECT pg_sleep(4)", "mysql": "SELECT SLEEP(4)"}[connection.vendor]
    with sessions.tcp_keepalive("default"):
        connection.close()
        with connection.cursor() as cursor:
            session = connection.connection
            cursor.execute(sleep)
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
        assert connection.connection is session
    connection.close()
    assert asked and not any(asked)


@pytest.mark.fault("F130")
def test_a_server_that_answers_nobody_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung_sessions, "WAITS_S", 0.5)
    with sessions.tcp_keepalive("default"):
        connection.close()
        connection.ensure_connection()
        began = time.monotonic()
        with suspended(cluster), pytest.raises(OperationalError), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        assert time.monotonic() - began < 12
    connection.close()


def _recording(
    found: list[int], look: Callable[[hung_sessions.SessionThread], int]
) -> Callable[[hung_sessions.SessionThread], int]:
    def recorded(watcher: hung_sessions.SessionThread) -> int:
        cut = look(watcher)
        found.append(cut)
        return cut

    return recorded


def test_a_beat_that_fails_connects_once(cluster: Cluster, proxy: Callable[[], Proxy]) -> None:
    """Behind several hosts each connection begins with the one that is gone, which takes seconds."""
    way = proxy()
    with default_is(cluster.url(way.port)):
        beats = HeartbeatThread(
            WorkerInfo("w1", clock.new_lease()),
            lambda: WorkerSnapshot("running", []),
            lambda sent, kept, at: None,
            lambda directive: None,
            "default",
        )
        beats.now()
        beats.beat()
        assert beats.failures == 0
        assert way.accepted == 1
        cut = way.cut("django_ojs_worker")
        beats.now()
        beats.beat()
        assert cut.done.wait(5)
        assert beats.failures == 1
        beats.now()
        beats.beat()
        assert beats.failures == 1
        assert way.accepted == 2


@pytest.mark.fault("F130")
def test_a_statement_right_after_an_answer_is_waited_for(cluster: Cluster) -> None:
    """As in a transaction: both fall into one tick of the kernel's clock."""
    sleep = {"postgresql": "SELECT pg_sleep(1)", "mysql": "SELECT SLEEP(1)"}[connection.vendor]
    connection.close()
    connection.ensure_connection()
    session = connection.connection
    waited: list[float] = []
    looks = 0

    def look(ends: threading.Event) -> None:
        nonlocal looks
        longest = 0.0
        with ExitStack() as stack:
            link = hung_sessions._link(session, stack)
            assert link is not None
            while not ends.wait(0.02):
                longest = max(longest, unanswered_s(link, waits_for_answer(session)))
                looks += 1
        waited.append(longest)

    for _ in range(5):
        ends = threading.Event()
        watcher = threading.Thread(target=look, args=(ends,))
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
            watcher.start()
            for statement in ("SELECT 1", sleep):
                cursor.execute(statement)
                cursor.fetchone()
        ends.set()
        watcher.join()
    assert min(waited) > 0.8
    ends, before = threading.Event(), looks
    idle = threading.Thread(target=look, args=(ends,))
    idle.start()
    poll(lambda: looks >= before + 20)
    ends.set()
    idle.join()
    assert waited[-1] == 0
    connection.close()
