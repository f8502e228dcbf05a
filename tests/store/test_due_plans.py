"""What enforcement reads beside a backlog: as much as it takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store import inserting, locking
from tests.store.records import record
from tests.store.test_claim_plans import _read
from tests.support import analyze_jobs, drop_dead_rows, family

pytestmark = pytest.mark.every_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAKEN = 100


def _reads(backlog: int) -> int:
    Job.objects.all().delete()
    drop_dead_rows()
    due = {"state": State.SCHEDULED, "scheduled_at": NOW}
    inserting.jobs([record("q", "t", NOW, **due) for _ in range(backlog)], using="default")
    analyze_jobs()
    found: list[UUID] = []
    read = _read(lambda: found.extend(locking.promotable(NOW, TAKEN, using="default")))
    assert len(set(found)) >= TAKEN
    return read


@pytest.mark.slow
def test_promotion_reads_no_more_than_it_takes(ojs_db: None) -> None:
    """Of both states together all of it was read, and sorted, for every batch."""
    assert _reads(6000) <= 3 * _reads(300) + 20


LATER = NOW + timedelta(hours=1)
LOOKS: dict[str, Callable[[], object]] = {
    "all": lambda: locking.active(None, using="default"),
    "with a deadline": lambda: locking.active(LATER, using="default"),
    "past their deadline": lambda: locking.running_past_deadline(LATER, using="default"),
}


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_what_runs_reads_nothing_else(ojs_db: None, look: str, known: bool) -> None:
    """In the order of their ids every job was read where nothing ran when statistics were taken."""
    drop_dead_rows()
    ended = {"state": State.COMPLETED, "attempt": 1, "started_at": NOW, "finished_at": NOW}
    waiting = {"expires_at": NOW, "deadline_at": NOW}
    inserting.jobs([record("q", "t", NOW, **ended) for _ in range(6000)], using="default")
    inserting.jobs([record("q", "t", NOW, **waiting) for _ in range(2000)], using="default")
    if known:
        analyze_jobs()
    assert _read(LOOKS[look]) < {"postgresql": 60, "mysql": 100, "sqlite": 20}[family()]
