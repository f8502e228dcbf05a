"""A silence counts only time in which somebody saw the database answer (decision T9, ADR 0015)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.models import Job, MaintenanceRun
from django_ojs.services import leases, reap, reaper, sightings, up_to_date
from django_ojs.services.reaper import ReaperLoop
from django_ojs.store import locking
from django_ojs.store.contention import impatient
from tests.faults.mutants import MUTANTS
from tests.services.support import (
    bounded,
    elsewhere,
    held,
    holding,
    locked_table,
    make,
    now_stored,
    take,
)

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def a_loop(name: str = "test") -> ReaperLoop:
    return ReaperLoop(interval=0.2, ran_by=name, using="default")


def watch(frozen: FrozenClock, seconds: float, *loops: ReaperLoop, beats: Sequence[JobRow] = ()) -> int:
    """Loops that tick for a while, beside workers that beat; how many jobs they ended."""
    ended = 0
    for step in range(round(seconds * 5)):
        frozen.advance(0.2)
        if beats and step % 5 == 0:
            leases.beat([held(job) for job in beats])
        ended += sum(len(loop.tick().jobs) for loop in loops)
    return ended


def test_a_clock_that_is_corrected_a_little_forgets_nothing(frozen: FrozenClock) -> None:
    """A quicker answer tells the time more precisely: it may be some milliseconds earlier."""
    loop = a_loop()
    watch(frozen, 0.2, loop)
    make(1, heartbeat_timeout=5)
    take(1)
    assert watch(frozen, 4.6, loop) == 0
    frozen.advance(-0.205)
    assert watch(frozen, 1, loop) == 1


class Pausing:
    """Lets time pass before a statement of this session, as if the server stood still there."""

    def __init__(self, frozen: FrozenClock, at: int, seconds: float) -> None:
        self._frozen, self._at, self._seconds = frozen, at, seconds
        self.count = 0

    def __call__(self, run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.count += 1
        if self.count == self._at:
            self._frozen.advance(self._seconds)
        return run(sql, params, many, context)


@pytest.mark.slow
@pytest.mark.fault("F75")
@pytest.mark.parametrize("dead_too", [False, True], ids=["all alive", "one dead"])
def test_a_server_that_stands_still_in_a_scan_stalls_nobody(
    frozen: FrozenClock, dead_too: bool
) -> None:
    """Before every statement of a pass, of one that has something to end as well."""
    at, statements = 1, 2
    while at <= statements:
        make(3, heartbeat_timeout=8, retry={"max_attempts": 1})
        jobs = take(3)
        loop = a_loop()
        watch(frozen, 2, loop, beats=jobs)
        living = jobs[1:] if dead_too else jobs
        ended = watch(frozen, 7, loop, beats=living)
        pausing = Pausing(frozen, at, 20)
        with connections["default"].execute_wrapper(pausing):
            ended += watch(frozen, 1.2, loop)
        statements = max(statements, pausing.count)
        assert not ended or dead_too, f"before statement {at}"
        assert {now_stored(job).state for job in living} == {"active"}, f"before statement {at}"
        watch(frozen, 9, loop, beats=living)
        assert {now_stored(job).state for job in living} == {"active"}, f"before statement {at}"
        if dead_too:
            assert now_stored(jobs[0]).state == "discarded", f"before statement {at}"
        Job.objects.all()._raw_delete("default")
        MaintenanceRun.objects.all()._raw_delete("default")
        at += 1
    assert at > 5


@pytest.mark.slow
@pytest.mark.fault("F75")
def test_writes_that_cannot_be_committed_stall_nobody(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node of a Galera cluster that has lost the others: it reads, and locks, all the time."""

    def fail() -> None:
        raise OperationalError("the commit failed")

    make(2, heartbeat_timeout=4, retry={"max_attempts": 1})
    jobs = take(2)
    loop = a_loop()
    for moment in range(6):
        # From each second after a record.
        watch(frozen, 6 + moment, loop, beats=jobs)
        with monkeypatch.context() as patch:
            patch.setattr(connections["default"], "_commit", fail)
            for _ in range(35):
                frozen.advance(0.2)
                with suppress(OperationalError):
                    loop.tick()
        assert watch(frozen, 0.4, loop) == 0, moment
    watch(frozen, 6, loop, beats=jobs)
    assert watch(frozen, 3, loop, beats=jobs[1:]) == 0
    assert watch(frozen, 1.2, loop, beats=jobs[1:]) == 1


