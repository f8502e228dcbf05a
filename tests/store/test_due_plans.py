"""What the promotion reads of a backlog that is all due: as much as it takes."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store import inserting, locking
from tests.store.records import record
from tests.store.test_claim_plans import _read
from tests.support import analyze_jobs

pytestmark = pytest.mark.every_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAKEN = 100


def _reads(backlog: int) -> int:
    Job.objects.all().delete()
    due = {"state": State.SCHEDULED, "scheduled_at": NOW}
    inserting.jobs([record("q", "t", NOW, **due) for _ in range(backlog)], using="default")
    analyze_jobs()
    found: list[UUID] = []
    read = _read(lambda: found.extend(locking.promotable(NOW, TAKEN, using="default")))
    assert len(set(found)) >= TAKEN
    return read


def test_promotion_reads_no_more_than_it_takes(ojs_db: None) -> None:
    """Of both states together all of it was read, and sorted, for every batch."""
    assert _reads(6000) <= 3 * _reads(300) + 20
