"""What a claim reads beside a backlog that is not its own: as much as it takes, whatever is known.

The planner may know the table as it is, as it was when all jobs were ours or when nothing waited, or
nothing at all. What counts is what is read, not the name of a plan: an index that is read from end to
end is no better than a scan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.domain.states import State
from django_ojs.models import Job, Queue
from django_ojs.services.claim import claim, has_work, sources
from django_ojs.store import due_times, inserting
from django_ojs.store.dialect import dialect
from django_ojs.store.sessions import prepared_statements, read_in_index_order
from django_ojs.store.sources import Sources
from tests.services.support import release
from tests.support import analyze_jobs, drop_dead_rows, family

from .records import record

pytestmark = pytest.mark.every_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BACKLOG = 40_000
"""Older than ours, and in the first of our queues."""
OURS = 500
QUEUES = tuple(f"q{n}" for n in range(5))
TYPES = tuple(f"mine.t{n}" for n in range(20))


def _store(count: int, queues: int, kind: str, types: int, at: datetime, **fields: Any) -> None:
    for start in range(0, count, 4000):
        inserting.jobs(
            [
                record(
                    f"q{n % queues}",
                    f"{kind}{n // queues % types}",
                    at + timedelta(seconds=n),
                    **fields,
                )
                for n in range(start, min(count, start + 4000))
            ],
            using="default",
        )


def _forget_statistics() -> None:
    with connection.cursor() as cursor:
        if family() == "postgresql":
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if not cursor.fetchone()[0]:
                pytest.skip("only a superuser may delete statistics")
            cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'django_ojs_job'::regclass")
            cursor.execute(
                "UPDATE pg_class SET reltuples = -1, relpages = 0"
                " WHERE oid = 'django_ojs_job'::regclass"
            )
        elif family() == "sqlite":
            cursor.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'django_ojs_job'")
    # SQLite reads them when it connects.
    connection.close()


def _foreign() -> None:
    _store(BACKLOG, 1, "foreign.t", 3, NOW)


def _ours() -> None:
    _store(OURS, len(QUEUES), "mine.t", len(TYPES), NOW + timedelta(days=1))


def _fresh() -> None:
    _foreign()
    _ours()
    analyze_jobs()


def _none() -> None:
    _fresh()
    _forget_statistics()


def _stale_ours() -> None:
    """From a time when all that waited was ours."""
    _ours()
    analyze_jobs()
    _foreign()


def _stale_foreign() -> None:
    """From a time when none of it was."""
    _foreign()
    analyze_jobs()
    _ours()


def _stale_nothing() -> None:
    """From a time when nothing waited."""
    _store(2000, 1, "mine.t", 2, NOW, state=State.COMPLETED, attempt=1, started_at=NOW, finished_at=NOW)
    analyze_jobs()
    _foreign()
    _ours()


REGIMES: dict[str, Callable[[], None]] = {
    "fresh": _fresh,
    "none": _none,
    "stale, all ours": _stale_ours,
    "stale, all foreign": _stale_foreign,
    "stale, nothing": _stale_nothing,
}


FAST = ("fresh", "stale, all foreign")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in FAST else pytest.mark.long) for name in REGIMES],
)
def beside(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[str]:
    """A backlog, and statistics from some time."""
    from tests.conftest import empty_tables

    name: str = request.param
    with django_db_blocker.unblock(), read_in_index_order("default"):
        empty_tables()
        # As a worker connects.
        connection.close()
        drop_dead_rows()
        set_autovacuum("false")
        Queue.objects.bulk_create(Queue(name=name, created_at=NOW) for name in QUEUES)
        REGIMES[name]()
        yield name
        set_autovacuum(None)
        empty_tables()
        analyze_jobs()


def set_autovacuum(enabled: str | None) -> None:
    """Statistics are to stay what they are; ``None`` as it was before."""
    if family() == "postgresql":
        with connection.cursor() as cursor:
            change = (
                f"SET (autovacuum_enabled = {enabled})" if enabled else "RESET (autovacuum_enabled)"
            )
            cursor.execute(f"ALTER TABLE django_ojs_job {change}")


def _read(work: Callable[[], object]) -> int:
    """What ``work`` reads: pages of one statement, rows, or hundreds of steps of SQLite's machine."""
    with connection.cursor() as cursor:
        if family() == "mysql":
            cursor.execute("FLUSH STATUS")
            work()
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(value) for _, value in cursor.fetchall())
        if family() == "sqlite":
            steps: list[None] = []
            connection.connection.set_progress_handler(lambda: steps.append(None), 100)
            try:
                work()
            finally:
                connection.connection.set_progress_handler(None, 0)
            return len(steps)
        with CaptureQueriesContext(connection) as queries:
            work()
        return max(_pages(query["sql"]) for query in queries)


def _pages(statement: str) -> int:
    if "django_ojs_job" not in statement or not statement.startswith(("SELECT", "WITH")):
        return 0
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement)
        plan = cursor.fetchone()[0]
        top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        transaction.set_rollback(True)
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


CLAIMERS: dict[str, Sources] = {
    "all queues": sources(None, TYPES),
    "all queues, more types": sources(None, [*TYPES, *(f"mine.x{n}" for n in range(20))]),
    "one queue": sources(["q0"], TYPES),
    "queues in order": sources(QUEUES, TYPES),
    "a pool": sources(QUEUES, TYPES, ranked=False),
    "one pair": sources(["q0"], ["mine.t3"]),
    "nothing": sources(None, ["mine.none", "mine.neither"]),
    "nothing in one queue": sources(["q0"], ["mine.none", "mine.neither"]),
    "no such pair": sources(["q0"], ["mine.none"]),
    "one queue, all types": sources(["q0"]),
    "queues, all types": sources(QUEUES),
}


