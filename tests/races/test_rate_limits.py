"""An admission lets a job in, or takes its place back, while something else is done to the job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from uuid import UUID

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import Job, RateLimitPlace
from django_ojs.services import operate
from django_ojs.services.rate_limits import admission
from django_ojs.services.rate_limits import operate as limits
from django_ojs.store import invariants
from tests.races.stepping import Player, Work
from tests.races.test_singletons import everywhere
from tests.services.support import ack, make, nobody_admits, take

pytestmark = [pytest.mark.every_database, pytest.mark.slow]

Players = tuple[Player, Player]
Verb = Callable[[UUID], object]
VERBS: dict[str, Verb] = {
    "cancel": lambda job_id: operate.cancel([job_id])[0].state,
    "move": lambda job_id: operate.edit([job_id], {"queue": "other"})[0].state,
    "claim": lambda job_id: len(take()),
}


def play(players: Players, time: FrozenClock, scene: Callable[[], tuple[Work, Work]]) -> None:
    """After each race every job is where its places are, and has as many as it had."""
    for _ in everywhere(players, scene):
        free = Job.objects.filter(state="available", held=False).values_list("pk", flat=True)
        waiting = RateLimitPlace.objects.filter(status=RateLimitPlace.Status.WAITING)
        assert not waiting.filter(job_id__in=[*free]).exists()
        admission.admit_due(at_once=True, using="default")
        found = invariants.check(now=time.time, slack=timedelta(minutes=1), using="default")
        assert not found
        kept = Job.objects.filter(state__in=["available", "active"]).values_list("pk", flat=True)
        assert sorted(RateLimitPlace.objects.values_list("job_id", flat=True)) == sorted(kept)
        for model in (Job, RateLimitPlace):
            model._default_manager.all()._raw_delete("default")


def in_turn(works: tuple[Work, Work], first: str) -> tuple[Work, Work]:
    return works if first == "admission" else works[::-1]


@pytest.mark.parametrize("verb", ["cancel", "move"])
@pytest.mark.parametrize("first", ["admission", "verb"])
def test_a_job_that_is_let_in(players: Players, frozen: FrozenClock, verb: str, first: str) -> None:
    numbers = count()

    def scene() -> tuple[Work, Work]:
        key = f"k{next(numbers)}"
        limit = {"key": key, "concurrency": 1}
        make(rate_limit=limit)
        (job,) = take()
        with nobody_admits():
            (waiting,) = make(1, rate_limit=limit)
            ack(job)
        admit = partial(admission.admit, {key: None}, using="default")
        return in_turn((admit, partial(VERBS[verb], waiting.id)), first)

    play(players, frozen, scene)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("first", ["admission", "verb"])
def test_a_job_whose_place_is_taken_back(
    players: Players, frozen: FrozenClock, verb: str, first: str
) -> None:
    numbers = count()

    def scene() -> tuple[Work, Work]:
        key = f"k{next(numbers)}"
        (job,) = make(rate_limit={"key": key, "concurrency": 1})

        def lower() -> None:
            limits.override(key, {"concurrency": 0})

        return in_turn((lower, partial(VERBS[verb], job.id)), first)

    play(players, frozen, scene)


@pytest.mark.parametrize("other", ["enqueue", "ack", "lower", "cancel"])
@pytest.mark.parametrize("others_wait", [False, True])
def test_a_job_that_is_enqueued(
    players: Players, frozen: FrozenClock, other: str, others_wait: bool
) -> None:
    """One key has one place: nobody gets it twice, and nobody is forgotten while it is free."""
    numbers = count()

    def scene() -> tuple[Work, Work]:
        for model in (Job, RateLimitPlace):
            model._default_manager.all()._raw_delete("default")
        key = f"k{next(numbers)}"
        limit = {"key": key, "concurrency": 1}
        make(rate_limit=limit)
        (job,) = take()
        waiting = make(1, rate_limit=limit) if others_wait else []
        if other == "enqueue" and not others_wait:
            ack(job)
        verbs: dict[str, Work] = {
            "enqueue": lambda: len(make(rate_limit=limit)),
            "ack": lambda: bool(ack(job)),
            "lower": lambda: limits.override(key, {"concurrency": 0}).key,
            "cancel": lambda: operate.cancel([*(one.id for one in waiting), job.id])[0].state,
        }
        return verbs["enqueue"], verbs[other]

    for _ in everywhere(players, scene):
        places = RateLimitPlace.objects.exclude(status=RateLimitPlace.Status.WAITING)
        assert places.count() <= 1
        frozen.advance(60)
        admission.admit_due(at_once=True, using="default")
        assert places.count() == 1
        found = invariants.check(now=frozen.time, slack=timedelta(minutes=5), using="default")
        assert not found
