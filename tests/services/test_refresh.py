"""A job that is asked for is as it would be if everything due were done (decision L5, T9)."""

from __future__ import annotations

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import NotFound
from django_ojs.domain.ids import uuid7
from django_ojs.models import Attempt, MaintenanceRun
from django_ojs.services import reaper
from django_ojs.services.up_to_date import find_up_to_date
from tests.services.support import fail, make, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def test_what_is_not_due_is_left_alone(frozen: FrozenClock) -> None:
    job = make(timeout="10s")[0]
    assert find_up_to_date(job.id) == now_stored(job)
    assert find_up_to_date(job.id).state == "available"


def test_scheduled_and_retryable_jobs_are_promoted(frozen: FrozenClock) -> None:
    later = make(delay="5s")[0]
    failed = make()[0]
    fail(*take())
    frozen.advance(1)
    assert find_up_to_date(later.id).state == "scheduled"
    frozen.advance(10)
    assert find_up_to_date(later.id).state == find_up_to_date(failed.id).state == "available"
    assert now_stored(later).state == "available"


def test_waiting_jobs_expire(frozen: FrozenClock) -> None:
    job = make(enqueue_ttl="2s")[0]
    frozen.advance(3)
    assert find_up_to_date(job.id).json("error")["type"] == "enqueue_ttl_expired"


def test_a_running_job_past_its_deadline_is_ended(frozen: FrozenClock) -> None:
    job = make(timeout="1s", grace_period="0s", retry={"max_attempts": 1})[0]
    take()
    frozen.advance(2)
    assert find_up_to_date(job.id).state == "discarded"
    assert Attempt.objects.get(job_id=job.id).outcome == "timeout"


def test_after_an_outage_the_living_are_heard_first(frozen: FrozenClock) -> None:
    """The scanner promised to come every second, and was away: nobody but it may end attempts."""
    job = make(timeout="1s", grace_period="0s")[0]
    reaper.scan(cadence=None, ran_by="t")
    frozen.advance(1)
    reaper.scan(cadence=None, ran_by="t")
    take()
    frozen.advance(60)
    assert find_up_to_date(job.id).state == "active"
    reaper.scan(cadence=None, ran_by="t")
    assert find_up_to_date(job.id).state == "active", "the scan gave it 15 s"
    frozen.advance(16)
    MaintenanceRun.objects.update(last_run_at=frozen.now("default"))
    assert find_up_to_date(job.id).state == "retryable"


def test_a_failed_scan_of_this_process_is_an_outage_too(frozen: FrozenClock) -> None:
    job = make(timeout="1s", grace_period="0s")[0]
    take()
    frozen.advance(2)
    reaper.note_outage()
    assert find_up_to_date(job.id).state == "active"
    reaper._failed.clear()
    assert find_up_to_date(job.id).state == "retryable"


def test_what_is_not_there() -> None:
    with pytest.raises(NotFound):
        find_up_to_date(uuid7(1, 1))
