"""While a backlog flows one statement finds jobs and starts them: those that a look would find."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.domain.reserved import OWN_QUEUE
from django_ojs.models import Job, MaintenanceRun, Queue
from django_ojs.services import queues
from django_ojs.services.claim import claim, has_work, sources
from django_ojs.services.rate_limits import operate as rate_limits
from django_ojs.store import due_times, picking
from django_ojs.store.dialect import dialect
from django_ojs.store.sources import Sources
from tests.support import poll

from .support import claimed_by_many, elsewhere, holding, make
from .test_starting import OPTIONS, attempted_before, rows

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
TYPES = ("test.job", "test.other")


@pytest.fixture(autouse=True)
def few_events(settings: Any) -> None:
    """As by default, no event of a start is stored."""
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}


@pytest.fixture(autouse=True)
def one_statement() -> None:
    """Where a statement can do that."""
    if not dialect("default").updates_what_it_locks:
        pytest.skip("PostgreSQL only")


def flow(*names: str, types: Iterable[str] = TYPES, **options: Any) -> Sources:
    """The sources of a worker in the middle of a backlog."""
    where = sources(names or None, types, ranked=False, resumes=True, **options)
    where.flows_until = inf
    assert where.only is None
    return where


def look_first() -> Sources:
    """The same at its beginning."""
    where = flow()
    where.flows_until = 0.0
    return where


def begin(where: Sources, limit: int, **options: Any) -> list[JobRow]:
    """Claim as a worker does that can begin at once all that it wants, if nothing else is said."""
    about: dict[str, Any] = {"worker_id": "w1", "beats": True, "immediate": limit}
    return claim(where, limit=limit, **{**about, **options})


def numbers(claimed: list[JobRow]) -> list[int]:
    """What the jobs are called."""
    return [job.json("args")[0] for job in claimed]


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("names", [(), ("default",), ("default", "other")], ids=str)
def test_what_flows_starts_as_it_always_does(
    frozen: FrozenClock, failures: int, beats: bool, names: tuple[str, ...]
) -> None:
    """Those that the statement starts, and those that it leaves."""
    began, written, ways = frozen.time, [], []
    for in_transaction in (False, True):
        frozen.time = began
        attempted_before(frozen, OPTIONS, failures)
        with CaptureQueriesContext(connection) as queries:
            if in_transaction:
                with transaction.atomic():
                    got = begin(flow(*names), len(OPTIONS), beats=beats)
            else:
                got = begin(flow(*names), len(OPTIONS), beats=beats)
        written.append(rows(got))
        ways.append(any(query["sql"].startswith("WITH served") for query in queries))
    assert written[0] == written[1]
    assert len(written[0]) == len(OPTIONS)
    assert ways == [True, False]


def test_a_backlog_flows_after_a_look_at_more_than_was_wanted(frozen: FrozenClock) -> None:
    make(12)
    where = flow()
    where.flows_until = 0.0
    statements = []
    for _ in range(3):
        with CaptureQueriesContext(connection) as queries:
            assert len(begin(where, 4)) == 4
        statements.append(len(queries))
    assert statements == [2, 1, 1]
    assert begin(where, 4) == []
    assert where.flows_until == 0.0


def test_nothing_flows_where_a_look_found_no_more_than_was_wanted(frozen: FrozenClock) -> None:
    make(4)
    where = flow()
    where.flows_until = 0.0
    assert len(begin(where, 4)) == 4
    assert where.flows_until == 0.0


def test_a_flow_ends_so_that_looks_are_timed(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether dead entries have gathered at the front is seen by looks only (ADR 46)."""
    make(30)
    monkeypatch.setattr("django_ojs.store.sources._FLOWS_FOR", 0.0)
    where = flow()
    where.flows_until = 0.0
    for _ in range(3):
        with CaptureQueriesContext(connection) as queries:
            assert len(begin(where, 4)) == 4
        assert len(queries) == 2


@pytest.mark.parametrize("why", ["foreign_until", "usual_until", "slow", "types", "queues", "ranked"])
def test_a_look_is_made_where_it_knows_more(frozen: FrozenClock, why: str) -> None:
    make(12)
    where = flow()
    if why == "slow":
        for _ in range(2):
            where.resumed.looked(0.0, 1.0)
    elif why == "types":
        where = flow(types=[*TYPES, *(f"test.t{number}" for number in range(70))])
    elif why == "queues":
        where = flow("default", *(f"q{number}" for number in range(70)))
    elif why == "ranked":
        where = sources(["other", "default"], TYPES)
        where.flows_until = inf
    else:
        setattr(where, why, inf)
    with CaptureQueriesContext(connection) as queries:
        assert numbers(begin(where, 4)) == [0, 1, 2, 3]
    assert not any(query["sql"].startswith("WITH served") for query in queries)


