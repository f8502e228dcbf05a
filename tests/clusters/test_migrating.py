"""The next release's migration runs while this release's workers and reapers go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from django_ojs import api
from django_ojs.models import Attempt, Job
from tests import next_release
from tests.clusters.clusters import Cluster
from tests.clusters.test_restarts import nothing_is_violated
from tests.process.tools import Diary, Flag, Start, StartWorker, in_state
from tests.support import poll
from tests.workload import jobs


def migrate(*target: str) -> None:
    """Apply the migrations of the next release, up to the target."""
    with override_settings(MIGRATION_MODULES=next_release.MODULES):
        call_command("migrate", "django_ojs", *target, verbosity=0)


@pytest.fixture
def back_again(cluster: Cluster) -> Iterator[None]:
    """The schema of this release, afterwards."""
    yield
    connection.close()
    migrate("0001")


@pytest.mark.fault("F95")
def test_old_workers_go_on_with_the_next_schema(
    cluster: Cluster,
    back_again: None,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    long = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=2", "--no-maintenance")
    reaper = manage("reap_timeouts", "--loop")
    diary.wait("started", timeout=30)
    before = [jobs.echo.enqueue(number) for number in range(100)]
    migrate()
    after = [jobs.echo.enqueue(number) for number in range(100)]
    expired = api.enqueue("nobody.serves", enqueue_ttl=1)
    poll(lambda: Job.objects.filter(state="completed").count() == len(before) + len(after), 60)
    in_state(expired, "discarded", timeout=30)
    flag.set()
    in_state(long, "completed")
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"completed"}
    assert Attempt.objects.count() == len(before) + len(after) + 1
    assert runner.running and reaper.running
    for process in (runner, reaper):
        assert "failed" not in process.stderr
        assert "a database call failed" not in process.stderr
    nothing_is_violated()
