"""A limit is lowered while jobs that have been let in have not started: they wait again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs import clock, enqueue
from django_ojs.clock import FrozenClock
from django_ojs.models import Job, RateLimitPlace
from django_ojs.services.rate_limits import admission, operate
from django_ojs.store import invariants

from .support import ack, elsewhere, make, now_stored, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

FIVE = {"key": "a", "concurrency": 5}


def block(seconds: int = 60) -> None:
    operate.block("a", clock.now("default") + timedelta(seconds=seconds))


@pytest.fixture(autouse=True)
def _in_their_places() -> Any:
    yield
    found = invariants.check(now=clock.now("default"), slack=timedelta(0), using="default")
    assert "I22" not in {each.name for each in found}


def test_a_blocked_key_starts_nobody(frozen: FrozenClock) -> None:
    jobs = make(3, rate_limit=FIVE)
    block()
    assert take(3) == []
    assert all(now_stored(job).held for job in jobs)
    frozen.advance(61)
    admission.admit_due(using="default")
    assert [job.id for job in take(3)] == [job.id for job in jobs], "in their turn"


def test_more_than_a_page_is_taken_back() -> None:
    make(450, rate_limit={"key": "a", "concurrency": 1000})
    block()
    assert Job.objects.filter(held=True).count() == 450


@pytest.mark.parametrize(
    ("limits", "started"),
    [
        ({"concurrency": 0}, 0),
        ({"concurrency": 2}, 1),
        ({"rate": {"limit": 0, "period": "1m"}}, 0),
        ({"throttle": {"limit": 1, "period": "1s"}}, 1),
    ],
)
def test_an_override_takes_back_what_is_too_many(limits: Any, started: int) -> None:
    jobs = make(4, rate_limit=FIVE)
    (running,) = take(1)
    operate.override("a", limits)
    assert [job.id for job in take(4)] == [job.id for job in jobs[1 : 1 + started]]
    operate.clear_override("a")
    assert len(take(4)) == 3 - started
    ack(running)


def test_the_first_keep_their_places() -> None:
    low = enqueue("test.job", [0], rate_limit=FIVE, priority=-1)
    jobs = make(2, rate_limit=FIVE)
    operate.override("a", {"concurrency": 2})
    assert [job.id for job in take(3)] == [job.id for job in jobs]
    assert now_stored(low).held


def test_a_released_job_waits_for_the_end_of_the_block(frozen: FrozenClock) -> None:
    (job,) = make(1, rate_limit=FIVE)
    (running,) = take(1)
    block()
    release(running)
    assert take(1) == []
    frozen.advance(61)
    admission.admit_due(using="default")
    assert [job.id for job in take(1)] == [job.id]


@override_settings(OJS={"QUEUES": {"mail": {"rate_limit": {"concurrency": 1}}}})
def test_the_place_in_its_queue_goes_to_another(frozen: FrozenClock) -> None:
    make(1, queue="mail", rate_limit=FIVE)
    (plain,) = make(1, queue="mail")
    block()
    assert [job.id for job in take(9, queues=("mail",))] == [plain.id]


@override_settings(OJS={"QUEUES": {"mail": {"rate_limit": {"concurrency": 2}}}})
def test_the_limit_of_a_queue_is_lowered() -> None:
    make(2, queue="mail", rate_limit=FIVE)
    operate.override("queue:mail", {"concurrency": 0})
    assert take(9, queues=("mail",)) == []
    assert RateLimitPlace.objects.filter(key="a", status=RateLimitPlace.Status.ADMITTED).count() == 2
    operate.clear_override("queue:mail")
    assert len(take(9, queues=("mail",))) == 2


def test_one_that_was_locked_is_taken_back_soon(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    jobs = make(2, rate_limit=FIVE)
    with elsewhere(lambda: list(Job.objects.select_for_update().filter(pk=jobs[1].id))):
        block()
    assert [now_stored(job).held for job in jobs] == [True, False]
    frozen.advance(0.2)
    admission.admit_due(using="default")
    assert take(2) == []


def test_an_operator_ends_a_block() -> None:
    jobs = make(2, rate_limit={"key": "a", "concurrency": 2})
    block(100 * 365 * 86_400)
    assert take(2) == []
    row = operate.clear_override("a")
    assert row.blocked_until is None
    assert {job.id for job in take(2)} == {job.id for job in jobs}