@pytest.mark.slow
@pytest.mark.fault("F98")
@pytest.mark.parametrize("limit", [2, 40])
@pytest.mark.parametrize("claimer", CLAIMERS)
def test_no_claim_reads_a_backlog_of_others(beside: str, claimer: str, limit: int) -> None:
    """Neither the first one, which looks at the front, nor the ones behind it."""
    where = CLAIMERS[claimer]
    where.foreign_until = 0.0
    pairs = len(QUEUES) * len(where.types or ())
    bound = {"postgresql": 1100, "mysql": 6000 + 8 * pairs, "sqlite": 1000}
    got: list[Any] = []

    def work() -> None:
        with transaction.atomic():
            got.extend(claim(where, limit=limit, worker_id="w", beats=True))
            transaction.set_rollback(True)

    for _ in range(2):
        assert _read(work) < bound[family()]
    assert bool(got) == ("nothing" not in claimer and "no such" not in claimer)
    assert _read(lambda: has_work(where)) < bound[family()]


ONE_STATEMENT: dict[str, tuple[Sources, bool]] = {
    "announced": (sources(["q0"], ["mine.t3"]), False),
    "announced, the backlog": (sources(["q0"], ["foreign.t0"]), False),
    "looked at": (sources(None, TYPES), True),
    "looked at, the backlog": (sources(None, ["foreign.t0", "foreign.t1"]), True),
    "flowing": (sources(None, TYPES), True),
    "flowing, the backlog": (sources(None, ["foreign.t0", "foreign.t1"]), True),
    "flowing in one queue": (sources(["q0"], ["foreign.t0", "foreign.t1"]), True),
}


def begin_anew(where: Sources, claimer: str) -> None:
    """Let a claimer forget what it has learnt, but that a backlog flows."""
    where.foreign_until = where.usual_until = 0.0
    where.flows_until = inf if claimer.startswith("flowing") else 0.0


@pytest.mark.parametrize("claimer", ONE_STATEMENT)
def test_no_claim_by_one_statement_reads_a_backlog(beside: str, claimer: str, settings: Any) -> None:
    """Neither one of others nor its own."""
    if not dialect("default").updates_what_it_locks:
        pytest.skip("PostgreSQL only")
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}
    where, probe = ONE_STATEMENT[claimer]
    begin_anew(where, claimer)
    # With it comes the number of the clock's steps, without which no such claim is tried.
    due_times.next_deadline(using="default")
    with CaptureQueriesContext(connection) as queries:
        got = claim(where, limit=2, immediate=2, worker_id="w", beats=True, probe=probe)
    assert len(got) == 2
    release(*got)
    kinds = [query["sql"].split()[1] for query in queries if query["sql"].startswith("WITH")]
    # Where others have the front, a flow finds nothing there, and a look all.
    expected = {"flowing": ["served", "picked"]}
    usual = ["served" if claimer.startswith("flowing") else "picked"]
    assert [kind for kind in kinds if kind != "RECURSIVE"] == expected.get(claimer, usual)
    assert max(_pages(query["sql"]) for query in queries) < 1100


@pytest.mark.parametrize("queues", [["q0"], QUEUES], ids=["one queue", "queues"])
def test_no_fetch_over_http_reads_a_backlog(beside: str, queues: list[str], settings: Any) -> None:
    """In a session that may sort, as those of web servers do."""
    if not dialect("default").updates_what_it_locks:
        pytest.skip("PostgreSQL only")
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}
    with connection.cursor() as cursor:
        cursor.execute("RESET enable_sort; RESET enable_incremental_sort; RESET jit")
    due_times.next_deadline(using="default")
    with CaptureQueriesContext(connection) as queries:
        got = claim(sources(queues), limit=2, worker_id="w", beats=True, most_bytes=1 << 20)
    assert len(got) == 2
    release(*got)
    connection.close()
    assert sum(query["sql"].startswith("WITH picked") for query in queries) == 1
    assert max(_pages(query["sql"]) for query in queries) < 1100


def pages_read() -> int:
    """How many pages of jobs and their indexes all sessions have read so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read"
            " FROM pg_statio_user_tables WHERE relname = 'django_ojs_job'"
        )
        (pages,) = cursor.fetchone()
        return int(pages)


@pytest.mark.slow
@pytest.mark.parametrize("claimer", [*CLAIMERS, *ONE_STATEMENT])
def test_no_prepared_claim_reads_a_backlog(beside: str, claimer: str, settings: Any) -> None:
    """By the plans for parameters of any value, which sessions of workers use."""
    postgres: Any = connection
    if family() != "postgresql" or postgres.pg_version < 150000:
        pytest.skip("PostgreSQL 15 and newer say at once what was read")
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}
    where, probe = ONE_STATEMENT.get(claimer) or (CLAIMERS[claimer], True)

    def read() -> int:
        begin_anew(where, claimer)
        before = pages_read()
        got = claim(where, limit=2, immediate=2, worker_id="w", beats=True, probe=probe)
        pages = pages_read() - before
        release(*got)
        return pages

    with prepared_statements("default"):
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SET plan_cache_mode = force_generic_plan")
        due_times.next_deadline(using="default")
        for _ in range(6):
            read()
        assert read() < 1300
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM pg_prepared_statements WHERE generic_plans > 0")
            assert cursor.fetchone()[0] > 0
    connection.close()


def test_reading_the_backlog_would_be_noticed(beside: str) -> None:
    read = _read(lambda: list(Job.objects.filter(state="available", progress_message="x")))
    assert read > {"postgresql": 1100, "mysql": 20_000, "sqlite": 1000}[family()]
