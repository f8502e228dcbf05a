"""What a claimer gets, and in which order, against a model in Python; whatever others wait for."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.models import Job, Queue
from django_ojs.services.claim import claim, has_work, sources
from django_ojs.store import candidates, inserting
from django_ojs.store.dialect import dialect
from django_ojs.store.sources import Sources

from .records import record

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUES = ("a", "b", "c", "d", "e", "ojs-admin")
MINE = ("mine.one", "mine.two", "mine.three", "ojs.own")
FOREIGN = tuple(f"foreign.n{number}" for number in range(6))


class Waiting(NamedTuple):
    """A job, as the model knows it."""

    id: UUID
    queue: str
    type: str
    priority: int
    at: datetime


def fill(rows: list[Waiting]) -> None:
    """Store them."""
    records = [record(row.queue, row.type, row.at, id=row.id, priority=row.priority) for row in rows]
    for start in range(0, len(records), 1000):
        inserting.jobs(records[start : start + 1000], using="default")


def scatter(dice: random.Random, foreign: int) -> list[Waiting]:
    """Jobs of few priorities and times; ``foreign`` times as many as ours are in front of them."""
    rows = []
    for _ in range(dice.randint(0, 60)):
        queue, kind = dice.choice(QUEUES), dice.choice(MINE)
        at = NOW + timedelta(seconds=dice.randint(0, 20))
        rows.append(Waiting(clock.new_id(), queue, kind, dice.choice((0, 0, 0, 5, -5)), at))
    for _ in range(foreign * len(rows)):
        queue, kind = dice.choice(QUEUES), dice.choice(FOREIGN)
        rows.append(Waiting(clock.new_id(), queue, kind, dice.choice((0, 5)), NOW))
    dice.shuffle(rows)
    return rows


def any_sources(dice: random.Random, *, resumes: bool = False) -> Sources:
    """Ranked queues with and without types, pools, and all queues but some."""
    types = dice.sample(MINE, dice.randint(1, len(MINE)))
    kind = dice.randrange(4)
    if kind == 0:
        return sources(None, types, excluded=dice.sample(QUEUES, dice.randint(0, 2)), resumes=resumes)
    queues = dice.sample(QUEUES, dice.randint(1, len(QUEUES)))
    if kind == 1:
        return sources(queues, types, ranked=False, resumes=resumes)
    return sources(queues, types if kind == 2 else None, resumes=resumes)


def expected(where: Sources, rows: list[Waiting], paused: set[str]) -> list[UUID]:
    """The order of service: rank, priority, time of becoming available, key."""
    served = [row for row in rows if row.queue not in paused and where.serves(row.queue, row.type)]
    served.sort(key=lambda row: (where.rank(row.queue), -row.priority, row.at, row.id))
    return [row.id for row in served]


@pytest.mark.parametrize("looks", ["usual", "slow", "none"])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < 3 else pytest.mark.long) for seed in range(12)]
)
def test_every_claim_is_what_comes_first(
    seed: int, looks: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Never out of order, never nothing where there is something, whichever way was looked."""
    dice, slow = random.Random(seed), looks == "slow"
    settings.OJS = {**settings.OJS, "EVENTS": "problems" if looks == "none" else "all"}
    if slow:
        # Every look from the beginning is, and there is none for hours.
        monkeypatch.setattr("django_ojs.store.sources.SLOW", -1.0)
        monkeypatch.setattr("django_ojs.store.sources.FASTER", 1e9)
        monkeypatch.setattr("django_ojs.store.sources.RESTS", 1e9)
        monkeypatch.setattr("django_ojs.store.sources.LONGEST_REST", 1e9)
    monkeypatch.setattr(candidates, "_FOREIGN_FOR", dice.choice((0.0, 100.0)))
    rows = scatter(dice, foreign=dice.choice((0, 1, 30)))
    paused = set(dice.sample(QUEUES, dice.choice((0, 0, 1, 2))))
    Queue.objects.bulk_create(
        Queue(name=name, paused=name in paused, created_at=NOW) for name in QUEUES
    )
    fill(rows)
    where, nothing = any_sources(dice, resumes=slow), 0
    while nothing < 3:
        wanted = expected(where, rows, paused)
        limit = dice.choice((1, 2, 7, 40))
        assert has_work(where) == bool(wanted)
        if looks == "none":
            where.foreign_until, where.flows_until = 0.0, inf
        got = [job.id for job in claim(where, limit=limit, worker_id="w", beats=True)]
        assert got == wanted[: len(got)]
        assert len(got) <= limit
        assert bool(got) == bool(wanted)
        taken = set(got)
        rows = [row for row in rows if row.id not in taken]
        if not got:
            where, nothing = any_sources(dice, resumes=slow), nothing + 1