def test_what_flows_is_taken_in_order_of_priority(frozen: FrozenClock) -> None:
    for number, priority in enumerate([0, 5, -5, 5, 0]):
        make(priority=priority, meta={"number": number})
    claimed = begin(flow(), 4)
    assert [job.json("meta")["number"] for job in claimed] == [1, 3, 0, 4]


def test_only_what_is_served_flows(frozen: FrozenClock) -> None:
    make(2, job_type="foreign.job")
    make(2, queue="excluded")
    make(2, queue="paused")
    queues.pause(["paused"])
    make(2, job_type="ojs.test", queue=OWN_QUEUE)
    make(2)
    where = flow(excluded={"excluded"}, types=[*TYPES, "ojs.test"])
    claimed = begin(where, 10)
    assert [(job.queue, job.type) for job in claimed] == [
        *[(OWN_QUEUE, "ojs.test")] * 2,
        *[("default", "test.job")] * 2,
    ]


def test_a_type_of_ours_flows_from_its_queue_only(frozen: FrozenClock) -> None:
    make(1, queue=OWN_QUEUE)
    make(1, job_type="ojs.test")
    (mine,) = make(1)
    assert [job.id for job in begin(flow(types=[*TYPES, "ojs.test"]), 10)] == [mine.id]


def test_a_flow_of_named_queues_leaves_the_others(frozen: FrozenClock) -> None:
    make(2, queue="third")
    (first,), (second,) = make(1), make(1, queue="other")
    assert [job.id for job in begin(flow("default", "other"), 10)] == [first.id, second.id]


def test_of_jobs_with_one_attempt_no_more_flow_than_can_begin(frozen: FrozenClock) -> None:
    make(2, retry={"max_attempts": 1})
    make(2)
    make(1, retry={"max_attempts": 1})
    claimed = begin(flow(), 10, immediate=1, ahead_bytes=1 << 20)
    assert [job.max_attempts == 1 for job in claimed] == [True, False, False]


def test_jobs_of_others_with_one_attempt_stop_no_flow(frozen: FrozenClock) -> None:
    make(2, job_type="foreign.job", retry={"max_attempts": 1})
    make(3)
    with CaptureQueriesContext(connection) as queries:
        assert len(begin(flow(), 3, immediate=1, ahead_bytes=1 << 20)) == 3
    assert len(queries) == 1


def test_what_is_left_of_a_flow_is_not_passed_by(frozen: FrozenClock) -> None:
    """There is always more behind it that is plain."""
    (other,) = make(total_timeout=3600)
    make(20)
    assert begin(flow(), 5)[0].id == other.id


def test_what_is_overdue_is_discarded_in_a_flow(frozen: FrozenClock) -> None:
    make(2, enqueue_ttl=5)
    frozen.advance(6)
    (waiting,) = make()
    assert [job.id for job in begin(flow(), 3)] == [waiting.id]
    assert Job.objects.filter(state="discarded").count() == 2


def test_a_queue_with_a_limit_is_served_in_a_flow(frozen: FrozenClock) -> None:
    make(3, queue="limited")
    rate_limits.override("queue:limited", {"concurrency": 2})
    make(20)
    got = [job for _ in range(2) for job in begin(flow(), 5)]
    assert sum(job.queue == "limited" for job in got) == 2


def test_what_others_hold_is_passed_over_in_a_flow(frozen: FrozenClock) -> None:
    jobs = make(6)
    where = flow()
    with holding(jobs[0], jobs[2]):
        claimed = begin(where, 4)
    assert [job.id for job in claimed] == [jobs[place].id for place in (1, 3, 4, 5)]
    assert where.flows_until == inf


def test_a_flow_looks_at_more_when_others_take_from_it(frozen: FrozenClock) -> None:
    jobs = make(30)
    where = flow()
    with holding(*jobs[:10]):
        claimed = begin(where, 4)
        assert [job.id for job in claimed] == [job.id for job in jobs[10:12]]
        assert (where.crowding, where.flows_until) == (2.0, 0.0)
        where.flows_until = inf
        where.crowding = 4.0
        assert [job.id for job in begin(where, 4)] == [job.id for job in jobs[12:16]]


def test_what_is_in_a_held_queue_is_left_by_a_flow(frozen: FrozenClock) -> None:
    make(queue="held")
    (free,) = make()
    with elsewhere(lambda: list(Queue.objects.select_for_update().filter(name="held"))):
        assert [job.id for job in begin(flow("default", "held"), 2)] == [free.id]


