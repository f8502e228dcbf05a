"""The clock of a test stops at every moment at which something falls due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

import django_ojs
from django_ojs import JobContext, SoftStop, chain, clock, job
from django_ojs.testing import Drained, JobClock, drain
from tests.support import not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("database")]
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
EXACT = {"jitter": False, "initial_interval": "10s", "backoff_coefficient": 2.0}


@pytest.fixture
def moving(database: str) -> Any:
    with JobClock() as moving:
        moving.freeze(START)
        yield moving


def test_it_stands_still_and_goes_on_again() -> None:
    real = clock.now("default")
    with JobClock() as moving:
        assert moving.freeze() == moving.now
        assert abs(moving.now - real) < timedelta(minutes=1)
        assert moving.advance("90m") - moving.advance(0) == timedelta(0)
        assert clock.now("default") == moving.now
        assert moving.advance(hours=1, seconds=-1) - moving.now == timedelta(0)
        with pytest.raises(ValueError, match="forward"):
            moving.advance(seconds=-1)
        with pytest.raises(ValueError, match="time zone"):
            moving.freeze("2026-02-12T10:30:00Z")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="time zone"):
            moving.freeze(datetime(2026, 1, 1))
    assert abs(clock.now("default") - real) < timedelta(minutes=1)


def test_a_delay_and_retries(moving: JobClock) -> None:
    began: list[float] = []

    @job("kit.flaky", retry={"max_attempts": 3, **EXACT})
    def flaky() -> None:
        began.append((moving.now - START).total_seconds())
        raise ValueError("never")

    one = flaky.using(delay="1m").enqueue()
    assert drain() == Drained()
    moving.advance(minutes=1)
    assert django_ojs.get(one).state == "available"
    assert drain() == Drained(failed=1, retryable=1)
    moving.advance(hours=1, work=True)
    assert began == [60, 70, 90]
    assert django_ojs.get(one).state == "discarded"


def test_what_expires_in_the_queue(moving: JobClock) -> None:
    @job("kit.brief")
    def brief() -> None: ...

    one = brief.using(enqueue_ttl="30s").enqueue()
    three = brief.using(attempt_ttl="1m", delay="10m").enqueue()
    two = brief.using(total_timeout="1h", timeout="10s", delay="2h").enqueue()
    moving.advance(seconds=29)
    assert django_ojs.get(one).state == "available"
    moving.advance(hours=3)
    kinds = [not_none(django_ojs.get(known).error)["code"] for known in (one, two, three)]
    assert kinds == ["enqueue_ttl_expired", "total_timeout", "enqueue_ttl_expired"]
    ended = [not_none(django_ojs.get(known).finished_at) - START for known in (one, two, three)]
    assert ended == [timedelta(seconds=30), timedelta(hours=1), timedelta(minutes=11)]


def test_a_handler_that_takes_too_long(moving: JobClock) -> None:
    seen: list[Any] = []

    @job("kit.slow", timeout="10s", grace_period="5s", retry={"max_attempts": 1})
    def slow(ctx: JobContext) -> None:
        moving.advance(seconds=9)
        ctx.check()
        moving.advance(seconds=3)
        try:
            ctx.progress(0.5)
        except SoftStop as stop:
            seen.append(stop.reason)
            ctx.checkpoint("half")
            raise

    one = slow.enqueue()
    assert drain() == Drained(failed=1, discarded=1)
    done = django_ojs.get(one)
    assert seen == ["timeout"]
    assert (not_none(done.error)["type"], done.checkpoint) == ("timeout", "half")


def test_a_handler_that_does_not_stop_is_ended_by_the_reaper(moving: JobClock) -> None:
    @job("kit.deaf", timeout="10s", grace_period="5s", retry={"max_attempts": 1})
    def deaf() -> str:
        moving.advance(minutes=5)
        return "late"

    one = deaf.enqueue()
    assert drain() == Drained(discarded=1)
    done = django_ojs.get(one)
    assert (done.result, done.finished_at) == (None, START + timedelta(seconds=15))


def test_more_time_for_the_handler(moving: JobClock) -> None:
    @job("kit.extends", timeout="10s", grace_period="5s")
    def extends(ctx: JobContext) -> str:
        assert ctx.extend_timeout("1m") == START + timedelta(seconds=70)
        moving.advance(seconds=65)
        ctx.check()
        django_ojs.extend_timeout(ctx.id, "1m")
        moving.advance(seconds=60)
        ctx.check()
        return "done"

    extends.enqueue()
    assert drain() == Drained(completed=1)


@pytest.mark.slow
def test_signs_of_life_are_sent_unless_by_hand(moving: JobClock) -> None:
    @job("kit.auto", timeout="1h", heartbeat_timeout="20s", retry={"max_attempts": 1})
    def auto(minutes: int) -> str:
        moving.advance(minutes=minutes)
        return "alive"

    @job(
        "kit.manual",
        timeout="1h",
        heartbeat_timeout="20s",
        heartbeat="manual",
        retry={"max_attempts": 1},
    )
    def manual() -> None:
        moving.advance(minutes=5)

    one, two = auto.enqueue(5), manual.enqueue()
    assert drain() == Drained(completed=1, discarded=1)
    assert django_ojs.get(one).state == "completed"
    assert not_none(django_ojs.get(two).error)["type"] == "stalled"
    # Both began at the time at which the other one had ended.
    ended = [not_none(django_ojs.get(known).finished_at) - START for known in (one, two)]
    assert ended[0] == timedelta(minutes=5)
    assert timedelta(seconds=0) <= ended[1] - timedelta(minutes=5, seconds=20) < timedelta(seconds=1)


def test_the_deadline_of_a_workflow(moving: JobClock) -> None:
    @job("kit.waits")
    def waits() -> None: ...

    made = chain(waits.using(delay="3h").step(), waits.step()).enqueue(workflow_timeout="1h")
    moving.advance(minutes=59)
    assert django_ojs.get_workflow(made).state == "running"
    moving.advance(hours=1)
    ended = django_ojs.get_workflow(made)
    assert ended.state == "failed"
    assert ended.finished_at == START + timedelta(hours=1)
    assert drain(with_scheduled=True) == Drained()


def test_advancing_inside_atomic_is_refused(moving: JobClock) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside atomic"):
        moving.advance(seconds=1)
