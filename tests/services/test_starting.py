"""Attempts that start together, or as soon as their job is announced, are those of the lifecycle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.models import MaintenanceRun, RateLimitPlace
from django_ojs.services import leases, promote, queues
from django_ojs.services.claim import claim, sources
from django_ojs.services.rate_limits import operate as rate_limits
from tests.conftest import empty_tables

from .support import bounded, fail, held, holding, make, now_stored, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@pytest.fixture(autouse=True)
def few_events(settings: Any) -> None:
    """As by default, no event of a start is stored."""
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}


RETRY = {"max_attempts": 4, "initial_interval": "PT1S", "jitter": False}
OPTIONS: list[dict[str, Any]] = [
    {},
    {},
    {"timeout": 90, "grace_period": 5},
    {"timeout": 90, "grace_period": 5},
    {"total_timeout": 3600},
    {"total_timeout": 3600},
    {"total_timeout": 60, "timeout": 50, "grace_period": 20},
    {"total_timeout": 60, "timeout": 50, "grace_period": 20},
    {"heartbeat_timeout": 7},
    {"heartbeat_timeout": 7, "tags": ["a"]},
    {"visibility_timeout": 40},
    {"visibility_timeout": 40},
    {"enqueue_ttl": 600},
    {"enqueue_ttl": 600},
    {"priority": 5, "meta": {"order": 'ü\\ "7"'}},
    {"priority": 5},
    {"unique": {"keys": ["type", "args"]}},
]
"""Some twice, so that they start together."""


def announced(limit: int = 1, *, beats: bool = True, **options: Any) -> list[JobRow]:
    """Claim as a worker that waited does when a job is announced."""
    where = sources(["default"], ["test.job"], ranked=False)
    options = {"worker_id": "w1", "beats": beats, "probe": False, **options}
    return claim(where, limit=limit, immediate=limit, **options)


def rows(claimed: list[JobRow]) -> list[dict[str, Any]]:
    """What is stored of these jobs, but for what no two have in common."""
    assert claimed == [now_stored(job) for job in claimed], "the records are what was written"
    assert all(job.lease_id for job in claimed)
    assert len({job.lease_id for job in claimed}) == len(claimed)
    hidden = {"id", "lease_id", "unique_key"}
    return [
        {name: value for name, value in job._asdict().items() if name not in hidden} for job in claimed
    ]


def attempted_before(frozen: FrozenClock, options: list[dict[str, Any]], failures: int) -> None:
    """Enqueue jobs one after the other which have begun so often: all have failed but for some that
    were given back, and half have reported progress.
    """
    empty_tables()
    for number, each in enumerate(options):
        make(**{"retry": RETRY, **each, "meta": {**each.get("meta", {}), "number": number}})
        frozen.advance(0.25)
    for _ in range(failures):
        tried = take(len(options))
        leases.progress([leases.Progress(held(job), 0.5, "half", "[1]") for job in tried[::-2]])
        release(*tried[3::5])
        fail(*(job for job in tried if job not in tried[3::5]))
        frozen.advance(2)
        promote.promote()


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize("failures", [0, 2])
def test_those_that_are_alike_start_as_each_alone(
    frozen: FrozenClock, failures: int, beats: bool
) -> None:
    began, written = frozen.time, []
    for size in (len(OPTIONS), 1):
        frozen.time = began
        attempted_before(frozen, OPTIONS, failures)
        with CaptureQueriesContext(connection) as queries:
            claimed = [job for _ in range(0, len(OPTIONS), size) for job in take(size, beats=beats)]
        written.append(rows(claimed))
        starts = sum(
            "lease_id" in query["sql"].partition("WHERE")[0]
            for query in queries
            if query["sql"].startswith("UPDATE")
        )
        assert starts < len(OPTIONS) or size == 1
    together, alone = written
    assert len(together) == len(OPTIONS)
    assert together == alone


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("options", OPTIONS[::2] + OPTIONS[-1:], ids=str)
def test_what_was_announced_starts_as_it_always_does(
    frozen: FrozenClock, options: dict[str, Any], failures: int, beats: bool
) -> None:
    began, written = frozen.time, []

    def usual() -> list[JobRow]:
        with transaction.atomic():
            return announced(2, beats=beats)

    ways: list[Callable[[], list[JobRow]]] = [lambda: announced(2, beats=beats), usual]
    for way in ways:
        frozen.time = began
        attempted_before(frozen, [options], failures)
        written.append(rows(way()))
    assert written[0] == written[1]
    assert len(written[0]) == 1


def test_one_statement_starts_what_was_announced(frozen: FrozenClock) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    make(3)
    with CaptureQueriesContext(connection) as queries:
        assert [job.json("args") for job in announced(2)] == [[0], [1]]
    assert len(queries) == 1
    assert [job.json("args") for job in announced(2)] == [[2]]
    assert announced(2) == []


def test_a_worker_may_ask_for_a_visibility_timeout_of_what_was_announced(frozen: FrozenClock) -> None:
    make()
    (job,) = announced(visibility_ms=40_000, principal="token:a")
    assert job == now_stored(job)
    assert job.lease_expires_at == frozen.time + timedelta(seconds=40)
    assert (job.lease_visibility_ms, job.lease_principal) == (40_000, "token:a")


def test_what_is_announced_is_taken_in_order_of_priority() -> None:
    for number, priority in enumerate([0, 5, -5, 5, 0]):
        make(priority=priority, meta={"number": number})
    assert [job.json("meta")["number"] for job in announced(4)] == [1, 3, 0, 4]


def test_a_paused_queue_starts_nothing_that_is_announced() -> None:
    make(2)
    queues.pause(["default"])
    assert announced(2) == []
    queues.resume(["default"])
    assert len(announced(2)) == 2


def test_what_is_overdue_is_discarded_when_it_is_announced(frozen: FrozenClock) -> None:
    overdue = make(enqueue_ttl=5)[0]
    frozen.advance(6)
    waiting = make()[0]
    started = announced(2)
    assert [job.id for job in started] == [waiting.id]
    assert [job.id for job in announced(2)] == []
    take(2)
    assert now_stored(overdue).state == "discarded"


def test_a_step_of_the_clock_that_was_not_seen_yet_is_not_passed_by(frozen: FrozenClock) -> None:
    """The scan that applied it has moved the deadlines of jobs that ran; this one would not be."""
    make()
    MaintenanceRun.objects.create(name="reap", last_run_at=frozen.time, clock_steps=3)
    frozen.number = 2
    with CaptureQueriesContext(connection) as queries:
        assert len(announced()) == 1
    assert len(queries) > 1, "the usual way, which asks for the time"


def test_what_another_transaction_holds_is_passed_over() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    first, second, third = make(3)
    with holding(first), bounded():
        assert [job.id for job in announced(1)] == [second.id]
    assert {job.id for job in announced(2)} == {first.id, third.id}


def test_starts_are_logged_where_somebody_reads_it(caplog: pytest.LogCaptureFixture) -> None:
    make(3)
    with caplog.at_level(logging.DEBUG, "django_ojs.job"):
        announced(1)
        take(2)
    assert sum("started: queue default" in record.message for record in caplog.records) == 3


def test_what_is_announced_has_its_place_under_a_rate_limit() -> None:
    make(2, rate_limit={"key": "a", "concurrency": 1})
    assert len(announced(2)) == 1
    running = RateLimitPlace.Status.RUNNING
    assert [place.status == running for place in RateLimitPlace.objects.order_by("id")] == [True, False]


def test_those_that_start_together_have_their_places_under_a_rate_limit() -> None:
    make(3, rate_limit={"key": "a", "concurrency": 2})
    assert len(take(3)) == 2
    running = RateLimitPlace.objects.filter(status=RateLimitPlace.Status.RUNNING)
    assert running.count() == 2


def test_a_limit_that_a_queue_was_given_since_holds_what_is_announced() -> None:
    make(3)
    rate_limits.override("queue:default", {"concurrency": 1})
    assert len(announced(3)) == 1
    assert announced(3) == []
