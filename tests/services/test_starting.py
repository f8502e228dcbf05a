"""Attempts that start together, or as soon as their job is announced, are those of the lifecycle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from random import Random
from string import ascii_letters
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.api import enqueue
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.models import Job, MaintenanceRun, Queue, RateLimitPlace
from django_ojs.services import claim as claim_module
from django_ojs.services import leases, promote, queues
from django_ojs.services.claim import claim, sources
from django_ojs.services.rate_limits import operate as rate_limits
from django_ojs.services.starting import Holder, start_at_once
from django_ojs.store import candidates, picking
from django_ojs.store.dialect import dialect
from django_ojs.store.picking import PickLimits
from django_ojs.store.sources import in_order
from tests.conftest import empty_tables
from tests.support import not_none

from .support import bounded, elsewhere, fail, held, holding, make, now_stored, release, take

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


@pytest.mark.slow
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


def test_a_queue_whose_row_is_held_starts_nothing_that_is_announced(frozen: FrozenClock) -> None:
    """As a pause holds it that has not committed yet: nobody else sees that."""
    if not dialect("default").updates_what_it_locks:
        pytest.skip("no database that starts them by one statement")
    make(2)
    lane = not_none(sources(["default"], ["test.job"], ranked=False).only)

    def started() -> int:
        pick = partial(picking.first, lane, PickLimits(2))
        holder = Holder("w1", True, None)
        return len(not_none(start_at_once(pick, in_order, holder, using="default")).jobs)

    with elsewhere(lambda: list(Queue.objects.select_for_update())):
        assert started() == 0
    assert started() == 2


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


def looked_at(limit: int, **options: Any) -> list[JobRow]:
    """Claim as a worker of several types does: what it starts is looked up first."""
    where = sources(["default"], ["test.job", "test.other"], ranked=False)
    assert where.only is None
    return claim(
        where, limit=limit, **{"worker_id": "w1", "beats": True, "immediate": limit, **options}
    )


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize("failures", [0, 2])
def test_what_a_look_found_starts_as_it_always_does(
    frozen: FrozenClock, failures: int, beats: bool
) -> None:
    """Those that one statement starts, and those among them that it leaves."""
    began, written = frozen.time, []

    def usual() -> list[JobRow]:
        with transaction.atomic():
            return looked_at(len(OPTIONS), beats=beats)

    ways: list[Callable[[], list[JobRow]]] = [lambda: looked_at(len(OPTIONS), beats=beats), usual]
    for way in ways:
        frozen.time = began
        attempted_before(frozen, OPTIONS, failures)
        written.append(rows(way()))
    assert written[0] == written[1]
    assert len(written[0]) == len(OPTIONS)


def test_one_statement_starts_what_a_look_has_found(frozen: FrozenClock) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    make(5)
    with CaptureQueriesContext(connection) as queries:
        assert [job.json("args") for job in looked_at(3)] == [[0], [1], [2]]
    assert len(queries) == 2
    assert [job.json("args") for job in looked_at(3)] == [[3], [4]]
    assert looked_at(3) == []


def test_a_job_that_was_moved_after_the_look_is_left_to_its_new_queue(frozen: FrozenClock) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    make(queue="other")
    moved, stays = make(2)
    where = sources(["default"], ["test.job", "test.other"], ranked=False)
    found = candidates.look(where, 2, using="default").found
    assert [candidate.id for candidate in found] == [moved.id, stays.id]
    Job.objects.filter(pk=moved.id).update(queue="other")
    holder = Holder("w1", beats=True, principal=None)
    tried = start_at_once(
        partial(picking.seen, found, PickLimits(2)), in_order, holder, using="default"
    )
    assert tried is not None
    assert [job.id for job in tried[0]] == [stays.id]


def test_what_is_in_a_held_queue_is_no_crowd(frozen: FrozenClock) -> None:
    """It is claimed as ever then: the place it took among those looked at is not lost."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    make(queue="held")
    (free,) = make()
    where = sources(["default", "held"], ["test.job", "test.other"], ranked=False)
    with elsewhere(lambda: list(Queue.objects.select_for_update().filter(name="held"))):
        claimed = claim(where, limit=2, worker_id="w1", beats=True, immediate=2)
    assert [job.id for job in claimed] == [free.id]
    assert where.crowding == 1.0


