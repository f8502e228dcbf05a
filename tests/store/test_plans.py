"""With 200,000 rows (50,000 on SQLite) the hot reads use their indexes: promote, reap, beats, prune."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from benchmarks.rows import load
from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease, RenewedLease
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services import backlog, http_workers, inspect, rollup
from django_ojs.store import due_times, inserting, leases, locking, selectors
from tests.support import analyze_jobs, family

from .records import record

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 50_000 if family() == "sqlite" else 200_000
MINE = 200
pytestmark = pytest.mark.timeout(900)
"""The table takes seconds; a busy machine has them all the same."""


def _row(number: int) -> JobRow:
    """One of the newest jobs, of a type of its own."""
    state = (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE, State.ACTIVE)[number % 4]
    running = state == State.ACTIVE
    at = NOW + timedelta(seconds=number)
    return record(
        "default",
        "test.mine",
        at,
        state=state,
        attempt=int(running),
        lease_seq=int(running),
        lease_id=clock.new_lease() if running else None,
        worker_id="w" if running else None,
        scheduled_at=at if state in (State.SCHEDULED, State.RETRYABLE) else None,
        started_at=at if running else None,
        heartbeat_at=at if running else None,
        heartbeat_armed=running,
        deadline_at=at + timedelta(hours=1) if running else None,
    )


@pytest.fixture(scope="module")
def full(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A table of many jobs with fresh statistics: foreign types in front, a history behind."""
    from tests.conftest import empty_tables

    with django_db_blocker.unblock():
        empty_tables()
        load(ROWS - MINE, NOW + timedelta(seconds=ROWS - MINE), using="default")
        inserting.jobs([_row(n) for n in range(ROWS - MINE, ROWS)], using="default")
        analyze_jobs()
        yield
        empty_tables()


def _scans(statement: str) -> list[str]:
    """The parts of a statement's plan that read the whole job table, or sort much of it."""
    with connection.cursor() as cursor:
        if family() == "postgresql":
            cursor.execute("EXPLAIN (FORMAT JSON) " + statement)
            plan = cursor.fetchone()[0]
            tree = json.loads(plan) if isinstance(plan, str) else plan
            return _postgres(tree[0]["Plan"])
        if family() == "sqlite":
            cursor.execute("EXPLAIN QUERY PLAN " + statement)
            details = [row[3] for row in cursor.fetchall()]
            return [d for d in details if re.match(r"SCAN (j|django_ojs_job)\b(?!.*USING)", d)]
        cursor.execute("EXPLAIN " + statement)
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return [
            str(row)
            for row in rows
            if row["table"] in ("j", "django_ojs_job") and (row["type"] == "ALL" or not row["key"])
        ]


def _postgres(node: dict[str, Any]) -> list[str]:
    bad = []
    if node["Node Type"] == "Seq Scan" and node.get("Relation Name") == "django_ojs_job":
        bad.append(json.dumps(node))
    for child in node.get("Plans", ()):
        bad += _postgres(child)
    return bad


def _check(call: Any) -> list[str]:
    """Run ``call`` in a transaction that is rolled back; the bad parts of its statements' plans."""
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        call()
        transaction.set_rollback(True)
    bad = []
    for query in queries:
        sql = query["sql"]
        if "django_ojs_job" in sql and re.match(r"(SELECT|UPDATE|DELETE)", sql):
            bad += _scans(sql)
    assert any("django_ojs_job" in query["sql"] for query in queries)
    return bad


@pytest.mark.fault("F98")
def test_without_statistics_the_index_is_used_as_well(full: None) -> None:
    """As after a bulk load that nobody has analysed yet."""
    with connection.cursor() as cursor:
        if family() == "mysql":
            pytest.skip("InnoDB keeps its statistics itself")
        if family() == "postgresql":
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if not cursor.fetchone()[0]:
                pytest.skip("only a superuser may delete statistics")
    late = NOW + timedelta(days=30)
    reads = (
        lambda: due_times.next_deadline(using="default"),
        lambda: locking.past_deadline(late, 100, using="default"),
        lambda: locking.promotable(late, 100, using="default"),
    )
    with transaction.atomic():
        with connection.cursor() as cursor:
            if family() == "postgresql":
                cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'django_ojs_job'::regclass")
                assert cursor.rowcount > 0
                cursor.execute(
                    "UPDATE pg_class SET reltuples = 0, relpages = 0"
                    " WHERE oid = 'django_ojs_job'::regclass"
                )
            else:
                cursor.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'django_ojs_job'")
                assert cursor.rowcount > 0
                cursor.execute("ANALYZE sqlite_schema")
        assert [_check(read) for read in reads] == [[]] * len(reads)
        transaction.set_rollback(True)
    connection.close()


@pytest.mark.slow
def test_probes_of_what_is_due_next(full: None) -> None:
    assert _check(lambda: due_times.next_deadline(using="default")) == []
    assert _check(lambda: due_times.next_due(using="default")) == []
    assert _check(lambda: selectors.queues_with_work(using="default")) == []


def test_promotion_and_reaping(full: None) -> None:
    late = NOW + timedelta(days=30)
    assert _check(lambda: locking.promotable(late, 100, using="default")) == []
    assert _check(lambda: locking.past_deadline(late, 100, using="default")) == []
    assert _check(lambda: due_times.next_stall_deadlines(100, using="default")) == []


def test_beats(full: None) -> None:
    held = [
        Lease(row.id, row.lease_id)
        for row in Job.objects.filter(state=State.ACTIVE)[:20]
        if row.lease_id
    ]
    assert len(held) == 20
    kept: list[RenewedLease] = []
    assert _check(lambda: kept.extend(leases.write(held, {"heartbeat_at": NOW}, using="default"))) == []
    assert {k.lease_id for k in kept} == {h.lease_id for h in held}


def test_pruning(full: None) -> None:
    before = NOW + timedelta(days=30)
    for since in (None, NOW - timedelta(days=300)):
        found = _check(
            lambda since=since: locking.finished_before(
                State.COMPLETED, before, 100, since=since, using="default"
            )
        )
        assert found == []


def test_the_roll_up(full: None) -> None:
    """Several times a minute, however long the history."""
    reads: dict[str, Callable[[], object]] = {
        "the next minute with work": lambda: rollup._busy_from(NOW, "default"),
        "a minute": lambda: rollup._minute(NOW, "default"),
    }
    assert {name: _check(read) for name, read in reads.items()} == {name: [] for name in reads}


def test_figures(full: None) -> None:
    reads: dict[str, Callable[[], object]] = {
        "a queue": lambda: selectors.ended_since("q0", NOW, using="default"),
        "what waits for maintenance": lambda: backlog.backlog(now=NOW, using="default"),
        "silent workers": lambda: http_workers.silent(now=NOW, using="default"),
        "jobs of the last minute": lambda: inspect.figures(["*"], "", using="default"),
    }
    assert {name: _check(read) for name, read in reads.items()} == {name: [] for name in reads}


def test_a_scan_would_be_noticed(full: None) -> None:
    assert _check(lambda: list(Job.objects.filter(progress_message="x"))) != []