@pytest.fixture
def foreign_front() -> list[Waiting]:
    """A backlog of others, and one job each of two hundred pairs of ours behind it."""
    old = [
        Waiting(clock.new_id(), "a", FOREIGN[n % 6], 0, NOW + timedelta(seconds=n)) for n in range(400)
    ]
    late = NOW + timedelta(days=1)
    ours = [
        Waiting(clock.new_id(), f"q{n % 10}", f"mine.t{n // 10}", 0, late + timedelta(seconds=n))
        for n in range(200)
    ]
    Queue.objects.bulk_create(Queue(name=f"q{n}", created_at=NOW) for n in range(10))
    fill(old + ours)
    return ours


def all_of(types: int) -> Sources:
    """All queues, so many types."""
    return sources(None, [f"mine.t{n}" for n in range(types)])


@pytest.mark.long
def test_behind_what_others_serve_pairs_are_merged_in_order(foreign_front: list[Waiting]) -> None:
    where = all_of(20)
    got: list[UUID] = []
    while found := claim(where, limit=150, worker_id="w", beats=True):
        got += [job.id for job in found]
        assert where.foreign_until
    assert got == [row.id for row in foreign_front]


def test_a_pair_with_many_jobs_is_read_as_deep_as_it_takes() -> None:
    """Its first job and those behind it come before the first ones of most others."""
    Queue.objects.create(name="a", created_at=NOW)
    foreign = [Waiting(clock.new_id(), "a", FOREIGN[0], 9, NOW) for _ in range(1000)]
    deep = [Waiting(clock.new_id(), "a", "mine.t0", 0, NOW + timedelta(seconds=n)) for n in range(100)]
    wide = [
        Waiting(clock.new_id(), "a", f"mine.t{n + 1}", 0, NOW + timedelta(days=1, seconds=n))
        for n in range(20)
    ]
    fill(foreign + deep + wide)
    got = claim(all_of(21), limit=110, worker_id="w", beats=True)
    assert [job.id for job in got] == [row.id for row in (deep + wide)[:110]]