def test_what_others_hold_sends_no_claim_the_long_way(frozen: FrozenClock) -> None:
    """In a transaction it would hold rows for several turns, and send others the same way."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    jobs = make(30)
    where = sources(["default"], ["test.job", "test.other"], ranked=False)
    with holding(*jobs[:12]), CaptureQueriesContext(connection) as queries:
        claimed = claim(where, limit=2, worker_id="w1", beats=True, immediate=2)
    assert [job.id for job in claimed] == [jobs[12].id, jobs[13].id]
    assert not [query["sql"] for query in queries if query["sql"] == "BEGIN"]
    assert where.usual_until == 0.0


def test_what_one_statement_cannot_start_goes_the_long_way_for_a_while(frozen: FrozenClock) -> None:
    """In a queue with a rate limit nothing is started so: the next claim need not try."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    rate_limits.override("queue:default", {"concurrency": 10})
    make(5)
    where = sources(["default"], ["test.job", "test.other"], ranked=False)
    assert len(claim(where, limit=1, worker_id="w1", beats=True, immediate=1)) == 1
    assert where.usual_until > 0


def test_what_one_statement_leaves_is_not_passed_by_for_ever(frozen: FrozenClock) -> None:
    """There is always more behind it that is plain."""
    (other,) = make(total_timeout=3600)
    make(20)
    assert other.id in {job.id for job in looked_at(5)}


