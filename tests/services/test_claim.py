"""Who gets which job: order, types, pauses, priorities; a lease is fresh at every claim."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.api import enqueue, enqueue_many
from django_ojs.clock import FrozenClock
from django_ojs.models import Job, Queue
from django_ojs.services import queues
from django_ojs.services.claim import claim, has_work, sources

from .support import claimed_by_many, make, now_stored, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def _numbers(jobs: list) -> list[int]:  # type: ignore[type-arg]
    return [job.json("args")[0] for job in jobs]


def test_a_claim_returns_what_it_wrote() -> None:
    make()
    (job,) = take(worker="w7")
    assert now_stored(job) == job
    assert (job.state, job.attempt, job.lease_seq, job.worker_id) == ("active", 1, 1, "w7")


def test_priority_then_age() -> None:
    for number, priority in enumerate([0, 5, -5, 5, 0]):
        enqueue("test.job", [number], priority=priority)
    assert _numbers(take(10)) == [1, 3, 0, 4, 2]


def test_queues_are_served_in_the_order_named() -> None:
    enqueue("test.job", [1], queue="low", priority=100)
    enqueue("test.job", [2], queue="high", priority=-100)
    assert _numbers(take(2, queues=("high", "low"))) == [2, 1]


def test_unranked_queues_are_one_pool() -> None:
    enqueue("test.job", [1], queue="a", priority=1)
    enqueue("test.job", [2], queue="b", priority=2)
    where = sources(["a", "b"], ["test.job"], ranked=False)
    assert _numbers(claim(where, limit=2, worker_id="w", beats=True)) == [2, 1]


def test_only_known_types_are_claimed() -> None:
    enqueue("foreign.job", [1])
    enqueue("test.job", [2])
    assert _numbers(take(10)) == [2]
    assert _numbers(take(10, types=None)) == [1]


def test_names_differ_by_case_nowhere() -> None:
    """MariaDB's default collation would take these for the same."""
    Job.objects.all().delete()
    Queue.objects.create(name="mixed")
    enqueue("test.job", [1], queue="mixed")
    assert not has_work(sources(["MIXED"], None))
    assert has_work(sources(["mixed"], None))


@pytest.mark.fault("F66")
def test_a_paused_queue_is_not_claimed_but_accepts_jobs() -> None:
    make(1)
    assert queues.pause(["default"]) == ["default"]
    make(1)
    assert take(10) == []
    assert not has_work(sources(["default"], None))
    assert queues.pause(["default"]) == []
    assert queues.resume(["default"]) == ["default"]
    assert len(take(10)) == 2


def test_jobs_with_one_attempt_are_never_taken_ahead() -> None:
    make(4, retry={"max_attempts": 1})
    make(3)
    first = take(10, immediate=2)
    assert [job.max_attempts for job in first] == [1, 1, 3, 3, 3]
    assert len(take(10)) == 2


@pytest.mark.fault("F65")
def test_every_claim_has_a_new_lease() -> None:
    make()
    seen = set()
    for _ in range(3):
        (job,) = take()
        seen.add(job.lease_id)
        release(job)
    assert len(seen) == 3
    assert now_stored(job).lease_seq == 3


def test_scheduled_and_pending_jobs_are_not_claimed(frozen: FrozenClock) -> None:
    enqueue("test.job", [1], delay=10)
    enqueue("test.job", [2], pending=True)
    assert take(10) == []


@pytest.mark.slow
@pytest.mark.fault("F53")
def test_many_claimers_get_each_job_once() -> None:
    make(300)

    def work(mine: list[int]) -> None:
        while has_work(sources(["default"], ["test.job"])):
            mine += _numbers(take(7))

    got = claimed_by_many(work)
    assert sorted(number for mine in got for number in mine) == list(range(300))


def test_a_claim_goes_on_behind_what_has_expired(frozen: FrozenClock) -> None:
    make(25, enqueue_ttl="1s")
    frozen.advance(2)
    good = make()[0]
    assert [job.id for job in take(1)] == [good.id]
    assert Job.objects.filter(state="discarded").count() == 25


@pytest.mark.parametrize("queues", [("default",), ("default", "other")])
def test_expired_jobs_are_discarded_many_at_a_time(
    frozen: FrozenClock, queues: tuple[str, ...]
) -> None:
    """A claim of one job is not one transaction for each job that has expired before it."""
    enqueue_many("test.job", [[number] for number in range(2000)], enqueue_ttl="1s")
    frozen.advance(2)
    good = make()[0]
    with CaptureQueriesContext(connection) as made:
        assert [job.id for job in take(1, queues=queues, expire_for=60)] == [good.id]
    assert len(made) < 500
    assert Job.objects.filter(state="discarded").count() == 2000


def test_a_claim_ends_though_more_has_expired(frozen: FrozenClock) -> None:
    """The next one goes on."""
    enqueue_many("test.job", [[number] for number in range(600)], enqueue_ttl="1s")
    frozen.advance(2)
    good = make()[0]
    assert take(1, expire_for=0) == []
    left = Job.objects.filter(state="available").count()
    assert 300 < left < 600
    assert take(1, expire_for=0) == []
    assert Job.objects.filter(state="available").count() < left
    assert [job.id for job in take(1)] == [good.id]
