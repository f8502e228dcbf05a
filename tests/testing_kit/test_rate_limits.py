"""The testing kit under rate limits: places open as jobs end, windows as the clock moves."""

from __future__ import annotations

import pytest

import django_ojs
from django_ojs import job
from django_ojs.domain.errors import Conflict
from django_ojs.models import Job
from django_ojs.testing import Drained, JobClock, drain, running

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("database")]


def test_drain_runs_those_behind_a_limit_too() -> None:
    done: list[int] = []

    @job("kit.limited", rate_limit={"key": "kit", "concurrency": 1})
    def limited(number: int) -> None:
        done.append(number)

    for number in range(3):
        limited.enqueue(number)
    assert drain() == Drained(completed=3)
    assert sorted(done) == [0, 1, 2]


def test_a_handler_that_runs_keeps_the_others_out() -> None:
    @job("kit.held", rate_limit={"key": "kit-held", "concurrency": 1})
    def limited() -> None:
        """Nothing."""

    made = [limited.enqueue(), limited.enqueue()]
    first, second = sorted(made, key=lambda one: django_ojs.get(one).row.held)
    with running(first):
        assert drain() == Drained()
        assert Job.objects.get(pk=second.id).state == "available"
        with pytest.raises(Conflict, match="rate limit"), running(second):
            """It has no place."""
    assert drain() == Drained(completed=2)


def test_the_clock_opens_windows() -> None:
    done: list[int] = []

    @job("kit.window", rate_limit={"key": "kit-window", "rate": {"limit": 1, "period": "1m"}})
    def windowed(number: int) -> None:
        done.append(number)

    with JobClock() as moving:
        moving.freeze()
        for number in range(3):
            windowed.enqueue(number)
        assert drain() == Drained(completed=1)
        moving.advance(seconds=61, work=True)
        assert done == [0, 1]
        moving.advance(minutes=5, work=True)
    assert sorted(done) == [0, 1, 2]
