"""Enqueueing and the caller's transaction: rolled back, committed with a broken hook, raced for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections, transaction

from django_ojs import api, clock
from django_ojs.models import Event, Job, Queue
from django_ojs.services import enqueue as enqueue_service
from django_ojs.services import reap
from tests.services.support import ack, now_stored, take
from tests.support import ROOT, Manage, database_url, not_none, poll
from tests.workload import jobs

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Manage]:
    """One that drains what there is."""
    process = Manage(("runworker", "--drain", "--concurrency=1"), tmp_path / "worker", {})
    yield process
    process.stop()


@pytest.mark.fault("F91")
def test_nothing_of_a_rolled_back_transaction_happens() -> None:
    """Neither the job, nor its events, nor what was to be enqueued on commit; nobody sees it before."""
    seen: list[int] = []

    def look() -> None:
        seen.append(Job.objects.count())
        connections["default"].close()

    with pytest.raises(RuntimeError), transaction.atomic():
        api.enqueue("test.job", queue="new")
        api.enqueue_many("test.job", [[1], [2]])
        api.enqueue_on_commit("test.job")
        other = threading.Thread(target=look)
        other.start()
        other.join(10)
        raise RuntimeError
    assert seen == [0]
    assert not Job.objects.exists()
    assert not Event.objects.exists()
    assert not Queue.objects.filter(name="new").exists()


def _raise() -> None:
    raise RuntimeError("hook")


_DIES = """
import os, django
django.setup()
from django.db import transaction
from tests.workload import jobs
with transaction.atomic():
    transaction.on_commit(lambda: os._exit(9))
    jobs.echo.using(queue="died").enqueue(2)
"""


@pytest.mark.process
@pytest.mark.fault("F92")
def test_a_commit_whose_hooks_do_not_run_is_found(request: pytest.FixtureRequest) -> None:
    """A hook that raises keeps ours from running, and so does a process that dies before them."""
    with pytest.raises(RuntimeError, match="hook"), transaction.atomic():
        transaction.on_commit(_raise)
        one = jobs.echo.using(queue="raised").enqueue(1)
    died = subprocess.run(
        [sys.executable, "-c", _DIES],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": database_url(),
        },
        check=False,
    )
    assert died.returncode == 9
    assert not Queue.objects.exists(), "the hooks would have made the rows of the queues"
    assert {job.queue: job.state for job in Job.objects.all()} == {
        "raised": "available",
        "died": "available",
    }
    runner = request.getfixturevalue("worker")
    assert runner.wait(60) == 0, runner.stderr
    assert now_stored(one).state == "completed"
    assert not Job.objects.exclude(state="completed").exists()


@pytest.mark.fault("F93")
def test_time_goes_on_within_a_transaction() -> None:
    """As in a TestCase: PostgreSQL's own ``now()`` stands still there."""
    with transaction.atomic():
        job = api.enqueue("test.job", enqueue_ttl="PT0.1S")
        assert reap.reap().counts == {}
        poll(lambda: reap.reap().counts == {"enqueue_ttl": 1})
        assert now_stored(job).state == "discarded"
        (second,) = (api.enqueue("test.job"),)
        assert second.created_at > job.created_at
        (claimed,) = take()
        poll(lambda: clock.now("default") > not_none(claimed.started_at))
        ack(claimed)
        ended = now_stored(claimed)
        assert ended.state == "completed"
        assert ended.finished_at is not None and claimed.started_at is not None
        assert ended.finished_at > claimed.started_at
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@pytest.mark.slow
@pytest.mark.fault("F94")
def test_many_enqueue_under_one_id() -> None:
    """One row and one event, whoever comes first; the others get that job."""
    chosen, callers = clock.new_id(), 50
    start = threading.Barrier(callers)
    answers: list[object] = []

    def call() -> None:
        try:
            start.wait(30)
            answers.append(api.enqueue("test.job", [1], id=chosen).id)
        except Exception as error:
            answers.append(error)
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [chosen] * callers
    assert Job.objects.count() == 1
    assert Event.objects.filter(job_id=chosen, kind="job.enqueued").count() == 1
    enqueue_service._known_queues.clear()
