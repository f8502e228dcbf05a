"""The next release's migration runs while this release's workers and reapers go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_ojs import api
from django_ojs.models import Attempt, Event, Job, Queue, Worker
from tests.clusters.clusters import Cluster
from tests.clusters.test_restarts import nothing_is_violated
from tests.process.tools import Diary, Flag, Start, StartWorker, in_state
from tests.support import poll
from tests.workload import jobs

TABLES = [model._meta.db_table for model in (Job, Attempt, Event, Queue, Worker)]


def run(*statements: str) -> None:
    """Run statements, each by itself."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def next_schema(cluster: Cluster) -> Iterator[list[str]]:
    """What a migration may do: columns with a default or nullable, and indexes on them."""
    yield [
        statement
        for table in TABLES
        for statement in (
            f"ALTER TABLE {table} ADD COLUMN next_number INTEGER NOT NULL DEFAULT 7",
            f"ALTER TABLE {table} ADD COLUMN next_text VARCHAR(20) NULL",
            f"CREATE INDEX {table}_next ON {table} (next_number)",
        )
    ]
    connection.close()
    run(
        *(
            f"ALTER TABLE {table} DROP COLUMN {column}"
            for table in TABLES
            for column in ("next_number", "next_text")
        )
    )


@pytest.mark.fault("F95")
def test_old_workers_go_on_with_the_next_schema(
    cluster: Cluster,
    next_schema: list[str],
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    long = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=2", "--no-chores")
    reaper = manage("reap_timeouts", "--loop")
    diary.wait("started", timeout=30)
    before = [jobs.echo.enqueue(number) for number in range(100)]
    run(*next_schema)
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
        assert "database trouble" not in process.stderr
    nothing_is_violated()
