"""Connections that are lost at the worst moment, or that go silent without being closed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from django.db import OperationalError

from django_ojs import api, clock
from django_ojs.models import Event, Job
from tests.clusters.clusters import Cluster
from tests.clusters.pointing import default_is
from tests.clusters.proxy import Proxy
from tests.clusters.test_restarts import ACK, nothing_is_violated
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state
from tests.support import Manage, poll
from tests.workload import jobs

MakeProxy = Callable[[], Proxy]
INSERT = "INSERT INTO .?django_ojs_job.? "


def says(process: Manage, words: str) -> bool:
    """Whether it has logged these words."""
    return words in process.stderr


@pytest.mark.fault("F87")
@pytest.mark.parametrize("reply_lost", [True, False])
def test_an_enqueue_of_unknown_outcome_is_repeated(
    cluster: Cluster, proxy: MakeProxy, reply_lost: bool
) -> None:
    """Committed or not, the client cannot know; with an id of its own it need not."""
    way = proxy()
    with default_is(cluster.url(way.port)):
        chosen = clock.new_id()
        cut = way.cut(INSERT, "COMMIT", reply_lost=reply_lost)
        with pytest.raises(OperationalError):
            api.enqueue("test.job", [1], id=chosen)
        assert cut.done.wait(5)
        with default_is(cluster.url()):
            assert Job.objects.count() == int(reply_lost)
        again = api.enqueue("test.job", [1], id=chosen)
        assert again.id == chosen
        assert Job.objects.count() == 1
        assert Event.objects.filter(job_id=chosen, kind="job.enqueued").count() == 1
    nothing_is_violated()


@pytest.mark.fault("F87", "F61")
def test_a_report_of_unknown_outcome_is_repeated(
    cluster: Cluster, proxy: MakeProxy, worker: StartWorker
) -> None:
    way = proxy()
    cut = way.cut(ACK, "COMMIT", reply_lost=True)
    job = jobs.echo.enqueue("said twice")
    runner = worker("--no-maintenance", DATABASE_URL=cluster.url(way.port))
    assert cut.done.wait(30)
    poll(lambda: "a transaction failed and is tried again" in runner.stderr)
    done = in_state(job, "completed")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert "refused" not in runner.stderr, "the second time the answer is the same"
    assert api.get(job) == done, "and nothing is written"
    assert [attempt.outcome for attempt in attempts(job)] == ["completed"]
    assert Event.objects.filter(job_id=job.id, kind="job.completed").count() == 1
    nothing_is_violated()


@pytest.mark.fault("F86")
@pytest.mark.parametrize(
    "cluster", ["pg", pytest.param("mariadb", marks=pytest.mark.long)], indirect=True
)
def test_a_network_that_falls_silent_is_noticed(
    cluster: Cluster,
    proxy: MakeProxy,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    """No packet is acknowledged and no connection is closed: half-open, as behind a dead switch."""
    way = proxy()
    ends = Flag(Path(flag.path + "-ends"))
    job = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, ends.path)
    goes_on = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=2", "--no-maintenance", DATABASE_URL=cluster.url(way.port))
    reaper = manage("reap_timeouts", "--loop", DATABASE_URL=cluster.url(way.port))
    diary.wait("started", 2, timeout=30)
    poll(lambda: "reaping" in reaper.stdout, 30)
    way.silence()
    ends.set()
    until = time.monotonic() + 20
    for process, words in (
        (runner, "a database call failed"),
        (runner, "a heartbeat failed"),
        (reaper, "the database failed"),
    ):
        poll(partial(says, process, words), until - time.monotonic())
    way.speak()
    assert in_state(job, "completed", timeout=30).result == "attempt 1"
    after = jobs.echo.enqueue("after")
    in_state(after, "completed", timeout=30)
    flag.set()
    in_state(goes_on, "completed")
    assert runner.running and reaper.running
    for one in (job, goes_on, after):
        assert [attempt.outcome for attempt in attempts(one)] == ["completed"]
