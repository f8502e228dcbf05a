"""A failover leaves the application on a server that refuses every write, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import DatabaseError

from django_ojs import api
from tests.clusters.clusters import Cluster
from tests.http.support import LiveApi, enqueue, fetch
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state
from tests.support import gunicorn, poll
from tests.workload import jobs


@pytest.fixture
def live(cluster: Cluster, tmp_path: Path) -> Iterator[LiveApi]:
    """A caller of gunicorn on the cluster."""
    environment = {"OJS_DEV_TOKEN": "dev", "EXAMPLE_VAR": str(tmp_path / "var")}
    with gunicorn("tests.wsgi:application", "/ready", tmp_path / "web", 4, environment) as port:
        yield LiveApi(port)


@pytest.fixture
def read_only(cluster: Cluster) -> Iterator[None]:
    """From now on, until the test says otherwise or ends."""
    yield
    cluster.read_only(False)


def refuses() -> bool:
    """Whether the server writes nothing any more; sessions learn of it one after the other."""
    try:
        api.enqueue("test.job")
    except DatabaseError:
        return True
    return False


@pytest.mark.fault("F76")
def test_a_server_that_refuses_writes(
    cluster: Cluster,
    read_only: None,
    live: LiveApi,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    runner = worker("--concurrency=2", "--queue=default", "--no-maintenance")
    reaper = manage("reap_timeouts", "--loop")
    running = jobs.hold.using(heartbeat_timeout=6).enqueue(diary.path, flag.path)
    before = Flag(Path(flag.path + "-before"))
    ends = jobs.hold.using(heartbeat_timeout=6).enqueue(diary.path, before.path)
    enqueue(live, queue="http")
    mine = fetch(live, "http")[0]
    enqueue(live, queue="http")
    diary.wait("started", 2, timeout=30)
    poll(lambda: "reaping" in reaper.stdout, 30)
    cluster.read_only(True)
    poll(refuses)
    before.set()
    diary.wait("finished")
    report = {"job_id": mine["id"], "lease_id": mine["lease"]["id"]}
    for path, body in (
        ("/jobs", {"type": "test.job", "args": []}),
        ("/workers/fetch", {"queues": ["http"], "worker_id": "w1"}),
        ("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [mine["id"]]}),
        ("/workers/ack", report),
    ):
        answer = live.post(path, body)
        assert (answer.status, answer.code) == (503, "backend_error"), path
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.body["error"]["retryable"]
    assert live.get(f"/jobs/{mine['id']}").status == 200, "reading goes on"
    poll(lambda: runner.stderr.count("a heartbeat failed") >= 2, 30)
    poll(lambda: reaper.stderr.count("the database failed") >= 2, 30)
    assert runner.running and reaper.running
    cluster.read_only(False)
    assert live.post("/workers/ack", report).status == 200
    assert in_state(ends, "completed", timeout=30).result == "attempt 1"
    after = jobs.echo.enqueue("after")
    in_state(after, "completed", timeout=30)
    flag.set()
    assert in_state(running, "completed").result == "attempt 1"
    for job in (ends, running, after):
        assert [attempt.outcome for attempt in attempts(job)] == ["completed"]
