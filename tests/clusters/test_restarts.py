"""The database goes away and comes back while workers, reapers and clients are at work."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, InterfaceError, connections

from django_ojs import api, clock
from django_ojs.models import Attempt, Job, MaintenanceRun
from django_ojs.store import invariants
from tests.clusters.clusters import Cluster, PostgreSQL
from tests.clusters.proxy import Proxy
from tests.faults import tally
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state
from tests.support import not_none, poll
from tests.workload import jobs
from tests.workload.tools import AT_ONCE

MakeProxy = Callable[[], Proxy]
KILLS = 20
CLAIM, ACK = "SET .state. = 'active'", "SET .state. = 'completed'"
BEAT, REAP = "SET .heartbeat_at. = ", "SET .state. = 'discarded'"


def outcomes(job: api.JobRecord) -> list[str]:
    """How the attempts of a job ended."""
    return [str(attempt.outcome) for attempt in attempts(job)]


def nothing_is_violated() -> None:
    """Every invariant holds now."""
    now = clock.now("default")
    assert invariants.check(now=now, slack=timedelta(seconds=5), using="default") == []
    tally.checked(*invariants.RULES)


@pytest.mark.fault("F72")
def test_a_restart_in_the_middle_of_each_operation(
    cluster: Cluster,
    proxy: MakeProxy,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    """Before the statement and, for reports, before the commit; every time the server comes back.

    Six outages within seconds: only a heartbeat timeout longer than each of them promises anything.
    """
    long = jobs.hold.using(heartbeat_timeout=30).enqueue(diary.path, flag.path)
    way, reaping = proxy(), proxy()
    runner = worker("--concurrency=2", "--no-maintenance", DATABASE_URL=cluster.url(way.port))
    reaper = manage("reap_timeouts", "--loop", DATABASE_URL=cluster.url(reaping.port))
    diary.wait("started", timeout=30)
    poll(lambda: "reaping" in reaper.stdout, 30)
    for patterns in ([CLAIM], [CLAIM, "COMMIT"], [ACK], [ACK, "COMMIT"]):
        cut = way.cut(*patterns, then=cluster.restart)
        job = jobs.echo.using(retry=AT_ONCE, heartbeat_timeout=30).enqueue(1)
        assert cut.done.wait(60), patterns
        connections["default"].close()
        in_state(job, "completed", timeout=30)
        assert outcomes(job) == ["completed"], patterns
    for through, pattern in ((way, BEAT), (reaping, REAP)):
        cut = through.cut(pattern, then=cluster.restart)
        expired = api.enqueue("nobody.serves", enqueue_ttl=2)
        assert cut.done.wait(60), pattern
        connections["default"].close()
        assert (
            not_none(in_state(expired, "discarded", timeout=30).error)["type"] == "enqueue_ttl_expired"
        )
    assert runner.running and reaper.running
    flag.set()
    assert in_state(long, "completed").result == "attempt 1"
    assert outcomes(long) == ["completed"]
    nothing_is_violated()
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert "report refused" not in runner.stderr
    assert "report abandoned" not in runner.stderr
    tally.injected("F72", times=5)


@pytest.mark.fault("F73")
def test_sessions_are_killed_again_and_again(
    cluster: Cluster, worker: StartWorker, manage: Start
) -> None:
    runner = worker("--concurrency=2")
    reaper = manage("reap_timeouts", "--loop")
    made: list[api.JobRecord] = []
    killed, enough = 0, threading.Event()
    # The answer to a claim may be lost: nobody knows of that lease, and it runs out.
    found_again: dict[str, Any] = {"retry": AT_ONCE, "heartbeat_timeout": 2}

    def enqueue() -> None:
        while not enough.wait(0.03):
            chosen, done = clock.new_id(), False
            while not done:
                try:
                    made.append(api.enqueue("work.echo", [len(made)], id=chosen, **found_again))
                    done = True
                except (DatabaseError, InterfaceError):
                    connections["default"].close()
        connections["default"].close()

    poll(lambda: "executors" in runner.stdout and "reaping" in reaper.stdout, 30)
    client = threading.Thread(target=enqueue)
    client.start()
    try:
        while killed < KILLS:
            killed += cluster.terminate_sessions()
            # How often the sessions are ended, not something to wait for.
            time.sleep(0.3)
    finally:
        enough.set()
        client.join()
    connections["default"].close()
    assert len(made) >= KILLS
    poll(lambda: not Job.objects.exclude(state="completed").exists(), 40, every=0.1)
    assert Job.objects.count() == len(made)
    assert runner.running and reaper.running
    ended = set(Attempt.objects.values_list("outcome", flat=True))
    assert ended <= {"completed", "stalled", "released"}
    nothing_is_violated()
    tally.injected("F73", times=killed - 1)


@pytest.mark.fault("F74")
def test_what_was_acknowledged_survives_the_whole_cluster(cluster: Cluster) -> None:
    acknowledged: list[list[UUID]] = [[], [], []]
    if isinstance(cluster, PostgreSQL):
        assert cluster.admin("SHOW synchronous_commit") == [("on",)]

    def enqueue(mine: list[UUID]) -> None:
        try:
            while True:
                mine.append(api.enqueue("test.job", [len(mine)]).id)
        except (DatabaseError, InterfaceError):
            connections["default"].close()

    clients = [threading.Thread(target=enqueue, args=(mine,)) for mine in acknowledged]
    for client in clients:
        client.start()
    try:
        poll(lambda: min(map(len, acknowledged)) >= 100, 30)
        cluster.kill()
    finally:
        for client in clients:
            client.join(30)
    cluster.start()
    found = set(Job.objects.values_list("id", flat=True))
    assert [job_id for mine in acknowledged for job_id in mine if job_id not in found] == []
    # Committed, but the answer was not heard: one a client at most.
    assert len(found) <= sum(map(len, acknowledged)) + len(clients)
    nothing_is_violated()


@pytest.mark.fault("F75")
def test_down_for_longer_than_the_heartbeat_timeout(
    cluster: Cluster,
    proxy: MakeProxy,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    """No job of the living is stalled, and what ended meanwhile is reported when it is back.

    The reaper comes back first, and finds nothing but silence.
    """
    way, meanwhile = proxy(), Flag(Path(flag.path + "-meanwhile"))
    ends = jobs.hold.using(heartbeat_timeout=6).enqueue(diary.path, meanwhile.path)
    goes_on = jobs.hold.using(heartbeat_timeout=6).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=2", "--no-maintenance", DATABASE_URL=cluster.url(way.port))
    reaper = manage("reap_timeouts", "--loop")
    diary.wait("started", 2, timeout=30)
    poll(lambda: "reaping" in reaper.stdout, 30)
    way.refusing = True
    cluster.crash()
    down = clock.now("default")
    meanwhile.set()
    diary.wait("finished")
    # How long the fault lasts: longer than the heartbeat timeout, in the real time of processes.
    time.sleep(7)
    cluster.start()
    back = clock.now("default")
    # Its first scan may come before we are let in; the next one is recorded only seconds later.
    poll(lambda: MaintenanceRun.objects.filter(name="reap", last_run_at__gt=down).exists(), 30)
    way.refusing = False
    assert in_state(ends, "completed", timeout=30).result == "attempt 1"
    poll(lambda: Job.objects.filter(pk=goes_on.id, heartbeat_at__gt=back + timedelta(seconds=2)), 60)
    assert runner.running and reaper.running
    flag.set()
    assert in_state(goes_on, "completed").result == "attempt 1"
    assert outcomes(ends) == outcomes(goes_on) == ["completed"]
    nothing_is_violated()
