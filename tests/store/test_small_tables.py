"""A session's plan outlives the table that it was made for: small when the worker began, large now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from django.db import connection

from django_ojs.models import Job, Queue
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report, Verdict, settle
from django_ojs.store import due_times, inserting
from django_ojs.store.dialect import dialect
from django_ojs.store.dialects import postgresql
from django_ojs.store.sessions import prepared_statements, read_in_index_order
from tests.services.support import held, release
from tests.support import analyze_jobs, drop_dead_rows, family

from .records import record
from .test_claim_plans import pages_read, set_autovacuum

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db"), pytest.mark.slow]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = 20_000
"""Jobs that come after the plans are made; no statistics tell of them."""


@pytest.fixture(autouse=True)
def worker(settings: Any) -> Iterator[None]:
    """A session as a worker has, and statistics as they are."""
    postgres: Any = connection
    if family() != "postgresql" or postgres.pg_version < 150000:
        pytest.skip("PostgreSQL 15 and newer say at once what was read")
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}
    drop_dead_rows()
    set_autovacuum("false")
    with read_in_index_order("default"), prepared_statements("default"):
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SET plan_cache_mode = force_generic_plan")
        yield
    connection.close()
    set_autovacuum(None)
    Job.objects.all().delete()
    analyze_jobs()


def store(count: int, start: int = 0) -> None:
    """So many available jobs of two types."""
    rows = [
        record("q", f"mine.t{n % 2}", NOW + timedelta(seconds=n)) for n in range(start, start + count)
    ]
    for first in range(0, count, 4000):
        inserting.jobs(rows[first : first + 4000], using="default")


@pytest.mark.parametrize("way", ["look", "flow", "announced", "ack"])
@pytest.mark.parametrize("size", [20, 60, 400, 900])
def test_a_plan_for_a_small_table_reads_no_large_one(
    size: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few pages a scan is the cheapest plan. What goes by keys can be planned no other way for a
    while, since a whole index may cost less than ten of them.
    """
    Queue.objects.create(name="q", created_at=NOW)
    store(size + 45)
    analyze_jobs()
    types = ["mine.t0"] if way == "announced" else ["mine.t0", "mine.t1"]
    where = sources(["q"] if way == "announced" else None, types)
    due_times.next_deadline(using="default")

    def once() -> int:
        where.flows_until = inf if way == "flow" else 0.0
        probe = way != "announced"
        places = [pages_read()]
        got = claim(where, limit=9, immediate=9, worker_id="w", beats=True, probe=probe)
        places.append(pages_read())
        assert len(got) == 9
        if way == "ack":
            outcomes = [Outcome(held(job), Report.ACK, claimed=job) for job in got]
            assert {result.verdict for result in settle(outcomes)} == {Verdict.SETTLED}
            places = [places[-1], pages_read()]
        else:
            release(*got)
        return places[1] - places[0]

    for _ in range(5):
        once()
    store(LATER, size + 45)
    if way in ("look", "ack"):
        monkeypatch.setattr(postgresql, "_PLANS_FOR", 0.0)
        monkeypatch.setattr(dialect("default"), "_planned_until", 0.0)
    assert once() < 500
