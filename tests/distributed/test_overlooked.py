"""An engine whose SKIP LOCKED overlooks free rows: jobs come later then, none is lost or run twice."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from django_ojs.models import Job
from tests.distributed.engine.base import Behaviour
from tests.process.tools import StartWorker
from tests.services.support import ack, make, take
from tests.workload import jobs

pytestmark = pytest.mark.every_database


def test_the_engine_overlooks(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Behaviour, "overlooks", 1.0)
    make(3)
    assert take(3) == [], "in one queue of one type"
    assert take(3, queues=("default", "other")) == [], "in several"


@pytest.mark.fault("F148")
@pytest.mark.parametrize("queues", [("default",), ("default", "other")])
def test_every_job_is_claimed_once(overlooking: None, queues: tuple[str, ...]) -> None:
    make(100)
    found: list[object] = []

    def work() -> None:
        try:
            while Job.objects.filter(state="available").exists():
                for job in take(4, queues=queues):
                    found.append(job.id)
                    ack(job)
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 100
    assert Job.objects.filter(state="completed").count() == 100


@pytest.mark.fault("F148")
@pytest.mark.process
def test_a_worker_drains_all_of_it(ojs_db: None, worker: StartWorker) -> None:
    """It does not end while there is work that it has overlooked."""
    for number in range(60):
        jobs.echo.enqueue(number)
    runner = worker(
        "--drain",
        "--concurrency=2",
        DJANGO_SETTINGS_MODULE="tests.settings_distributed",
        OJS_TEST_OVERLOOKS="0.5",
    )
    assert runner.wait(60) == 0, runner.stderr
    assert Job.objects.filter(state="completed").count() == 60
    assert "Traceback" not in runner.stderr
