"""Processes that work on another database start while nothing answers for the alias ``default``."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_ojs import api, clock
from django_ojs.models import MaintenanceRun
from tests.process.tools import Start, in_state
from tests.support import database_url, poll
from tests.workload import jobs

pytestmark = [pytest.mark.every_database, pytest.mark.process, pytest.mark.fault("F149")]
ALIAS = "second"


@pytest.fixture(params=["postgres", "mysql"])
def default_down(request: pytest.FixtureRequest, ojs_db: None) -> Iterator[dict[str, str]]:
    """The environment of processes in which ``default`` is a server that refuses connections, and the
    test database is another alias, which has the queue ``mail``.
    """
    with socket.socket() as reserved:
        # Bound, and nothing listens: nobody else can take the port.
        reserved.bind(("127.0.0.1", 0))
        yield {
            "DJANGO_SETTINGS_MODULE": "tests.settings_several",
            "DATABASE_URL": f"{request.param}://root@127.0.0.1:{reserved.getsockname()[1]}/gone",
            "OJS_TEST_SECOND": database_url(),
        }


def test_a_worker_starts(manage: Start, default_down: dict[str, str]) -> None:
    job = jobs.echo.using(queue="mail").enqueue(1)
    drained = manage("runworker", "--drain", "--concurrency=1", "--database", ALIAS, **default_down)
    assert drained.wait(60) == 0, drained.stderr
    assert api.get(job).state == "completed"
    worker = manage("runworker", "--concurrency=1", "--database", ALIAS, **default_down)
    in_state(jobs.echo.using(queue="mail").enqueue(2), "completed", timeout=60)
    worker.send(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.stderr


def test_a_reaper_starts(manage: Start, default_down: dict[str, str]) -> None:
    def overdue() -> api.JobRecord:
        job = api.enqueue("work.echo", [1], queue="mail", enqueue_ttl="50ms")
        poll(lambda: clock.now("default") > job.created_at + timedelta(seconds=0.1))
        return api.get(job)

    first = overdue()
    once = manage("reap_timeouts", "--database", ALIAS, **default_down)
    assert once.wait(60) == 0, once.stderr
    assert api.get(first).state == "discarded"
    loop = manage("reap_timeouts", "--loop", "--database", ALIAS, **default_down)
    in_state(overdue(), "discarded", timeout=60)
    loop.send(signal.SIGTERM)
    assert loop.wait(60) == 0, loop.stderr
    assert MaintenanceRun.objects.filter(name="reap").exists()


@pytest.mark.parametrize("verb", ["status", "check"])
def test_commands_answer(manage: Start, default_down: dict[str, str], verb: str) -> None:
    jobs.echo.using(queue="mail").enqueue(1)
    said = manage("ojs", verb, "--database", ALIAS, "--format", "json", **default_down)
    assert said.wait(60) == 0, said.stderr
    found = json.loads(said.stdout)
    if verb == "status":
        assert found["jobs"]["available"] == 1
    else:
        assert found["broken"] == []


def test_a_command_for_the_one_that_is_down_says_so(
    manage: Start, default_down: dict[str, str]
) -> None:
    said = manage("ojs", "status", **default_down)
    assert said.wait(60) == 69
    assert "the database 'default' is not available" in said.stderr
