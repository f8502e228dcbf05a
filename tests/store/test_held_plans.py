"""What jobs that wait behind a blocked key cost others: nothing, whatever is known of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs import clock
from django_ojs.domain.rate_limit import parse_rate_limit
from django_ojs.models import Queue, RateLimitPlace
from django_ojs.services.claim import claim, sources
from django_ojs.services.rate_limits import admission, policies
from django_ojs.store.sessions import read_in_index_order
from tests.support import analyze_jobs, drop_dead_rows, family

from .test_claim_plans import NOW, OURS, QUEUES, TYPES, _ours, _read, _store, set_autovacuum

pytestmark = pytest.mark.every_database

KEY = "blocked"
EXTRA = '{"rate_limit": {"key": "blocked", "concurrency": 0}}'
LIMIT = 5
MANY = 40_000
MILLION = 1_000_000


@pytest.fixture
def table(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Our jobs, and fresh statistics of them."""
    from tests.conftest import empty_tables

    with django_db_blocker.unblock(), read_in_index_order("default"):
        empty_tables()
        connection.close()
        drop_dead_rows()
        set_autovacuum("false")
        Queue.objects.bulk_create(Queue(name=name, created_at=NOW) for name in QUEUES)
        _ours()
        analyze_jobs()
        yield
        set_autovacuum(None)
        empty_tables()
        analyze_jobs()


def _behind_a_blocked_key(count: int) -> None:
    """Older than ours, in the first of our queues, of our types."""
    _store(count, 1, "mine.t", 3, NOW, held=True, hooks=policies.LIMITED, extra=EXTRA)


def _take(where: Any) -> Callable[[], None]:
    def work() -> None:
        with transaction.atomic():
            assert len(claim(where, limit=LIMIT, worker_id="w", beats=True)) == LIMIT
            transaction.set_rollback(True)

    return work


@pytest.mark.parametrize("known", ["fresh", "stale"])
@pytest.mark.parametrize("count", [MANY, pytest.param(MILLION, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_a_claim_reads_no_page_more(table: None, count: int, known: str) -> None:
    claimers = {
        "all queues": sources(None, TYPES),
        "one queue": sources(["q0"], TYPES),
        "one pair": sources(["q0"], ["mine.t0"]),
        "all types": sources(["q0"]),
    }
    before = {name: _read(_take(where)) for name, where in claimers.items()}
    _behind_a_blocked_key(count)
    if known == "fresh":
        analyze_jobs()
    after = {name: _read(_take(where)) for name, where in claimers.items()}
    for name in claimers:
        # In a larger table each row that is taken is found through a few levels of its key.
        assert after[name] <= before[name] + 4 * LIMIT, (name, before[name], after[name])
    assert count > OURS


@pytest.mark.slow
def test_an_admission_reads_no_backlog(table: None) -> None:
    _behind_a_blocked_key(MANY)
    RateLimitPlace.objects.bulk_create(
        [
            RateLimitPlace(
                key=KEY,
                status=RateLimitPlace.Status.WAITING,
                enqueued_at=NOW,
                job_id=clock.new_id(),
                queue="q0",
            )
            for _ in range(MANY)
        ],
        batch_size=2000,
    )
    policy = parse_rate_limit({"key": KEY, "concurrency": 1})
    with connection.cursor() as cursor:
        if family() == "postgresql":
            cursor.execute("ANALYZE django_ojs_ratelimitplace")

    def work() -> None:
        admission.changed({KEY: policy}, now=clock.now("default"), using="default")

    work()
    read = _read(work)
    assert read < {"postgresql": 200, "mysql": 200, "sqlite": 200}[family()]
