"""A worker without ``--queue`` serves a queue from its first job on, as it serves those it knows."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.process.tools import Diary, Flag, StartWorker
from tests.workload import jobs

pytestmark = [pytest.mark.process, pytest.mark.every_database]


def test_the_first_job_of_a_queue_begins_before_later_ones_of_known_queues(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    """Nobody has told the worker of the queue: it has been idle since it last looked."""
    jobs.pid.using(queue="known").enqueue(diary.path)
    worker()
    diary.wait("pid")
    for number in range(1, 4):
        with transaction.atomic():
            jobs.hold.using(queue=f"new-{number}").enqueue(diary.path, flag.path)
            jobs.pid.using(queue="known").enqueue(diary.path)
        diary.wait("started", number)
        assert len(diary.lines("pid")) == number
        flag.set()
        diary.wait("pid", number + 1)
        flag.clear()
