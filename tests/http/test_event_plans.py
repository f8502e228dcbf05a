"""Beside 200,000 jobs (70,000 on SQLite) a page of events that are not stored reads a part of an index.

Whatever is asked for, and also where the planner knows nothing of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import override_settings

from django_ojs.domain.durations import format_instant
from django_ojs.models import Attempt, Job
from django_ojs.services import derived, tokens
from tests.admin.support import MANY, many_jobs
from tests.admin.test_scale import Asked, Statement, rows_read, scans
from tests.http.support import Answer, Api

pytestmark = [pytest.mark.every_database, pytest.mark.long, pytest.mark.timeout(900)]

TABLES = ("django_ojs_job", "django_ojs_attempt")
WINDOW = 4000
LIMIT = 50


class Reader(Api):
    """Reads events, and keeps what each request asked the database."""

    asked: Asked

    def send(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> Answer:
        """With the plans of all that is read."""
        self.asked = Asked(TABLES)
        with connection.execute_wrapper(self.asked):
            return super().send(method, path, data, headers)

    def page(self, path: str, **headers: str) -> dict[str, Any]:
        """A page of events."""
        answer = self.get(path, **headers)
        assert answer.status == 200, answer.raw
        found: dict[str, Any] = answer.body
        return found


@pytest.fixture(scope="module", params=["fresh", "none"])
def now(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[datetime]:
    """Many jobs with their attempts, and statistics of them or none; when they were made."""
    if request.param == "none" and connection.vendor == "mysql":
        pytest.skip("InnoDB keeps its statistics itself")
    with many_jobs(django_db_blocker) as made, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_ojs_attempt"
            " (job_id, lease_seq, lease_id, attempt, worker_id, started_at, ended_at, outcome)"
            " SELECT id, lease_seq, id, 1, worker_id, started_at, finished_at, 'completed'"
            " FROM django_ojs_job WHERE state = 'completed'"
        )
        cursor.execute(
            "ANALYZE TABLE django_ojs_attempt"
            if connection.vendor == "mysql"
            else "ANALYZE django_ojs_attempt"
        )
        if connection.vendor == "mysql":
            cursor.fetchall()
        if request.param == "none":
            forget_statistics(cursor)
        yield made


def forget_statistics(cursor: Any) -> None:
    """As after a bulk load that nobody has analysed yet."""
    for table in TABLES:
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_stat1 WHERE tbl = %s", [table])
            continue
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if not cursor.fetchone()[0]:
            pytest.skip("only a superuser may delete statistics")
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = %s::regclass", [table])
        cursor.execute(
            "UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = %s::regclass", [table]
        )
    # SQLite reads them when it connects.
    connection.close()


@pytest.fixture
def reader(now: datetime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """May see everything, of an installation without settings."""
    yield from _reader(["*"], monkeypatch)


@pytest.fixture
def guest(now: datetime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """May see a queue that has one job of 5,000."""
    yield from _reader(["rare"], monkeypatch)


def _reader(queues: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.setattr(derived, "WINDOW", WINDOW)
    token, text = tokens.create("reader", scopes=["inspect"], queues=queues)
    with override_settings(OJS={}):
        reader = Reader(text)
        reader.page("/events?limit=1")
        yield reader
    token.delete()


def check(asked: Asked) -> None:
    """By an index, and of each no more than a window and what is told."""
    read = [statement for statement in asked.all if statement.plan]
    assert read
    for statement in read:
        assert not scans(statement, TABLES), statement
        assert rows(statement) <= WINDOW + 4 * (LIMIT + 1), statement


def rows(statement: Statement) -> int:
    """What a statement reads of jobs and attempts; SQLite keeps no count."""
    return rows_read(statement, TABLES)


NARROWED = (
    "",
    "types=job.completed",
    "types=job.started",
    "types=job.scheduled",
    "types=job.enqueued,job.completed",
    "queues=rare",
    "queues=nowhere",
    "queues=rare&types=job.completed",
)


@pytest.mark.fault("F98")
@pytest.mark.parametrize("query", NARROWED, ids=lambda query: query or "all")
def test_pages_of_events(reader: Reader, now: datetime, query: str) -> None:
    """The first, those behind it, and those from a moment on."""
    page = reader.page(f"/events?limit={LIMIT}&{query}")
    check(reader.asked)
    for _ in range(3):
        page = reader.page(f"/events?limit={LIMIT}&{query}&cursor={page['cursor'] or ''}")
        check(reader.asked)
    middle = format_instant(now - timedelta(seconds=MANY // 2))
    reader.page(f"/events?limit={LIMIT}&{query}&since={middle}")
    check(reader.asked)
    for event in page["events"][-2:]:
        reader.page(f"/events?limit={LIMIT}&{query}&after={event['id']}")
        check(reader.asked)


@pytest.mark.fault("F98")
def test_what_one_may_see_of_a_large_table_is_found_in_the_end(guest: Reader) -> None:
    """A page may be empty and go on: who reads a rare queue is not stuck in front of the rest."""
    wanted = set(Job.objects.filter(queue="rare").exclude(state="pending").values_list("pk", flat=True))
    ended = Job.objects.filter(queue="rare", state="completed").count()
    assert len(wanted) > 10
    told: list[dict[str, Any]] = []
    cursor, pages = "", 0
    while True:
        page = guest.page(f"/events?limit={LIMIT}&cursor={cursor}")
        check(guest.asked)
        told += page["events"]
        pages += 1
        if not page["has_more"]:
            break
        assert page["cursor"] != cursor, "it goes on"
        cursor = page["cursor"]
    kinds = [event["type"] for event in told]
    begun = [event for event in told if event["type"] in ("job.enqueued", "job.scheduled")]
    assert {UUID(event["subject"]) for event in begun} == wanted
    assert len(begun) == len(wanted)
    assert kinds.count("job.completed") == kinds.count("job.started") == ended
    assert pages <= 2 * MANY // WINDOW + 2
    times = [event["time"] for event in told]
    assert times == sorted(times)


@pytest.mark.fault("F98")
def test_the_history_of_a_job(reader: Reader) -> None:
    job = Job.objects.filter(state="completed").order_by("-pk")[0]
    for page in (
        reader.page(f"/events?job_id={job.pk}"),
        reader.page(f"/jobs/{job.pk}/events", Accept="application/json"),
    ):
        assert [event["type"] for event in page["events"]][-2:] == ["job.started", "job.completed"]
        check(reader.asked)


def test_reading_it_all_would_be_noticed(reader: Reader) -> None:
    asked = Asked(TABLES)
    with connection.execute_wrapper(asked):
        list(Attempt.objects.filter(worker_id="nobody"))
        list(Job.objects.filter(progress_message="x"))
    assert [bool(scans(statement, TABLES)) for statement in asked.all] == [True, True]
