"""What pruning reads of jobs that it must keep: a window of them, however many they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ojs import clock, group, step
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services import prune
from django_ojs.store import inserting
from tests.store.records import record
from tests.store.test_claim_plans import _read
from tests.support import analyze_jobs, drop_dead_rows

pytestmark = pytest.mark.every_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(days=60)


def _reads(kept: int, fields: dict[str, Any]) -> int:
    """What the second of two passes reads beside so many of these."""
    Job.objects.filter(type="t").delete()
    drop_dead_rows()
    for start in range(0, kept, 3000):
        ended = [NOW + timedelta(seconds=number) for number in range(start, start + 3000)]
        inserting.jobs(
            [record("q", "t", at, started_at=at, finished_at=at, **fields) for at in ended],
            using="default",
        )
    analyze_jobs()
    front = prune.Front()
    prune.prune(front=front)
    read = _read(lambda: prune.prune(front=front))
    assert Job.objects.filter(type="t").count() == kept
    return read


def _dead_letters() -> dict[str, Any]:
    return {"state": State.DISCARDED, "attempt": 1, "dead_letter": True}


def _members() -> dict[str, Any]:
    made = group(step("test.job")).enqueue()
    return {"state": State.COMPLETED, "attempt": 1, "workflow_id": made.id, "workflow_step": 0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [_dead_letters, _members])
def test_a_pass_does_not_read_again_what_it_keeps(ojs_db: None, kind: Any) -> None:
    with clock.using_clock(clock.FrozenClock(LATER)):
        fields = kind()
        few = _reads(3000, fields)
        assert _reads(15_000, fields) <= 1.5 * few + 50
