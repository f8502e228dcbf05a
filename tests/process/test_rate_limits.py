"""Rate limits with a real worker: a place is taken for as long as a handler runs."""

from __future__ import annotations

import pytest

from django_ojs import api, clock
from tests.process.tools import Diary, StartWorker
from tests.support import poll
from tests.workload import jobs, stopping

pytestmark = [pytest.mark.every_database, pytest.mark.process]
ONE = {"key": "one", "concurrency": 1}


def test_a_cancelled_handler_keeps_its_place_until_it_has_stopped(
    worker: StartWorker, diary: Diary
) -> None:
    """Told to stop, it takes three seconds; its grace period would be a minute."""
    limited = stopping.slow.using(rate_limit=ONE, heartbeat_timeout=2, grace_period=60, timeout=100)
    first = limited.enqueue(diary.path, 3)
    second = limited.enqueue(diary.path, 0)
    worker("--concurrency=2")
    diary.wait("started", timeout=20)
    api.cancel(first)
    diary.wait("stopped", timeout=20)
    stopped = clock.boottime()
    assert api.get(second).state == "available"
    diary.wait("started", 2, timeout=30)
    assert clock.boottime() - stopped > 1.5, "the handler of the first was still at work"
    api.cancel(second)


def test_workers_share_a_limit(worker: StartWorker, diary: Diary) -> None:
    made = [jobs.pid.using(rate_limit=ONE).enqueue(diary.path) for _ in range(12)]
    worker("--concurrency=2")
    worker("--concurrency=2")
    poll(lambda: all(api.get(job).state == "completed" for job in made), 60)
