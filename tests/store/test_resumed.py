"""What a held snapshot keeps is not read by every look (ADR 46)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services.claim import claim, has_work, sources
from django_ojs.store import candidates, inserting
from django_ojs.store.dialect import dialect
from django_ojs.store.due_times import DueProbe
from django_ojs.store.sources import Sources
from tests.store.records import record
from tests.store.test_claim_plans import _read
from tests.support import drop_dead_rows, family

pytestmark = pytest.mark.every_database
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PASSED = 4000
TYPES = ("mine.a", "mine.b")


@pytest.fixture
def snapshot(ojs_db: None) -> Iterator[None]:
    """Another session that may still need everything that is there now."""
    if family() != "postgresql":
        pytest.skip("only PostgreSQL counts the entries that are passed over")
    drop_dead_rows()
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM django_ojs_job")
        cursor.fetchall()
    yield
    other.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look from the beginning is slow, and none is made again for hours."""
    for name, value in (("SLOW", -1.0), ("FASTER", 1e9), ("RESTS", 1e9), ("LONGEST_REST", 1e9)):
        monkeypatch.setattr(f"django_ojs.store.sources.{name}", value)


def _store(count: int, at: datetime, **fields: Any) -> None:
    rows = [record("q", TYPES[n % 2], at + timedelta(seconds=n), **fields) for n in range(count)]
    inserting.jobs(rows, using="default")


def _pass(where: Sources, rounds: int = 8) -> None:
    """Jobs that come and are claimed, all of them."""
    for number in range(rounds):
        _store(PASSED // rounds, NOW + timedelta(hours=number))
        while claim(where, limit=250, worker_id="w", beats=True):
            pass


@pytest.mark.slow
def test_a_look_reads_no_entries_of_what_was_claimed(snapshot: None, slow: None) -> None:
    where = sources(None, TYPES, resumes=True)
    _pass(where)
    _store(50, NOW + timedelta(days=1))
    read = _read(lambda: candidates.look(where, 10, using="default"))
    whole = _read(lambda: candidates.look(where, 10, whole=True, using="default"))
    assert read * 5 < whole
    assert len(claim(where, limit=60, worker_id="w", beats=True)) == 50


def test_what_is_given_back_is_found_by_the_next_whole_look(ojs_db: None, slow: None) -> None:
    if family() == "sqlite":
        pytest.skip("every look of SQLite is at the whole")
    where = sources(None, TYPES, resumes=True)
    _store(30, NOW)
    first, *_ = claim(where, limit=10, worker_id="w", beats=True)
    while claim(where, limit=10, worker_id="w", beats=True):
        pass
    Job.objects.filter(pk=first.id).update(
        state=State.AVAILABLE, lease_id=None, worker_id=None, deadline_at=None
    )
    assert has_work(where), "a worker that drains does not end"
    assert claim(where, limit=10, worker_id="w", beats=True) == []
    where.resumed._whole_at = 0.0
    assert [job.id for job in claim(where, limit=10, worker_id="w", beats=True)] == [first.id]


def test_who_may_not_resume_looks_at_the_whole() -> None:
    where = sources(None, TYPES)
    for _ in range(3):
        where.resumed.looked(100.0, 1.0)
        where.resumed.found(0, NOW)
    assert where.resumed.place(100.0) is None


def test_one_slow_look_changes_nothing(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    where = sources(None, TYPES, resumes=True)
    for took, is_slow in ((1.0, False), (0.01, False), (1.0, False), (1.0, True), (0.01, False)):
        where.resumed.looked(clock.boottime(), took)
        where.resumed.found(0, NOW)
        assert where.resumed.is_slow is is_slow
        assert (where.resumed.place(clock.boottime()) is not None) is is_slow
    for took, rest in ((0.1, 2.0), (10.0, 5.0)):
        where.resumed.looked(100.0, took)
        where.resumed.looked(102.0, took)
        where.resumed.found(3, NOW)
        assert where.resumed.place(102.0 + rest - 0.1) == (3, NOW)
        assert where.resumed.place(102.0 + rest + 0.1) is None, "then it is time for a whole look"


def test_where_looks_are_as_slow_behind_the_place_dead_entries_are_not_why() -> None:
    where = sources(None, TYPES, resumes=True)
    for _ in range(2):
        where.resumed.looked(100.0, 0.1)
    where.resumed.found(3, NOW)
    for took, goes_on in ((0.001, True), (0.049, True), (0.051, False)):
        where.resumed.looked_on(took)
        assert (where.resumed.is_slow, where.resumed.place(101.0) is not None) == (goes_on, goes_on)


def test_a_probe_reads_no_entries_of_deadlines_that_were_met(
    snapshot: None, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(dialect("default")), "quick_row", lambda *_, **__: None)
    deadline = clock.now("default") + timedelta(hours=1)
    lease = {"lease_id": clock.new_id(), "started_at": NOW, "attempt": 1}
    _store(PASSED, NOW, state=State.ACTIVE, deadline_at=deadline, **lease)
    Job.objects.update(state=State.COMPLETED, deadline_at=None, lease_id=None, finished_at=NOW)
    probe = DueProbe("default")

    def look() -> None:
        # On a cursor whose statements are seen.
        probe._connection, probe._cursor = connection.connection, connection.cursor()
        probe.look()

    first, second, third = (_read(look) for _ in range(3))
    assert third * 5 < min(first, second)


def test_a_probe_that_looks_near_sees_what_is_near(
    ojs_db: None, slow: None, frozen: clock.FrozenClock
) -> None:
    probe = DueProbe("default")
    for _ in range(2):
        assert probe.look().deadline is None
    for seconds in (7200, 50, -50):
        Job.objects.all().delete()
        at = frozen.time + timedelta(seconds=seconds)
        _store(1, NOW, deadline_at=at)
        none_before = frozen.time + timedelta(seconds=60)
        assert probe.look().deadline == min(at, none_before)
        assert DueProbe("default").look().deadline == at
