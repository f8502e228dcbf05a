"""``attempt_ttl``: each attempt starts in time or the job is given up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from django_ojs.api import enqueue, retry
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.models import Event
from django_ojs.services import promote, queues, reap
from django_ojs.services.settle import Outcome, Report, settle
from tests.support import AnyJob

from .support import fail, held, now_stored, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
DEAD = {"initial_interval": "60s", "jitter": False, "on_exhaustion": "dead_letter"}
TTL = 30


def _new(job: AnyJob, frozen: FrozenClock) -> int:
    return 0


def _paused(job: AnyJob, frozen: FrozenClock) -> int:
    queues.pause([job.queue])
    return 0


def _failed(job: AnyJob, frozen: FrozenClock) -> int:
    fail(*take())
    assert now_stored(job).deadline_at is None, "it waits for its time, not for a worker"
    frozen.advance(60)
    assert promote.promote() == 1
    return 1


def _requeued(job: AnyJob, frozen: FrozenClock) -> int:
    (claimed,) = take()
    frozen.advance(600)
    settle([Outcome(held(claimed), Report.REQUEUE)])
    return 1


def _silent(job: AnyJob, frozen: FrozenClock) -> int:
    take(visibility_ms=600_000, beats=False)
    frozen.advance(600)
    assert dict(reap.reap().counts) == {"visibility": 1}
    return 1


def _retried(job: AnyJob, frozen: FrozenClock) -> int:
    frozen.advance(TTL)
    assert dict(reap.reap().counts) == {"enqueue_ttl": 1}
    frozen.advance(600)
    retry(job.id)
    return 0


@pytest.mark.fault("F71")
@pytest.mark.parametrize("become", [_new, _paused, _failed, _requeued, _silent, _retried])
def test_an_attempt_starts_in_time_or_the_job_is_given_up(
    frozen: FrozenClock, become: Callable[[JobRow, FrozenClock], int]
) -> None:
    """Counted from when it became available; never retried, never dead letter."""
    job = enqueue("test.job", attempt_ttl=TTL, retry=DEAD)
    attempt = become(job.row, frozen)
    before = Event.objects.filter(kind="job.ttl_expired").count()
    frozen.advance(TTL - 0.001)
    assert dict(reap.reap().counts) == {}
    assert now_stored(job).state == "available"
    frozen.advance(0.001)
    assert dict(reap.reap().counts) == {"enqueue_ttl": 1}
    stored = now_stored(job)
    assert (stored.state, stored.attempt, stored.dead_letter) == ("discarded", attempt, False)
    error = stored.json("error")
    assert (error["type"], error["timeout_kind"]) == ("enqueue_ttl_expired", "enqueue_ttl")
    assert (error["limit_seconds"], error["elapsed_seconds"]) == (TTL, TTL)
    assert Event.objects.filter(kind="job.ttl_expired").count() == before + 1


@pytest.mark.fault("F71")
def test_it_counts_from_the_time_that_it_was_scheduled_for(frozen: FrozenClock) -> None:
    job = enqueue("test.job", attempt_ttl=TTL, delay=600)
    assert job.deadline_at is None
    frozen.advance(600)
    assert promote.promote() == 1
    assert now_stored(job).deadline_at == job.created_at + timedelta(seconds=600 + TTL)


@pytest.mark.fault("F71")
def test_what_was_given_back_unbegun_has_what_is_left(frozen: FrozenClock) -> None:
    job = enqueue("test.job", attempt_ttl=TTL)
    frozen.advance(10)
    (claimed,) = take()
    frozen.advance(10)
    release(claimed)
    assert now_stored(job).deadline_at == job.created_at + timedelta(seconds=TTL)
    assert [again.id for again in take()] == [job.id]
    frozen.advance(TTL)
    assert dict(reap.reap().counts) == {}, "it has started"


@pytest.mark.fault("F71")
def test_a_claim_that_meets_it_too_late_gives_it_up(frozen: FrozenClock) -> None:
    job = enqueue("test.job", attempt_ttl=TTL, retry=DEAD)
    fail(*take())
    frozen.advance(60)
    assert promote.promote() == 1
    frozen.advance(TTL)
    assert take() == []
    assert now_stored(job).state == "discarded"