def test_a_flow_stops_at_a_step_of_the_clock(frozen: FrozenClock) -> None:
    make(2)
    MaintenanceRun.objects.create(name="reap", last_run_at=datetime.now(UTC), clock_steps=3)
    frozen.number = 2
    with CaptureQueriesContext(connection) as queries:
        assert len(begin(flow(), 2)) == 2
    assert len(queries) > 2, "the usual way, which asks for the time"


def test_nothing_flows_behind_jobs_of_others(frozen: FrozenClock) -> None:
    """A statement without a look would not get so far: it would be tried again and again in vain."""
    make(60, job_type="foreign.job")
    make(60)
    where = flow()
    where.flows_until = 0.0
    for _ in range(3):
        with CaptureQueriesContext(connection) as queries:
            assert len(begin(where, 4)) == 4
        assert not any(query["sql"].startswith("WITH served") for query in queries)


def test_nothing_flows_among_jobs_of_others(frozen: FrozenClock) -> None:
    for _ in range(30):
        make(1, job_type="foreign.job")
        make(2)
    where = flow()
    where.flows_until, where.crowding = 0.0, 3.0
    assert len(begin(where, 8)) == 8
    assert where.flows_until == 0.0
    assert where.crowding > 2.9, "how far a look reached among others says nothing"


def test_paused_jobs_of_one_attempt_stop_no_flow(frozen: FrozenClock) -> None:
    make(2, queue="paused", retry={"max_attempts": 1})
    queues.pause(["paused"])
    make(3)
    with CaptureQueriesContext(connection) as queries:
        assert len(begin(flow(), 3, immediate=1, ahead_bytes=1 << 20)) == 3
    assert len(queries) == 1


def test_a_job_that_changes_while_it_is_found_is_left_to_the_next_claim(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement has seen it as it was, and waits here before it locks: it must not start it."""
    moved, stays = make(2)
    condition, key = picking.condition, 20_261_127

    def waiting(where: Sources, row: str) -> tuple[str, list[Any]]:
        text, bound = condition(where, row)
        gate = f" AND (SELECT pg_advisory_xact_lock_shared({key})) IS NOT NULL"
        return (text + gate if row == "s" else text), bound

    monkeypatch.setattr(picking, "condition", waiting)
    started: list[Any] = []

    def work() -> None:
        try:
            started.extend(job.id for job in begin(flow("default", "other"), 2))
        finally:
            connections["default"].close()

    claimer = threading.Thread(target=work)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [key])
        try:
            claimer.start()
            poll(lambda: waits_for(cursor, key), 30)
            Job.objects.filter(pk=moved.id).update(queue="third")
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
    claimer.join(timeout=30)
    assert started == [stays.id]
    assert Job.objects.get(pk=moved.id).state == "available"


def waits_for(cursor: Any, key: int) -> bool:
    """Whether a session waits for this lock."""
    cursor.execute("SELECT COUNT(*) FROM pg_locks WHERE objid = %s AND NOT granted", [key])
    return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("way", [look_first, flow], ids=["look", "flow"])
def test_a_server_without_places_finds_rows_by_their_keys(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, way: Callable[[], Sources]
) -> None:
    """YugabyteDB refuses ``ctid``: SQLSTATE 0A000, once for each connection."""
    make(12)
    sql = dialect("default")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refused(django_ojs_job) RETURNS tid LANGUAGE plpgsql AS $$"
            """ BEGIN RAISE EXCEPTION 'System column "refused" is not supported yet'"""
            " USING ERRCODE = '0A000'; END $$"
        )
    try:
        monkeypatch.setattr(sql, "place", "refused")
        assert numbers(begin(way(), 4)) == [0, 1, 2, 3]
        assert sql.place == "id"
        with CaptureQueriesContext(connection) as queries:
            assert numbers(begin(way(), 4)) == [4, 5, 6, 7]
        assert queries[-1]["sql"].startswith("WITH")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refused")


def test_a_look_that_needed_few_makes_the_next_ones_narrower(frozen: FrozenClock) -> None:
    make(300)
    where = flow()
    where.flows_until, where.crowding = 0.0, 8.0
    assert len(begin(where, 100)) == 100
    assert where.crowding == pytest.approx(1.25 + 64 / 100)


@pytest.mark.slow
def test_many_flows_get_each_job_once() -> None:
    make(400)
    due_times.next_deadline(using="default")

    def work(mine: list[int]) -> None:
        where = flow()
        while has_work(where):
            where.flows_until = inf
            mine += numbers(begin(where, 7))

    got = claimed_by_many(work)
    assert sorted(number for mine in got for number in mine) == list(range(400))
