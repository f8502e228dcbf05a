"""A job that runs while a test acts on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import django_ojs
from django_ojs import Conflict, SoftStop, job
from django_ojs.testing import Drained, JobClock, drain, running
from tests.support import not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("database")]
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def work() -> Any:
    later = {"initial_interval": "10m", "jitter": False}

    @job("kit.work", timeout="1m", grace_period="10s", heartbeat_timeout="20s", retry=later)
    def work() -> None: ...

    return work


def test_it_runs_and_is_given_back(work: Any) -> None:
    one = work.enqueue()
    with running(one) as ctx:
        assert django_ojs.get(one).state == "active"
        ctx.check()
        ctx.checkpoint("here")
        assert drain() == Drained()
        with pytest.raises(Conflict, match="active cannot start"), running(one.id):
            pass
    again = django_ojs.get(one)
    assert (again.state, again.attempt) == ("available", 0)
    assert again.checkpoint == "here"
    assert drain() == Drained(completed=1)


def test_it_is_cancelled_from_outside(work: Any) -> None:
    one = work.enqueue()
    with running(str(one.id)) as ctx:
        django_ojs.cancel(one, reason="changed my mind")
        with pytest.raises(SoftStop, match="cancelled"):
            ctx.check()
        assert ctx.cancelled
        with pytest.raises(django_ojs.LeaseGone):
            ctx.checkpoint("late")
    assert django_ojs.get(one).state == "cancelled"


def test_it_is_extended_from_outside(work: Any) -> None:
    with JobClock() as clock:
        clock.freeze(START)
        one = work.enqueue()
        with running(one) as ctx:
            assert django_ojs.extend_timeout(one, "1m").extended_by_ms == 60_000
            clock.advance(seconds=100)
            ctx.check()
            clock.advance(seconds=25)
            with pytest.raises(SoftStop, match="timeout"):
                ctx.check()
            clock.advance(minutes=1)
            assert django_ojs.get(one).state == "retryable"


def test_a_worker_that_has_died(work: Any) -> None:
    with JobClock() as clock:
        clock.freeze(START)
        one = work.enqueue()
        with running(one, heartbeats=False):
            clock.advance(seconds=19)
            assert django_ojs.get(one).state == "active"
            clock.advance(seconds=2)
            ended = django_ojs.get(one)
        assert (ended.state, not_none(ended.error)["type"]) == ("retryable", "stalled")
        two = work.using(delay="1m").enqueue()
        with pytest.raises(Conflict, match="scheduled cannot start"), running(two):
            pass
        clock.advance(timedelta(minutes=1))
        with running(two), pytest.raises(RuntimeError, match="of the test"):
            raise RuntimeError("of the test")
        assert django_ojs.get(two).state == "available"
