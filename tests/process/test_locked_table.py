"""A worker whose jobs end while somebody has the table of jobs locked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_ojs.models import Job, LeaseBeat
from django_ojs.store.dialect import dialect
from tests.process.tools import Diary, Flag, StartWorker, attempts, in_state
from tests.services.support import elsewhere, locked_table
from tests.support import not_none, poll
from tests.workload import jobs

pytestmark = [pytest.mark.every_database, pytest.mark.process]


@pytest.mark.fault("F75")
def test_what_ends_meanwhile_is_beaten_for_until_it_is_reported(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("nobody else can write anything: such time does not count")
    held = jobs.hold.using(heartbeat_timeout=2)
    made = [held.enqueue(diary.path, flag.path) for _ in range(3)]
    worker("--concurrency", "4")
    diary.wait("started", 3)
    with locked_table():
        began = max(not_none(Job.objects.get(pk=job.id).heartbeat_at) for job in made)
        flag.set()
        diary.wait("finished", 3)
        # Each for longer than its timeout.
        late = LeaseBeat.objects.filter(heartbeat_at__gt=began + timedelta(seconds=5))
        poll(lambda: late.count() == 3)
    for job in made:
        in_state(job, "completed")
        assert [attempt.outcome for attempt in attempts(job)] == ["completed"]


def _lock_attempts() -> None:
    table = "django_ojs_attempt"
    with connection.cursor() as cursor:
        cursor.execute(
            f"LOCK TABLE {table} IN SHARE MODE"
            if connection.vendor == "postgresql"
            else f"LOCK TABLES {table} READ"
        )


def test_a_worker_whose_reports_wait_claims_only_so_many(worker: StartWorker) -> None:
    """Claims have a connection of their own: what has ended must not pile up here."""
    if not dialect("default").claims_apart():
        pytest.skip("reports and claims have one connection: who waits for one waits for both")
    made = jobs.echo.enqueue_many([[number] for number in range(8000)])
    claimed = Job.objects.exclude(state="available")
    counts = [0]

    def rests() -> bool:
        """Whether nothing more was claimed within a second."""
        counts.append(claimed.count())
        return 2000 < counts[-2] == counts[-1]

    with elsewhere(_lock_attempts):
        worker("--concurrency", "2")
        poll(rests, every=1.0)
        assert 2000 < counts[-1] < 6500
    poll(lambda: Job.objects.filter(state="completed").count() == len(made))