@pytest.mark.parametrize("pairs", [1, 600, 10_000])
def test_a_claim_asks_as_much_for_one_pair_as_for_ten_thousand(pairs: int) -> None:
    """Statements, and the parameters in them: what is asked does not name the pairs."""
    queues = [f"q{n}" for n in range(max(1, pairs // 200))]
    types = [f"mine.t{n}" for n in range(max(2, pairs // len(queues)))]
    fill([Waiting(clock.new_id(), queue, "mine.t0", 0, NOW) for queue in queues])
    for where in (sources(queues, types, ranked=False), sources(None, types)):
        with CaptureQueriesContext(connection) as asked:
            (job,) = claim(where, limit=1, worker_id="w", beats=True)
        assert job.type == "mine.t0"
        assert len(asked) <= 8
        assert sum(len(query["sql"]) for query in asked) < 40_000
        Job.objects.filter(pk=job.id).delete()
        fill([Waiting(job.id, job.queue, job.type, 0, NOW)])


def test_nothing_to_do_is_one_statement(foreign_front: list[Waiting]) -> None:
    Job.objects.filter(type__startswith="mine.").delete()
    where = sources(None, ["mine.x", "mine.y"])
    ranked = sources([f"q{n}" for n in range(10)], ["mine.x", "mine.y"])
    for idle, first in ((where, 3), (ranked, 1), (sources(["q1"], ["mine.x"]), 1)):
        for most in (first, 1, 1):
            with CaptureQueriesContext(connection) as asked:
                assert claim(idle, limit=2, worker_id="w", beats=True) == []
            assert len(asked) <= most, [query["sql"] for query in asked]


def test_many_ranked_queues_are_served_in_their_order() -> None:
    """More than fit into one statement."""
    names = [f"q{n}" for n in range(40)]
    rows = [Waiting(clock.new_id(), name, "mine.t0", 0, NOW) for name in names[::3]]
    fill(rows)
    where = sources(names, ["mine.t0", "mine.t1"])
    got = claim(where, limit=10, worker_id="w", beats=True)
    got += claim(where, limit=10, worker_id="w", beats=True)
    assert [job.id for job in got] == [row.id for row in rows]
    with CaptureQueriesContext(connection) as asked:
        assert claim(where, limit=10, worker_id="w", beats=True) == []
    assert len(asked) == 1


def test_a_claim_locks_what_it_takes() -> None:
    """Out of many queues as out of one; others find all the rest."""
    if not dialect("default").skip_locked:
        pytest.skip("one writer at a time: there are no row locks")
    rows = [
        Waiting(clock.new_id(), f"q{n % 50}", f"mine.t{n % 2}", 0, NOW + timedelta(seconds=n))
        for n in range(1000)
    ]
    fill(rows)
    free = f"SELECT id FROM {Job._meta.db_table} WHERE state = 'available' FOR UPDATE SKIP LOCKED"
    other = connection.copy()
    try:
        with transaction.atomic():
            assert len(claim(all_of(2), limit=200, worker_id="w", beats=True)) == 200
            with other.cursor() as cursor:
                cursor.execute(free)
                assert len(cursor.fetchall()) == 800
            transaction.set_rollback(True)
    finally:
        other.close()


@pytest.mark.slow
def test_others_get_what_the_first_have_not_locked() -> None:
    """Held rows in front, more than are looked at at first.

    Few among many: MariaDB would read, and hold, a small table from end to end.
    """
    if not dialect("default").skip_locked:
        pytest.skip("one writer at a time: there are no row locks")
    rows = [
        Waiting(clock.new_id(), "a", f"mine.t{n % 2}", 0, NOW + timedelta(seconds=n))
        for n in range(3000)
    ]
    fill(rows)
    held = [str(row.id) for row in rows[:100]]
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            marks = ", ".join(["%s"] * len(held))
            cursor.execute(
                f"SELECT id FROM {Job._meta.db_table} WHERE id IN ({marks}) FOR UPDATE", held
            )
            cursor.fetchall()
        got = claim(all_of(2), limit=2, worker_id="w", beats=True)
        assert [job.id for job in got] == [row.id for row in rows[100:102]]
        other.rollback()
    finally:
        other.close()


def test_a_job_that_was_moved_since_it_was_seen_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a queue that is paused, or to one that is not served."""
    Queue.objects.create(name="stopped", paused=True, created_at=NOW)
    rows = [Waiting(clock.new_id(), "a", "mine.t0", 0, NOW) for _ in range(3)]
    fill(rows)
    real = candidates.look

    def look(where: Sources, limit: int, *, using: str) -> Any:
        seen = real(where, limit, using=using)
        Job.objects.filter(pk=rows[0].id).update(queue="stopped")
        Job.objects.filter(pk=rows[1].id).update(type="foreign.x")
        return seen

    monkeypatch.setattr(candidates, "look", look)
    got = claim(all_of(2), limit=3, worker_id="w", beats=True)
    assert [job.id for job in got] == [rows[2].id]
    assert Job.objects.filter(state=State.AVAILABLE).count() == 2


def test_a_pool_of_queues_needs_types() -> None:
    with pytest.raises(ValueError, match="needs types"):
        sources(None)
    with pytest.raises(ValueError, match="needs types"):
        sources(["a", "b"], None, ranked=False)
    assert not sources([], ["mine.t0"])
    assert claim(sources([]), limit=1, worker_id="w", beats=True) == []