def test_what_has_started_is_returned_if_the_others_cannot_be_claimed(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed: whoever did not hear of it would let it stall."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    plain = make(3)
    make(total_timeout=3600)

    def cut(*_: Any, **__: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(claim_module, "_claim", cut)
    assert [job.id for job in looked_at(4)] == [job.id for job in plain]
    with pytest.raises(OperationalError):
        looked_at(4)


def test_of_jobs_with_one_attempt_no_more_are_taken_than_can_begin(frozen: FrozenClock) -> None:
    once = {"max_attempts": 1}
    make(2, retry=once)
    make(2)
    make(1, retry=once)
    claimed = looked_at(10, immediate=1, ahead_bytes=1 << 20)
    assert [job.max_attempts == 1 for job in claimed] == [True, False, False]


def test_large_jobs_are_claimed_ahead_by_their_size(frozen: FrozenClock) -> None:
    for size in (10, 200_000, 10, 200_000, 10):
        enqueue("test.job", ["x" * size])
    claimed = looked_at(5, immediate=1, ahead_bytes=250_000)
    assert 2 <= len(claimed) < 5
    assert sum(job.text_bytes for job in claimed) < 300_000


def test_a_paused_queue_starts_nothing_that_a_look_has_found() -> None:
    make(2)
    make(2, queue="other")
    where = sources(["default", "other"], ["test.job", "test.other"], ranked=False)
    queues.pause(["other"])
    claimed = claim(where, limit=4, worker_id="w1", beats=True, immediate=4)
    assert [job.queue for job in claimed] == ["default", "default"]


def test_what_another_transaction_holds_is_passed_over_by_a_claim_of_many() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    first, second, third = make(3)
    with holding(second), bounded():
        assert [job.id for job in looked_at(3)] == [first.id, third.id]
    assert [job.id for job in looked_at(3)] == [second.id]


@pytest.mark.slow
def test_a_rate_limit_makes_no_look_wider(frozen: FrozenClock) -> None:
    """What one statement cannot start is not held by others."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    rate_limits.override("queue:default", {"concurrency": 1000})
    make(60)
    where = sources(["default"], ["test.job", "test.other"], ranked=False)
    for _ in range(4):
        where.usual_until = 0.0
        assert len(claim(where, limit=2, worker_id="w1", beats=True, immediate=2)) == 2
    assert where.crowding == 1.0


def fetched(limit: int, *queues: str, **options: Any) -> list[JobRow]:
    """Claim as over HTTP: all types, for a client, no more than a response holds."""
    about: dict[str, Any] = {"worker_id": "w1", "beats": True, "principal": "token:a", "patience": 4}
    return claim(
        sources(queues or ["default"]), limit=limit, **{"most_bytes": 1 << 20, **about, **options}
    )


@pytest.mark.parametrize("queues", [("default",), ("other", "default")], ids=str)
@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize("failures", [0, 2])
def test_what_is_fetched_starts_as_it_always_does(
    frozen: FrozenClock, failures: int, beats: bool, queues: tuple[str, ...]
) -> None:
    began, written = frozen.time, []

    def at_once() -> list[JobRow]:
        return fetched(len(OPTIONS), *queues, beats=beats)

    def usual() -> list[JobRow]:
        with transaction.atomic():
            return at_once()

    ways = []
    for way in (at_once, usual):
        frozen.time = began
        attempted_before(frozen, OPTIONS, failures)
        with CaptureQueriesContext(connection) as queries:
            written.append(rows(way()))
        ways.append(any(query["sql"].startswith("WITH picked") for query in queries))
    assert written[0] == written[1]
    assert len(written[0]) == len(OPTIONS)
    assert ways == [connection.vendor == "postgresql", False]


@pytest.mark.parametrize("queues", [("default",), ("default", "other")], ids=str)
def test_a_look_and_one_statement_start_what_is_fetched(
    frozen: FrozenClock, queues: tuple[str, ...]
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    make(5)
    with CaptureQueriesContext(connection) as queries:
        assert [job.json("args") for job in fetched(3, *queues)] == [[0], [1], [2]]
    assert len(queries) == 2
    assert [job.lease_principal for job in fetched(3, *queues)] == ["token:a"] * 2
    with CaptureQueriesContext(connection) as queries:
        assert fetched(3, *queues) == []
    assert len(queries) == 1


@pytest.mark.parametrize("large", ["x" * 40_000, "ü" * 20_000], ids=["ascii", "two bytes"])
@pytest.mark.parametrize("queues", [("default",), ("default", "other")], ids=str)
def test_what_is_fetched_holds_no_more_text_than_asked_for(queues: tuple[str, ...], large: str) -> None:
    """Large ones come with the others, in order, as long as there is room, or alone."""
    if connection.vendor != "postgresql" and "ü" in large:
        pytest.skip("only PostgreSQL counts bytes")
    for number in range(6):
        make(meta={"number": number, "text": large if number in (1, 4, 5) else ""})
    got = [
        [job.json("meta")["number"] for job in fetched(6, *queues, most_bytes=70_000)] for _ in range(4)
    ]
    assert sorted(number for numbers in got for number in numbers) == [0, 1, 2, 3, 4, 5]
    assert all(numbers == sorted(numbers) for numbers in got)
    assert [sum(number in (1, 4, 5) for number in numbers) for numbers in got] == [1, 1, 1, 0]


def test_what_is_fetched_is_taken_in_order_of_priority() -> None:
    for number, priority in enumerate([0, 5, -5, 5, 0]):
        make(priority=priority, total_timeout=60 if number == 3 else None, meta={"number": number})
    assert [job.json("meta")["number"] for job in fetched(4)] == [1, 3, 0, 4]


def test_what_one_statement_leaves_is_fetched_with_the_others(frozen: FrozenClock) -> None:
    """There is always more behind it that is plain."""
    (other,) = make(total_timeout=3600)
    make(20)
    assert fetched(5)[0].id == other.id


def test_a_queue_with_a_limit_or_a_pause_is_fetched_as_ever() -> None:
    make(3)
    rate_limits.override("queue:default", {"concurrency": 1})
    assert len(fetched(3)) == 1
    assert fetched(3) == []
    make(2, queue="other")
    queues.pause(["other"])
    assert fetched(3, "other") == []


@pytest.mark.parametrize("over_http", [True, False])
def test_a_queue_with_a_limit_is_not_passed_by_for_ever(frozen: FrozenClock, over_http: bool) -> None:
    """There is always more in an open one that stands behind it."""
    make(3, queue="limited")
    rate_limits.override("queue:limited", {"concurrency": 2})
    assert len(fetched(1, "limited")) == 1
    make(20)
    where = sources(["limited", "default"], ["test.job", "test.other"])
    for _ in range(2):
        if over_http:
            got = fetched(5, "limited", "default")
        else:
            got = claim(where, limit=5, immediate=5, worker_id="w1", beats=True)
        if "limited" in {job.queue for job in got}:
            break
    assert got[0].queue == "limited"
    assert len(got) == 5


def test_what_is_claimed_ahead_has_its_limits_when_one_range_is_left(frozen: FrozenClock) -> None:
    """Of two queues, of which another transaction holds one."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    make(100, queue="held")
    letters = Random(1).choices(ascii_letters, k=3000)  # so many that they cannot be made small
    for _ in range(6):
        enqueue("test.job", ["".join(letters)])
    where = sources(["held", "default"], ["test.job"])
    with elsewhere(lambda: list(Queue.objects.select_for_update().filter(name="held"))):
        got = claim(where, limit=7, immediate=2, ahead_bytes=4000, worker_id="w1", beats=True)
    assert [job.queue for job in got] == ["default"] * 3