@pytest.mark.slow
@pytest.mark.fault("F75")
@pytest.mark.parametrize("another", [False, True], ids=["loop", "another loop"])
def test_commits_that_wait_stall_nobody(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """As on a primary whose synchronous standby is away: it reads, and locks, all the time."""
    make(2, heartbeat_timeout=4, retry={"max_attempts": 1})
    jobs = take(2)
    loop, other = a_loop(), a_loop("another")
    loops = [loop, other] if another else [loop]
    connection: Any = connections["default"]
    real, waits = connection._commit, [0.0]

    def commit() -> None:
        frozen.advance(waits.pop() if waits else 0)
        real()

    for moment in range(6):
        watch(frozen, 6 + moment, *loops, beats=jobs)
        with monkeypatch.context() as patch:
            patch.setattr(connection, "_commit", commit)
            # Until there is something to be written, which then waits.
            waits[:] = [20.0]
            for _ in range(50):
                frozen.advance(0.2)
                assert not loop.tick().jobs, moment
                if not waits:
                    break
        assert not waits
        assert watch(frozen, 0.4, *loops, beats=jobs) == 0, moment
    watch(frozen, 6, *loops, beats=jobs)
    assert watch(frozen, 3, *loops, beats=jobs[1:]) == 0
    assert watch(frozen, 1.2, *loops, beats=jobs[1:]) == 1


@pytest.mark.fault("F75")
def test_commits_that_wait_while_another_scan_is_in_its_commit_stall_nobody(
    vendor: str, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one holds the record, so that this one has nothing to write; it must find out too."""
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(2, heartbeat_timeout=4, retry={"max_attempts": 1})
    jobs = take(2)
    loop = a_loop()
    connection: Any = connections["default"]
    real, wrote = connection._commit, [False]

    def note(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        wrote[0] |= sql.startswith(("INSERT", "UPDATE", "DELETE"))
        return run(sql, params, many, context)

    def commit() -> None:
        if wrote[0]:
            frozen.advance(10)
        wrote[0] = False
        real()

    with bounded():
        watch(frozen, 7, loop, beats=jobs)
        with (
            elsewhere(lambda: list(MaintenanceRun.objects.select_for_update())),
            connection.execute_wrapper(note),
            monkeypatch.context() as patch,
        ):
            patch.setattr(connection, "_commit", commit)
            for _ in range(40):
                frozen.advance(0.2)
                assert not loop.tick().jobs
        assert watch(frozen, 0.4, loop) == 0
        watch(frozen, 6, loop, beats=jobs)
        assert watch(frozen, 3, loop, beats=jobs[1:]) == 0
        assert watch(frozen, 1.2, loop, beats=jobs[1:]) == 1
    assert now_stored(jobs[1]).state == "active"


def test_time_that_was_seen_counts_on_time(frozen: FrozenClock) -> None:
    make(1, heartbeat_timeout=8)
    take()
    loop = a_loop()
    assert watch(frozen, 7.8, loop) == 0
    assert watch(frozen, 1.2, loop) == 1


def test_outages_that_come_again_and_again_hide_no_death(frozen: FrozenClock) -> None:
    make(1, heartbeat_timeout=8)
    take()
    loop = a_loop()
    for _ in range(3):
        assert watch(frozen, 2.4, loop) == 0
        frozen.advance(6)
    assert watch(frozen, 1.6, loop) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "heard"), [(1000, 0), (1000, 20), (30, 0)], ids=["before all", "amid them", "too many"]
)
def test_outages_without_number_hide_no_death_and_make_none(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, kept: int, heard: int
) -> None:
    """The time between them counts, the time in which nobody was seen does not."""
    monkeypatch.setattr(sightings, "_KEPT_SPANS", kept)
    make(1, heartbeat_timeout=60)
    jobs = take()
    loop = a_loop()
    for outage in range(120 + heard):
        assert watch(frozen, 0.6, loop, beats=jobs if outage < heard else []) == 0
        frozen.advance(6)
    assert watch(frozen, 11, loop) == 0
    assert watch(frozen, 3, loop) == 1


@pytest.mark.slow
def test_what_another_reaper_saw_counts_for_one_that_was_away(frozen: FrozenClock) -> None:
    make(2, heartbeat_timeout=30)
    jobs = take(2)
    here, away = a_loop("here"), a_loop("away")
    assert watch(frozen, 5, here, away) == 0
    assert watch(frozen, 20, here, beats=jobs[1:]) == 0
    assert watch(frozen, 5.6, here, away, beats=jobs[1:]) == 1
    assert now_stored(jobs[0]).state == "retryable"


def test_who_has_just_begun_counts_what_was_recorded(frozen: FrozenClock) -> None:
    """Ten seconds are no gap for loops that record every five; yet nobody looked."""
    make(1, heartbeat_timeout=8)
    (job,) = take()
    watch(frozen, 2, a_loop(), beats=[job])
    frozen.advance(10)
    assert watch(frozen, 2, a_loop()) == 0
    assert now_stored(job).state == "active"


def test_a_caller_who_only_looks_at_a_job_counts_what_was_recorded(frozen: FrozenClock) -> None:
    make(1, heartbeat_timeout=4, retry={"initial_interval": "PT60S", "jitter": False})
    (job,) = take()
    watch(frozen, 1, a_loop(), beats=[job])
    frozen.advance(6)
    assert up_to_date.find_up_to_date(job.id).state == "active"
    watch(frozen, 6, a_loop())
    assert up_to_date.find_up_to_date(job.id).state == "retryable"


def test_a_single_run_counts_as_much_as_its_habit(frozen: FrozenClock) -> None:
    make(1, heartbeat_timeout=30)
    take()
    for _ in range(2):
        assert not reaper.scan(cadence=None, ran_by="cron").counts
        frozen.advance(10)
    frozen.advance(15)
    assert reaper.scan(cadence=None, ran_by="cron").counts == {"stalled": 1}


def test_a_held_record_keeps_no_deadline_waiting(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(1, heartbeat_timeout=8)
    make(1, job_type="t.ttl", enqueue_ttl=4)
    take()
    with bounded():
        loop = a_loop()
        assert watch(frozen, 1, loop) == 0
        with elsewhere(lambda: list(MaintenanceRun.objects.select_for_update())):
            assert watch(frozen, 3.2, loop) == 1
            assert watch(frozen, 4.6, loop) == 1


@pytest.mark.slow
def test_a_locked_table_stalls_nobody(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks the whole file")
    make(2, heartbeat_timeout=8)
    jobs = take(2)
    with bounded():
        loop = a_loop()
        watch(frozen, 2, loop, beats=jobs)
        with locked_table():
            for _ in range(5):
                frozen.advance(4)
                leases.beat([held(job) for job in jobs])
                with impatient(1), suppress(OperationalError):
                    loop.tick()
        assert watch(frozen, 7, loop) == 0
    assert {now_stored(job).state for job in jobs} == {"active"}


@pytest.mark.slow
@pytest.mark.parametrize("heartbeat_timeout", [4, 8])
def test_a_held_write_lock_stalls_nobody(
    vendor: str, frozen: FrozenClock, heartbeat_timeout: int
) -> None:
    """Time in which the judge itself waited for the lock of the file."""
    if vendor != "sqlite":
        pytest.skip("about SQLite")
    make(2, heartbeat_timeout=heartbeat_timeout)
    jobs = take(2)
    with bounded():
        loop = a_loop()
        watch(frozen, 3, loop, beats=jobs)
        with elsewhere(lambda: None):
            for _ in range(8):
                frozen.advance(3)
                with impatient(1), suppress(OperationalError):
                    assert not loop.tick().jobs
        assert watch(frozen, 1, loop) == 0
        assert watch(frozen, heartbeat_timeout, loop, beats=jobs[:1]) == 1
    assert now_stored(jobs[0]).state == "active"


@pytest.mark.fault("F75")
def test_an_outage_ends_no_visibility_lease(frozen: FrozenClock) -> None:
    make()
    (job,) = take(visibility_ms=8000, beats=False)
    loop = a_loop()
    assert watch(frozen, 5, loop) == 0
    frozen.advance(300)
    assert watch(frozen, 2.6, loop) == 0
    assert now_stored(job).state == "active"
    assert watch(frozen, 1.2, loop) == 1
    assert now_stored(job).state == "available"


@pytest.mark.slow
@pytest.mark.fault("F75")
@pytest.mark.parametrize("row_held", [False, True], ids=["free", "held"])
def test_a_visibility_lease_has_the_air_of_the_deadline_that_bounds_it(
    vendor: str, frozen: FrozenClock, row_held: bool
) -> None:
    if row_held and vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(timeout=10, grace_period=0, retry={"initial_interval": "PT60S", "jitter": False})
    (job,) = take(visibility_ms=60_000, beats=False)
    loop = a_loop()
    assert watch(frozen, 9, loop) == 0
    with bounded(), holding(job) if row_held else nullcontext():
        frozen.advance(300)
        assert watch(frozen, 1, loop) == 0
    assert watch(frozen, 13, loop) == 0
    assert now_stored(job).state == "active"
    assert watch(frozen, 2, loop) == 1
    assert now_stored(job).json("error")["timeout_kind"] == "execution"


@pytest.mark.slow
def test_recovery_comes_back_for_held_rows(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(2, timeout=10, grace_period=0)
    jobs = take(2)
    loop = a_loop()
    watch(frozen, 1, loop)
    with bounded(), holding(jobs[0]):
        frozen.advance(60)
        assert watch(frozen, 1, loop) == 0
    # Of 15 s of air one has passed.
    assert watch(frozen, 13, loop, beats=jobs) == 0
    assert watch(frozen, 2, loop, beats=jobs) == 2


def test_recovery_holds_no_job_that_does_not_run(vendor: str, frozen: FrozenClock) -> None:
    """Nor its entry in an index: a server locks what it reads on its way to the rows."""
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(5)
    take(5)
    waiting = make(1, enqueue_ttl=3)[0]
    until = frozen.time + timedelta(seconds=60)
    frozen.advance(4)
    with bounded(), elsewhere(lambda: locking.active(until, using="default")):
        reap.reap()
        assert now_stored(waiting).state == "discarded"


def spans() -> list[list[datetime]]:
    return [
        [datetime.fromisoformat(moment) for moment in pair]
        for pair in MaintenanceRun.objects.get(name="reap").blind or ()
    ]


@pytest.mark.slow
def test_spans_are_kept_as_long_as_they_matter(frozen: FrozenClock) -> None:
    make(1, heartbeat_timeout=20)
    (job,) = take()
    loop = a_loop()
    watch(frozen, 6, loop, beats=[job])
    seen = frozen.time
    frozen.advance(9)
    watch(frozen, 6, loop, beats=[job])
    ((start, end),) = [span for span in spans() if span[1] - span[0] > timedelta(seconds=5)]
    assert (start, end) == (seen, seen + timedelta(seconds=9.2))
    watch(frozen, 45, loop, beats=[job])
    assert spans() == []


@pytest.mark.slow
@pytest.mark.fault("F75")
@pytest.mark.parametrize("another", [False, True], ids=["loop", "another loop"])
def test_a_long_outage_makes_no_silence_of_the_one_before(frozen: FrozenClock, another: bool) -> None:
    """Spans are forgotten by the time that was seen since, not by the time that passed."""
    make(1, heartbeat_timeout=20)
    (job,) = take()
    loop = a_loop()
    assert watch(frozen, 1, loop) == 0
    frozen.advance(60)
    assert watch(frozen, 6, loop) == 0
    frozen.advance(600)
    if another:
        loop = a_loop("another")
    assert watch(frozen, 12, loop) == 0
    assert now_stored(job).state == "active"
    # What the first saw after its last record is lost with it.
    assert watch(frozen, 7 if another else 2, loop) == 1


@pytest.mark.slow
def test_a_reaper_that_judges_after_its_wait_is_found(frozen: FrozenClock) -> None:
    with MUTANTS["judge-after-wait"](), pytest.raises(AssertionError, match="before statement"):
        test_a_server_that_stands_still_in_a_scan_stalls_nobody(frozen, False)
