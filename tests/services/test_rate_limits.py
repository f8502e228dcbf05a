"""Rate limits: who is held, who is let in, and when (OJS rate limiting)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock, enqueue, enqueue_many, get
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.models import Event, Job, RateLimit, RateLimitDue, RateLimitPlace
from django_ojs.services import operate, promote, queues, reap, turns
from django_ojs.services.claim import claim, sources
from django_ojs.services.prune import prune
from django_ojs.services.rate_limits import admission, places, policies
from django_ojs.services.rate_limits import operate as operate_limits
from django_ojs.services.settle import Outcome, Report, settle
from django_ojs.store import due_times

from .support import (
    ack,
    bounded,
    elsewhere,
    fail,
    held,
    holding,
    make,
    nobody_admits,
    now_stored,
    release,
    take,
)

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ONE = {"key": "a", "concurrency": 1}
TWO = {"key": "a", "concurrency": 2}


def ids(jobs: list[JobRow]) -> list[Any]:
    return [job.id for job in jobs]


def waiting(key: str = "a") -> int:
    return RateLimitPlace.objects.filter(key=key, status=RateLimitPlace.Status.WAITING).count()


def test_no_more_than_the_limit_are_claimed() -> None:
    jobs = make(3, rate_limit=TWO)
    assert ids(take(3)) == ids(jobs[:2])
    assert take(1) == []
    assert get(jobs[2]).state == "available"
    assert now_stored(jobs[2]).held


def test_a_place_is_free_when_the_job_ends() -> None:
    jobs = make(3, rate_limit=ONE)
    (first,) = take(3)
    ack(first)
    (second,) = take(3)
    fail(second, retryable=False)
    (third,) = take(3)
    ack(third)
    assert ids([first, second, third]) == ids(jobs)
    assert not RateLimitPlace.objects.exists()


def test_other_jobs_are_not_held() -> None:
    make(2, rate_limit=ONE)
    other = make(1, rate_limit={"key": "b", "concurrency": 1})
    plain = make(1)
    assert {job.id for job in take(9)} > {other[0].id, plain[0].id}


def test_a_plain_job_asks_nothing_of_rate_limits() -> None:
    make(3, rate_limit=ONE)
    with CaptureQueriesContext(connection) as seen:
        make(1, job_type="test.plain")
        (job,) = take(1, types=("test.plain",))
        ack(job)
    assert not [query["sql"] for query in seen if "ratelimit" in query["sql"]]


def test_higher_priority_first_then_the_older() -> None:
    (running,) = make(1, rate_limit=ONE)
    low = enqueue("test.job", [1], rate_limit=ONE, priority=-1)
    older = enqueue("test.job", [2], rate_limit=ONE)
    newer = enqueue("test.job", [3], rate_limit=ONE)
    high = enqueue("test.job", [4], rate_limit=ONE, priority=5)
    order = []
    for _ in range(5):
        (job,) = take(5)
        order.append(job.id)
        ack(job)
    assert order == [running.id, high.id, older.id, newer.id, low.id]


def test_a_retry_gives_its_place_up_and_waits_again(frozen: FrozenClock) -> None:
    jobs = make(2, rate_limit=ONE, retry={"initial_interval": "10s", "jitter": False})
    (first,) = take(2)
    fail(first)
    (second,) = take(2)
    frozen.advance(60)
    promote.promote()
    assert take(2) == []
    assert now_stored(jobs[0]).held
    ack(second)
    assert ids(take(2)) == ids(jobs[:1])


def test_a_released_job_keeps_its_place() -> None:
    jobs = make(2, rate_limit=ONE)
    (first,) = take(2)
    release(first)
    assert ids(take(2)) == ids(jobs[:1])


def test_requeued_jobs_go_behind() -> None:
    jobs = make(2, rate_limit=ONE)
    (first,) = take(2)
    settle([Outcome(held(first), Report.REQUEUE)])
    assert ids(take(2)) == ids(jobs[1:])


def test_a_scheduled_job_takes_no_place_before_its_time(frozen: FrozenClock) -> None:
    later = enqueue("test.job", [0], rate_limit=ONE, delay=60)
    (now,) = make(1, rate_limit=ONE)
    (claimed,) = take(2)
    assert claimed.id == now.id
    frozen.advance(61)
    promote.promote()
    assert take(2) == []
    ack(claimed)
    assert ids(take(2)) == [later.id]


def test_cancelling_lets_the_next_in() -> None:
    jobs = make(3, rate_limit=ONE)
    operate.cancel([jobs[0].id])
    operate.cancel([jobs[1].id])
    assert ids(take(3)) == ids(jobs[2:])


def test_a_cancelled_handler_keeps_its_place_until_its_grace_is_over(frozen: FrozenClock) -> None:
    jobs = make(2, rate_limit=ONE, grace_period="30s")
    (first,) = take(1)
    operate.cancel([first.id])
    assert take(2) == []
    frozen.advance(29)
    admission.admit_due(using="default")
    assert take(2) == []
    frozen.advance(7)
    admission.admit_due(using="default")
    assert ids(take(2)) == ids(jobs[1:])


def test_a_cancelled_handler_that_has_ended_frees_its_place(frozen: FrozenClock) -> None:
    jobs = make(2, rate_limit=ONE, grace_period="30s")
    (first,) = take(1)
    operate.cancel([first.id])
    assert first.lease_id is not None
    places.ended([first.lease_id], using="default")
    assert ids(take(2)) == ids(jobs[1:])


def test_a_late_report_frees_the_place(frozen: FrozenClock) -> None:
    jobs = make(2, rate_limit=ONE, grace_period="30s")
    (first,) = take(1)
    operate.cancel([first.id])
    ack(first)
    assert ids(take(2)) == ids(jobs[1:])


def test_a_stalled_job_frees_its_place_at_once(frozen: FrozenClock) -> None:
    jobs = make(2, rate_limit=ONE, heartbeat_timeout="10s", grace_period="1h")
    take(1)
    frozen.advance(11)
    reap.reap()
    assert ids(take(2))[:1] == ids(jobs[1:])


def test_a_manual_retry_waits_for_a_place() -> None:
    (dead,) = make(1, rate_limit=ONE, retry={"max_attempts": 1})
    (claimed,) = take(1)
    fail(claimed)
    (other,) = make(1, rate_limit=ONE)
    (running,) = take(1)
    assert running.id == other.id
    operate.retry_dead([dead.id])
    assert take(1) == []
    ack(running)
    assert ids(take(1)) == [dead.id]


def test_an_expired_job_frees_what_it_had(frozen: FrozenClock) -> None:
    jobs = make(2, rate_limit=ONE)
    old = enqueue("test.job", [0], rate_limit={"key": "b", "concurrency": 1}, enqueue_ttl="5s")
    new = enqueue("test.job", [0], rate_limit={"key": "b", "concurrency": 1})
    frozen.advance(6)
    reap.reap()
    assert get(old).state == "discarded"
    assert {job.id for job in take(5)} == {jobs[0].id, new.id}


def test_the_latest_policy_of_a_key_wins() -> None:
    make(3, rate_limit=ONE)
    enqueue("test.job", [9], rate_limit={"key": "a", "concurrency": 3})
    assert len(take(9)) == 3


def test_zero_lets_nobody_in() -> None:
    make(1, rate_limit={"key": "a", "concurrency": 0})
    assert take(1) == []
    make(1, rate_limit=ONE)
    assert len(take(2)) == 1


def test_jobs_of_a_rolled_back_transaction_take_no_place() -> None:
    with transaction.atomic():
        make(1, rate_limit=ONE)
        transaction.set_rollback(True)
    assert not RateLimitPlace.objects.exists()
    jobs = make(1, rate_limit=ONE)
    assert ids(take(1)) == ids(jobs)


def test_many_jobs_of_one_call() -> None:
    enqueue_many("test.job", [[n] for n in range(300)], rate_limit={"key": "a", "concurrency": 250})
    assert Job.objects.filter(held=True).count() == 50
    assert waiting() == 50
    assert not RateLimitDue.objects.exists()


def test_an_admission_that_died_is_made_up_for(frozen: FrozenClock) -> None:
    with nobody_admits():
        jobs = make(2, rate_limit=ONE)
    assert take(2) == []
    frozen.advance(1)
    assert admission.admit_due(using="default")
    # Its policy came with the call that died: by the job.
    assert ids(take(2)) == ids(jobs[:1])


def test_a_window_counts_starts(frozen: FrozenClock) -> None:
    limit = {"key": "a", "rate": {"limit": 2, "period": "10s"}}
    make(5, rate_limit=limit)
    assert len(ack(*take(1))) == 1
    frozen.advance(6)
    assert len(ack(*take(5))) == 1
    assert take(5) == []
    frozen.advance(4.1)
    admission.admit_due(using="default")
    assert len(ack(*take(5))) == 1
    assert take(5) == []
    frozen.advance(6)
    admission.admit_due(using="default")
    assert len(take(5)) == 1


def test_jobs_that_found_no_worker_do_not_start_with_the_next_window(frozen: FrozenClock) -> None:
    make(10, rate_limit={"key": "a", "rate": {"limit": 3, "period": "10s"}})
    frozen.advance(60)
    admission.admit_due(using="default")
    assert len(take(10)) == 3
    assert take(10) == []


@pytest.mark.slow
def test_a_throttle_spaces_starts_evenly(frozen: FrozenClock) -> None:
    make(4, rate_limit={"key": "a", "throttle": {"limit": 60, "period": "PT1M"}})
    for _ in range(3):
        assert len(take(4)) == 1
        assert take(4) == []
        frozen.advance(0.9)
        admission.admit_due(using="default")
        assert take(4) == []
        frozen.advance(0.2)
        admission.admit_due(using="default")
    assert len(take(4)) == 1


def test_concurrency_and_rate_hold_together(frozen: FrozenClock) -> None:
    limit = {"key": "a", "concurrency": 1, "rate": {"limit": 2, "period": "10s"}}
    make(4, rate_limit=limit)
    (first,) = take(4)
    assert take(4) == []
    ack(first)
    (second,) = take(4)
    ack(second)
    assert take(4) == []
    frozen.advance(11)
    admission.admit_due(using="default")
    assert len(take(4)) == 1


def test_what_finds_no_place_is_dropped_if_asked() -> None:
    jobs = make(3, rate_limit={"key": "a", "concurrency": 1, "on_limit": "drop"})
    states = [get(job).state for job in jobs]
    assert states == ["available", "discarded", "discarded"]
    stored = now_stored(jobs[1])
    assert stored.json("error")["type"] == "rate_limited"
    assert not stored.dead_letter
    assert ids(take(3)) == ids(jobs[:1])
    kinds = Event.objects.filter(kind__startswith="rate_limit").order_by("id")
    assert list(kinds.values_list("kind", flat=True)) == ["rate_limit.dropped"] * 2


def test_what_finds_no_place_is_put_off_if_asked(frozen: FrozenClock) -> None:
    limit = {"key": "a", "rate": {"limit": 1, "period": "10s"}, "on_limit": "reschedule"}
    (first,) = make(1, rate_limit=limit)
    assert ids(take(1)) == [first.id]
    (second,) = make(1, rate_limit=limit)
    stored = now_stored(second)
    assert stored.state == "scheduled"
    assert stored.scheduled_at is not None
    assert (stored.scheduled_at - clock.now("default")).total_seconds() == 10
    frozen.advance(11)
    promote.promote()
    assert ids(take(1)) == [second.id]


def test_what_is_put_off_is_in_the_way_of_no_deadline(frozen: FrozenClock) -> None:
    limit = {"key": "a", "rate": {"limit": 0, "period": "1h"}, "on_limit": "reschedule"}
    jobs = [[number] for number in range(turns.BATCH)]
    enqueue_many("test.job", jobs, rate_limit=limit, attempt_ttl=2)
    assert set(Job.objects.values_list("state", flat=True)) == {"scheduled"}
    plain = enqueue("test.job", enqueue_ttl=5)
    frozen.advance(6)
    reap.reap()
    assert get(plain).state == "discarded"
    assert due_times.next_deadline(using="default") is None


@pytest.mark.slow
def test_an_episode_is_told_once_when_it_begins_and_when_it_ends() -> None:
    make(4, rate_limit=ONE)
    for _ in range(4):
        ack(*take(1))
    told = Event.objects.filter(kind__startswith="rate_limit").order_by("id")
    assert [event.kind for event in told] == ["rate_limit.exceeded", "rate_limit.released"]
    assert told[0].data == {"key": "a", "strategy": "concurrency", "limit": 1, "current": 1}


@override_settings(OJS={"QUEUES": {"mail": {"rate_limit": {"concurrency": 2}}}})
def test_the_limit_of_a_queue_holds_for_all_its_jobs() -> None:
    make(2, queue="mail")
    make(2, queue="mail", job_type="test.other")
    assert len(take(9, queues=("mail",), types=("test.job", "test.other"))) == 2


@override_settings(OJS={"QUEUES": {"mail": {"rate_limit": {"concurrency": 2}}}})
def test_a_job_needs_a_place_under_its_key_and_its_queue() -> None:
    keyed = make(2, queue="mail", rate_limit=ONE)
    plain = make(2, queue="mail")
    first = take(9, queues=("mail",))
    assert {job.id for job in first} == {keyed[0].id, plain[0].id}
    # Its place in the queue goes to the plain job: the keyed one has none under its key.
    ack(next(job for job in first if job.id == plain[0].id))
    (second,) = take(9, queues=("mail",))
    assert second.id == plain[1].id
    ack(next(job for job in first if job.id == keyed[0].id))
    (third,) = take(9, queues=("mail",))
    assert third.id == keyed[1].id


@pytest.mark.slow
def test_a_backlog_is_taken_in_when_its_queue_gets_a_limit() -> None:
    make(500, queue="mail")
    make(1, priority=-1)
    operate_limits.override("queue:mail", {"concurrency": 3})
    got = [
        job
        for _ in range(8)
        for job in claim(sources(None, ["test.job"]), limit=1, worker_id="w", beats=True)
    ]
    assert sorted(job.queue for job in got) == ["default", "mail", "mail", "mail"]
    assert RateLimitPlace.objects.count() == 500


def test_a_queue_without_its_limit_holds_nobody() -> None:
    operate_limits.override("queue:mail", {"concurrency": 1})
    make(3, queue="mail")
    assert len(take(3, queues=("mail",))) == 1
    operate_limits.clear_override("queue:mail")
    assert len(take(3, queues=("mail",))) == 2
    policies.forget_limited()
    plain = make(1, queue="mail")
    assert not now_stored(plain[0]).hooks
    assert ids(take(3, queues=("mail",))) == ids(plain)


def test_keys_that_nobody_uses_are_forgotten(frozen: FrozenClock) -> None:
    make(1, rate_limit=ONE)
    ack(*take(1))
    make(1, rate_limit={"key": "b", "concurrency": 0})
    (cancelled,) = make(1, rate_limit={"key": "c", "concurrency": 1})
    take(1)
    operate.cancel([cancelled.id])
    frozen.advance(8 * 86_400)
    prune()
    assert [row.key for row in RateLimit.objects.all()] == ["b"]
    assert [place.key for place in RateLimitPlace.objects.all()] == ["b"]


def test_without_a_key_the_limit_is_the_queue_s() -> None:
    make(1, job_type="test.job", rate_limit={"max_per_second": 1})
    make(1, job_type="test.other", rate_limit={"max_per_second": 1})
    assert len(take(9, types=("test.job", "test.other"))) == 1


def test_the_key_of_another_queue_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="another queue"):
        make(1, rate_limit={"key": "queue:mail", "concurrency": 1})
    assert not Job.objects.exists()


def test_a_paused_queue_takes_no_places() -> None:
    queues.pause(["slow"])
    make(1, queue="slow", rate_limit=ONE)
    (quick,) = make(1, rate_limit=ONE)
    assert ids(take(1)) == [quick.id]


def test_a_resumed_queue_is_let_in() -> None:
    queues.pause(["slow"])
    slow = make(1, queue="slow", rate_limit=ONE)
    queues.resume(["slow"])
    assert ids(take(1, queues=("slow",))) == ids(slow)


def test_moved_to_another_queue_it_waits_anew() -> None:
    jobs = make(3, rate_limit=ONE)
    operate.edit([jobs[2].id], {"queue": "other"})
    (first,) = take(3)
    operate.edit([jobs[1].id], {"priority": -1})
    ack(first)
    assert take(3) == []
    assert ids(take(3, queues=("other",))) == ids(jobs[2:])


def test_who_is_let_in_and_moved_loses_its_place_to_none_behind_it() -> None:
    jobs = make(2, rate_limit=ONE)
    operate.edit([jobs[0].id], {"queue": "other"})
    assert take(2) == []
    assert ids(take(2, queues=("other",))) == ids(jobs[:1])


def test_a_new_priority_counts_among_the_held() -> None:
    jobs = make(3, rate_limit=ONE)
    operate.edit([jobs[2].id], {"priority": 9})
    (first,) = take(3)
    ack(first)
    assert ids(take(3)) == ids(jobs[2:])


def test_a_locked_job_holds_nobody_up(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    jobs = make(3, rate_limit=ONE)
    (first,) = take(1)
    with elsewhere(lambda: list(Job.objects.select_for_update().filter(pk=jobs[1].id))):
        ack(first)
        (second,) = take(3)
        assert second.id == jobs[2].id
    ack(second)
    assert ids(take(3)) == ids(jobs[1:2])


def test_many_locked_jobs_hold_nobody_up(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    jobs = make(40, rate_limit=ONE)
    (first,) = take(1)
    with bounded(), holding(*jobs[1:39]):
        ack(first)
        assert ids(take(3)) == ids(jobs[39:])


def test_one_that_was_locked_is_let_in_soon(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    jobs = make(2, rate_limit=ONE)
    (first,) = take(1)
    with elsewhere(lambda: list(Job.objects.select_for_update().filter(pk=jobs[1].id))):
        ack(first)
    assert take(1) == []
    frozen.advance(0.2)
    admission.admit_due(using="default")
    assert ids(take(1)) == ids(jobs[1:])


def test_one_that_was_locked_is_turned_away_soon(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    limit = {**ONE, "on_limit": "drop"}
    make(1, rate_limit=limit)
    with nobody_admits():
        jobs = make(2, rate_limit=limit)
    with bounded(), holding(jobs[0]):
        admission.admit({"a": None}, using="default")
        assert [now_stored(job).state for job in jobs] == ["available", "discarded"]
    frozen.advance(0.2)
    admission.admit_due(using="default")
    assert [now_stored(job).state for job in jobs] == ["discarded", "discarded"]


def test_keys_are_case_sensitive() -> None:
    make(1, rate_limit={"key": "A", "concurrency": 1})
    make(1, rate_limit=ONE)
    assert len(take(2)) == 2
    assert RateLimit.objects.count() == 2


@pytest.mark.parametrize(
    ("limit", "field"),
    [
        ({"key": "", "concurrency": 1}, "rate_limit.key"),
        ({"key": "-a", "concurrency": 1}, "rate_limit.key"),
        ({"key": "a"}, "rate_limit"),
        ({"key": "a", "concurrency": -1}, "rate_limit.concurrency"),
        ({"key": "a", "concurrency": True}, "rate_limit.concurrency"),
        ({"key": "a", "rate": 5}, "rate_limit.period"),
        ({"key": "a", "rate": {"limit": 5}}, "rate_limit.rate.period"),
        ({"key": "a", "rate": {"limit": 10_001, "period": "1h"}}, "rate_limit.rate.limit"),
        ({"key": "a", "throttle": {"limit": 0, "period": "1h"}}, "rate_limit.throttle.limit"),
        ({"key": "a", "throttle": {"limit": 1, "period": 0}}, "rate_limit.throttle.period"),
        ({"key": "a", "concurrency": 1, "on_limit": "explode"}, "rate_limit.on_limit"),
        ({"key": "a", "concurency": 1}, "rate_limit.concurency"),
        ([], "rate_limit"),
    ],
)
def test_bad_limits_are_refused(limit: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        make(1, rate_limit=limit)
    assert refused.value.details["field"] == field
    assert not Job.objects.exists()
