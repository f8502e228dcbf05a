"""Two that want the same unique key at once, the second at each statement of the first."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs.api import enqueue
from django_ojs.clock import FrozenClock
from django_ojs.models import Job, Worker
from django_ojs.services import operate
from tests.races.stepping import Player, Work
from tests.races.test_singletons import everywhere
from tests.services.support import ack, make, take
from tests.support import family

pytestmark = pytest.mark.every_database

Players = tuple[Player, Player]
LEVELS = ["READ COMMITTED", "REPEATABLE READ"] if family() == "mysql" else [""]
"""PostgreSQL refuses under any other; nothing is shown there as it was."""


def isolate(level: str) -> None:
    """Let the transactions of this session have the level."""
    if level:
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")


@pytest.mark.parametrize("level", LEVELS)
def test_of_two_equal_jobs_of_one_moment_one_is_stored(
    players: Players, frozen: FrozenClock, level: str
) -> None:
    """Both transactions have read before, and nothing in the row of the key shows which came first."""
    numbers = count()
    for player in players:
        player.run(partial(isolate, level))

    def look_and_enqueue(number: int) -> bool:
        with transaction.atomic():
            Worker.objects.count()
            return enqueue("test.job", [number], unique=True).deduplicated

    def scene() -> tuple[Work, Work]:
        both = partial(look_and_enqueue, next(numbers))
        return both, both

    for said in everywhere(players, scene):
        assert sorted(said) == ["Duplicate", "False"]


@pytest.mark.parametrize("first", ["replace", "claim"])
def test_a_job_that_is_replaced_is_claimed_before_or_not_at_all(
    players: Players, frozen: FrozenClock, first: str
) -> None:
    """By a caller with a transaction of his own, which cannot be run again."""
    policy: dict[str, Any] = {"unique": {"on_conflict": "replace"}}

    def replace() -> str:
        with transaction.atomic():
            return make(1, **policy)[0].state

    def scene() -> tuple[Work, Work]:
        Job.objects.all()._raw_delete("default")
        make(1, **policy)
        works: tuple[Work, Work] = (replace, lambda: f"{len(take(2))} claimed")
        return works if first == "replace" else works[::-1]

    for said in everywhere(players, scene):
        old, new = Job.objects.order_by("pk")
        assert (old.state, new.state) in (("cancelled", "available"), ("cancelled", "active"))
        assert "available" in said, "it has replaced the other"


@pytest.mark.parametrize("first", ["requeue", "replace"])
def test_a_requeue_and_an_equal_job_wait_for_each_other_in_one_order(
    players: Players, frozen: FrozenClock, first: str
) -> None:
    """Both in a transaction of the caller: what loses a deadlock there is not run again."""
    policy: dict[str, Any] = {"unique": {"on_conflict": "replace"}}

    def scene() -> tuple[Work, Work]:
        Job.objects.all()._raw_delete("default")
        old = make(1, **policy)[0]
        ack(*take(1))

        def requeue() -> str:
            with transaction.atomic():
                return operate.requeue(old.id, [0], queue="default", meta={}).state

        def replace() -> str:
            with transaction.atomic():
                return make(1, **policy)[0].state

        return (requeue, replace) if first == "requeue" else (replace, requeue)

    for said in everywhere(players, scene):
        assert set(said) <= {"available", "Duplicate"}
        states = sorted(Job.objects.values_list("state", flat=True))
        assert states in (["available", "completed"], ["available", "cancelled", "completed"])
