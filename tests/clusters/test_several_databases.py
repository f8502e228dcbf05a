"""Queues on two databases, a worker for each: the server of one of them is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import Error, connections
from django.test import override_settings

from django_ojs import api
from django_ojs.services import databases
from example_project.databases import parse
from tests.clusters.clusters import Cluster
from tests.process.tools import Start, in_state
from tests.support import poll
from tests.workload import jobs

ALIAS = "second"


@pytest.fixture
def second(cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of processes for which ``mail`` is on a SQLite file, as it is here."""
    url = f"sqlite:///{tmp_path}/second.sqlite3"
    connections.databases[ALIAS] = {**connections.databases["default"], **parse(url)}
    try:
        call_command("migrate", "django_ojs", database=ALIAS, verbosity=0)
        with override_settings(OJS={"QUEUE_DATABASES": {ALIAS: ["mail"]}}):
            yield {"DJANGO_SETTINGS_MODULE": "tests.settings_several", "OJS_TEST_SECOND": url}
    finally:
        databases._silent_since.clear()
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.databases[ALIAS]


@pytest.mark.fault("F149")
def test_the_other_queues_go_on(cluster: Cluster, second: dict[str, str], manage: Start) -> None:
    mail = jobs.echo.using(queue="mail")
    first_worker = manage("runworker", "--concurrency=1", **second)
    second_worker = manage("runworker", "--concurrency=1", "--database", ALIAS, **second)
    for job in (jobs.echo.enqueue(1), mail.enqueue(1)):
        in_state(job, "completed", timeout=60)
    waiting = jobs.echo.using(delay=5).enqueue(2)
    cluster.crash()
    connections["default"].close()
    with pytest.raises(Error):
        jobs.echo.enqueue(3)
    for number in range(5):
        job = mail.enqueue(number)
        assert poll(lambda job=job: api.get(job).state == "completed", 30)  # type: ignore[misc]
    # One that starts in the outage serves its own queues too.
    started = mail.enqueue("in the outage")
    drained = manage("runworker", "--drain", "--database", ALIAS, **second)
    assert drained.wait(60) == 0, drained.stderr
    in_state(started, "completed", timeout=60)
    with pytest.raises(Error):
        api.get(waiting)
    cluster.start()
    connections["default"].close()
    in_state(waiting, "completed", timeout=60)
    assert first_worker.running and second_worker.running
