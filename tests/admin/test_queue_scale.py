"""The screens of queues read no backlog, however much waits for its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_ojs.models import Job, Queue
from django_ojs.store.selectors import AMONG_CAP
from tests.admin.support import login, many_jobs
from tests.admin.test_scale import look, rows_read, scans
from tests.support import analyze_jobs

pytestmark = pytest.mark.timeout(900)
QUEUES = [f"tenant-{number}" for number in range(40)]


@pytest.fixture(scope="module")
def browser(django_db_setup: None, django_db_blocker: Any) -> Iterator[Client]:
    """A browser over queues of which a fifth of all jobs waits for its time."""
    with many_jobs(django_db_blocker) as now:
        waiting = Job.objects.filter(state="available").order_by("pk")
        middle = waiting[waiting.count() // 2].pk
        for state, rows in (("retryable", waiting.filter(pk__gte=middle)), ("scheduled", waiting)):
            rows.update(state=state, scheduled_at=now)
        Queue.objects.bulk_create(Queue(name=name, created_at=now) for name in QUEUES)
        analyze_jobs()
        yield login(superuser=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "most"), [("queue/", 4 * AMONG_CAP), ("queue/default/change/", 7 * AMONG_CAP)]
)
def test_no_backlog_is_read(browser: Client, path: str, most: int) -> None:
    _text, asked = look(browser, path)
    assert len(asked.all) <= 9
    copied = 3 if connection.vendor == "mysql" else 1
    for statement in asked.all:
        if statement.plan:
            assert not scans(statement), statement
            assert rows_read(statement) <= most * copied, statement
