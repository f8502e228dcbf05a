"""A row that somebody else holds is in nobody's way, and nobody's silence (ADR 0015)."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.api import cancel, enqueue, enqueue_many
from django_ojs.clock import FrozenClock
from django_ojs.models import Event, Job, LeaseBeat, Queue, UniqueKey, Worker
from django_ojs.services import (
    attempts,
    http_workers,
    leases,
    promote,
    prune,
    reap,
    settle,
    turns,
    workers,
)
from django_ojs.services import claim as claims
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report
from django_ojs.store.contention import RowHeld, impatient, is_held
from django_ojs.store.sources import Sources
from tests.faults.mutants import MUTANTS
from tests.services.support import (
    ack,
    bounded,
    elsewhere,
    held,
    holding,
    locked_table,
    make,
    now_stored,
    take,
)
from tests.support import family, not_none, poll

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


@pytest.fixture
def row_locks(vendor: str) -> None:
    """Rows that can be locked one by one."""
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")


class TestClaims:
    """A claim serves what nobody holds."""

    @pytest.mark.parametrize("ranked", [True, False])
    def test_a_queue_whose_row_is_held_is_passed_over(self, row_locks: None, ranked: bool) -> None:
        """However much is waiting in it, in front of the others."""
        enqueue_many("test.job", [[0]] * 600, queue="held", priority=1)
        free = enqueue("test.job", [1], queue="free")
        where = sources(["held", "free"], ["test.job"], ranked=ranked)
        with bounded(), pausing("held"), CaptureQueriesContext(connections["default"]) as queries:
            got = claim(where, limit=2, worker_id="w", beats=True)
            assert [job.id for job in got] == [free.id]
        assert not [query for query in queries if "ROLLBACK" in query["sql"]]

    @pytest.mark.slow
    def test_the_held_queue_is_waited_for_when_there_is_nothing_else(self, row_locks: None) -> None:
        """So that nobody takes it for an empty one."""
        enqueue("test.job", [0], queue="held")
        where = sources(["held", "free"], ["test.job"])
        with bounded(), pausing("held"), impatient(), pytest.raises(OperationalError) as caught:
            claim(where, limit=2, worker_id="w", beats=True)
        assert is_held(caught.value)
        assert len(claim(where, limit=2, worker_id="w", beats=True)) == 1

    def test_no_job_is_started_and_lost_that_came_after_the_look(
        self, row_locks: None, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        """One queue is left, and of what was seen in it not all can be started by one statement."""
        settings.OJS = {**settings.OJS, "EVENTS": "problems"}
        enqueue_many("test.job", [[0]] * 600, queue="held", priority=1)
        plain = enqueue("test.job", [1], queue="free")
        timed = enqueue("test.job", [2], queue="free", total_timeout="1h")
        lock = claims._lock

        def late(where: Sources, *others: Any) -> Any:
            if where.only is not None:
                enqueue("test.job", [3], queue="free")
            return lock(where, *others)

        monkeypatch.setattr(claims, "_lock", late)
        where = sources(["held", "free"], ["test.job"])
        with bounded(), pausing("held"):
            got = claim(where, limit=4, immediate=4, worker_id="w", beats=True)
        assert [job.id for job in got][:2] == [plain.id, timed.id]
        running = Job.objects.filter(state="active").values_list("pk", flat=True)
        assert {*running} == {job.id for job in got}


def pausing(queue: str) -> AbstractContextManager[None]:
    """For the block another session pauses the queue, and goes back on it in the end."""
    return elsewhere(lambda: list(Queue.objects.select_for_update().filter(name=queue)))


class TestBeats:
    """Decision T4: every living lease is heard."""

    def test_a_held_row_keeps_no_neighbour_from_being_heard(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(3)
        jobs = take(3)
        frozen.advance(5)
        with holding(jobs[1]):
            kept = leases.beat([held(job) for job in jobs])
            assert {lease.job_id for lease in kept} == {job.id for job in jobs}
            assert [now_stored(job).heartbeat_at == frozen.time for job in jobs] == [True, False, True]
        row = LeaseBeat.objects.get()
        assert (row.lease_id, row.heartbeat_at) == (jobs[1].lease_id, frozen.time)

    def test_who_judges_a_silence_reads_it(self, row_locks: None, frozen: FrozenClock) -> None:
        """Neither while the row is held nor when it becomes free; its end is judged by it, too."""
        make(2, heartbeat_timeout=8)
        jobs = take(2)
        with holding(jobs[1]):
            for _ in range(12):
                frozen.advance(2)
                leases.beat([held(job) for job in jobs])
                assert not reap.reap().counts
        assert not reap.reap().counts
        frozen.advance(7.9)
        leases.beat([held(jobs[0])])
        assert not reap.reap().counts
        frozen.advance(0.1)
        reaped = reap.reap()
        assert (dict(reaped.counts), list(reaped.jobs)) == ({"stalled": 1}, [jobs[1].id])

    def test_a_beat_that_is_not_put_aside_is_found(self, row_locks: None, frozen: FrozenClock) -> None:
        with MUTANTS["beats-not-put-aside"](), pytest.raises(AssertionError):
            self.test_who_judges_a_silence_reads_it(None, frozen)

    def test_a_visibility_lease_of_a_held_row_is_renewed(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(1)
        (job,) = take(visibility_ms=3000, beats=False)
        with holding(job):
            for _ in range(4):
                frozen.advance(2)
                assert leases.beat([held(job)])
        assert not reap.reap().counts
        frozen.advance(2.9)
        assert not reap.reap().counts
        frozen.advance(0.1)
        assert reap.reap().counts == {"visibility": 1}

    def test_a_beat_gives_no_visibility_lease_beyond_the_deadline(self, frozen: FrozenClock) -> None:
        make(1, timeout=10, grace_period=0)
        (job,) = take(visibility_ms=6000)
        frozen.advance(3)
        leases.beat([held(job)])
        assert now_stored(job).lease_expires_at == frozen.time + timedelta(seconds=6)
        frozen.advance(3)
        leases.beat([held(job)])
        assert now_stored(job).lease_expires_at == job.deadline_at == frozen.time + timedelta(seconds=4)

    def test_a_visibility_timeout_of_the_job_goes_before_that_of_a_beat(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        """Also where the beat was put aside, since the row is held."""
        make(1, visibility_timeout=3)
        (job,) = take(beats=False)
        frozen.advance(1)
        with holding(job):
            leases.beat([held(job)], visibility_ms=60_000)
        frozen.advance(2.9)
        assert not reap.reap().counts
        frozen.advance(0.1)
        assert reap.reap().counts == {"visibility": 1}

    def test_a_beat_is_one_statement_when_nothing_is_held(self, frozen: FrozenClock) -> None:
        make(30)
        jobs = take(30)
        connection = connections["default"]
        allowed = 2 if family() == "mysql" else 1
        for some in (jobs, jobs[:1]):
            with CaptureQueriesContext(connection) as queries:
                assert len(leases.beat([held(job) for job in some])) == len(some)
            said = [query["sql"] for query in queries if "heartbeat_at" in query["sql"]]
            assert len(said) == allowed, said

    def test_a_lost_lease_is_not_taken_for_a_held_one(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(2, heartbeat_timeout=8)
        lost, kept = take(2)
        frozen.advance(8)
        leases.beat([held(kept)])
        assert reap.reap().counts == {"stalled": 1}
        assert [lease.job_id for lease in leases.beat([held(lost), held(kept)])] == [kept.id]
        with holding(lost):
            assert leases.beat([held(lost)]) == []
        assert not LeaseBeat.objects.exists()

    def test_a_beat_never_moves_backwards(self, frozen: FrozenClock) -> None:
        """One that was sent long ago, and lands late."""
        make(2, heartbeat_timeout=8)
        jobs = take(2)
        old = frozen.time
        now = frozen.advance(6)
        leases.beat([held(jobs[0])])
        frozen.time = old
        for _ in range(2):
            leases.beat([held(job) for job in jobs])
        frozen.time = now
        assert now_stored(jobs[0]).heartbeat_at == frozen.time
        frozen.advance(2.001)
        reaped = reap.reap()
        assert (dict(reaped.counts), list(reaped.jobs)) == ({"stalled": 1}, [jobs[1].id])

    def test_a_late_beat_shortens_no_visibility_lease(self, frozen: FrozenClock) -> None:
        make(1)
        (job,) = take(visibility_ms=3000)
        old = frozen.time
        now = frozen.advance(2)
        leases.beat([held(job)])
        frozen.time = old
        leases.beat([held(job)])
        assert now_stored(job).lease_expires_at == now + timedelta(seconds=3)

    @pytest.mark.slow
    def test_a_table_that_somebody_locked_stalls_nobody(self, frozen: FrozenClock) -> None:
        """As a plain CREATE INDEX does it."""
        if family() == "sqlite":
            pytest.skip("SQLite locks the whole file")
        make(2, heartbeat_timeout=8)
        jobs = take(2)
        with bounded(), locked_table():
            for _ in range(3):
                frozen.advance(3)
                before = clock.boottime()
                assert len(leases.beat([held(job) for job in jobs])) == 2
                assert clock.boottime() - before < 4
        assert not reap.reap().counts

    def test_what_was_left_behind_is_pruned(self, row_locks: None, frozen: FrozenClock) -> None:
        make(2)
        jobs = take(2)
        with holding(*jobs):
            leases.beat([held(job) for job in jobs])
        LeaseBeat.objects.filter(job_id=jobs[0].id).update(lease_id=clock.new_lease())
        prune.prune()
        assert [row.lease_id for row in LeaseBeat.objects.all()] == [jobs[1].lease_id]

    def test_pruning_passes_over_keys_that_are_held(self, row_locks: None, frozen: FrozenClock) -> None:
        """By whoever enqueues in a long transaction, say."""
        for job in make(2, unique=True):
            cancel(job.id)
        Job.objects.all()._raw_delete("default")
        frozen.advance(2 * 86_400)
        keys = UniqueKey.objects.order_by("pk")
        first = keys[0]
        with bounded(), elsewhere(lambda: list(keys.select_for_update().filter(pk=first.pk))):
            prune.prune()
            assert list(keys) == [first]
        prune.prune()
        assert not UniqueKey.objects.exists()

    @pytest.mark.slow
    def test_a_held_worker_row_is_no_failed_beat(self, row_locks: None, frozen: FrozenClock) -> None:
        info = workers.WorkerInfo("w1", clock.new_lease())
        workers.register(info)
        Worker.objects.update(directive="quiet")

        def hold() -> None:
            list(Worker.objects.select_for_update())

        with bounded(), elsewhere(hold):
            assert workers.report(info, phase="running", running=0) == "quiet"

    def test_a_sign_of_life_waits_for_nobody(self, row_locks: None, frozen: FrozenClock) -> None:
        """A report that names its worker is one; what holds the row, such as an order, goes before."""
        began = http_workers.seen("w1", None, beats=True).heartbeat_at
        frozen.advance(2)
        with bounded(), elsewhere(lambda: list(Worker.objects.select_for_update())):
            http_workers.heard("w1", None)
            assert Worker.objects.get().heartbeat_at == began
        http_workers.heard("w1", None)
        assert Worker.objects.get().heartbeat_at == frozen.time


class TestDeadlines:
    """Who ends attempts or moves their deadlines passes over held rows."""

    def test_an_attempt_that_is_over_is_left_to_the_reaper(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(2, total_timeout=10)
        jobs = take(2)
        frozen.advance(10)
        with bounded(), impatient(), holding(jobs[0]):
            found = attempts.check([held(job) for job in jobs])
        assert [lease.job_id for lease in found.kept] == [jobs[0].id]
        assert found.reasons == {jobs[1].lease_id: "total_timeout"}

    def test_after_an_outage_the_others_are_extended(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(2, timeout=10, grace_period=0)
        jobs = take(2)
        until = frozen.time + timedelta(seconds=60)
        with bounded(), impatient(), holding(jobs[0]):
            assert reap.recover(until=until, now=frozen.time, using="default") == 1
        assert [now_stored(job).deadline_at for job in jobs] == [jobs[0].deadline_at, until]

    def test_a_step_of_the_clock_moves_the_others(self, row_locks: None, frozen: FrozenClock) -> None:
        make(2, timeout=10, grace_period=0)
        jobs = take(2)
        step = timedelta(hours=1)
        with bounded(), impatient(), holding(jobs[0]):
            assert reap.set_clock(step, now=frozen.time, using="default") == 1
        moved = [now_stored(job).started_at for job in jobs]
        assert moved == [jobs[0].started_at, not_none(jobs[1].started_at) + step]


class TestReports:
    """Settlements and progress pass over held rows, and come back for them."""

    @pytest.mark.slow
    def test_a_held_row_keeps_no_neighbour_from_being_settled(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(4)
        jobs = take(4)
        outcomes = [Outcome(held(job), Report.ACK, "1", claimed=job) for job in jobs[:3]]
        outcomes.append(Outcome(held(jobs[3]), Report.FAIL))
        with bounded(), holding(jobs[1], jobs[3]):
            said = [str(one.verdict) for one in settle.settle(outcomes, wait=False)]
            assert said == ["settled", "held", "settled", "held"]
            states = [now_stored(job).state for job in jobs]
            assert states == ["completed", "active", "completed", "active"]
        said = [str(one.verdict) for one in settle.settle(outcomes, wait=False)]
        assert said == ["replayed", "settled", "replayed", "settled"]

    def test_a_caller_that_waits_gets_the_free_ones_settled_first(self, row_locks: None) -> None:
        make(3)
        jobs = take(3)
        answers: list[str] = []

        def report() -> None:
            try:
                answers.extend(str(one.verdict) for one in ack(*jobs))
            finally:
                connections.close_all()

        thread = threading.Thread(target=report)
        with holding(jobs[0]):
            thread.start()
            poll(lambda: [now_stored(job).state for job in jobs[1:]] == ["completed"] * 2)
            assert now_stored(jobs[0]).state == "active"
        thread.join(20)
        assert answers == ["settled"] * 3

    def test_progress_passes_over_held_rows(self, row_locks: None, frozen: FrozenClock) -> None:
        make(3)
        jobs = take(3)
        reports = [leases.Progress(held(job), 0.5, job=job) for job in jobs]
        with holding(jobs[1]):
            kept = leases.progress(reports, wait=False)
            assert {lease.job_id for lease in kept if lease.written} == {jobs[0].id, jobs[2].id}
            assert {lease.job_id for lease in kept if not lease.written} == {jobs[1].id}
        assert Event.objects.filter(kind="job.progress").count() == 2
        assert len(leases.progress(reports[1:2])) == 1
        assert {now_stored(job).progress for job in jobs} == {0.5}
        assert Event.objects.filter(kind="job.progress").count() == 3

    def test_a_checkpoint_of_a_held_row_says_so(self, row_locks: None) -> None:
        make(1)
        (job,) = take()
        with holding(job), pytest.raises(RowHeld):
            leases.checkpoint(held(job), '{"n": 1}')
        assert leases.checkpoint(held(job), '{"n": 1}')
        assert now_stored(job).checkpoint_seq == 1

    def test_promotion_passes_over_held_rows(self, row_locks: None, frozen: FrozenClock) -> None:
        jobs = make(3, delay=5)
        frozen.advance(6)
        with bounded(), holding(jobs[1]):
            assert promote.promote() == 2
        assert promote.promote() == 1
        assert {now_stored(job).state for job in jobs} == {"available"}

    @pytest.mark.parametrize("limit", [None, 1])
    def test_promotion_passes_over_more_held_rows_than_it_takes(
        self, row_locks: None, frozen: FrozenClock, limit: int | None
    ) -> None:
        """Those of somebody who has cancelled them all in a transaction, say."""
        first, (free,) = make(turns.BATCH, delay=5), make(1, delay=6)
        frozen.advance(6)
        with bounded(), holding(*first):
            assert promote.promote(limit=limit) == 1
            assert now_stored(free).state == "available"
        assert promote.promote() == turns.BATCH

    def test_waiting_deadlines_pass_over_more_held_rows_than_are_taken(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        first, (free,) = make(turns.BATCH, enqueue_ttl=5), make(1, enqueue_ttl=6)
        frozen.advance(6)
        with bounded(), holding(*first):
            assert list(reap.reap(limit=1).jobs) == [free.id]
        assert len(reap.reap().jobs) == turns.BATCH

    def test_silences_pass_over_more_held_rows_than_are_taken(
        self, row_locks: None, frozen: FrozenClock
    ) -> None:
        make(turns.BATCH, heartbeat_timeout=8)
        make(1, heartbeat_timeout=9)
        *first, silent = take(turns.BATCH + 1)
        frozen.advance(9)
        with bounded(), holding(*first):
            assert list(reap.reap().jobs) == [silent.id]
        assert len(reap.reap().jobs) == turns.BATCH

    def test_reaping_passes_over_held_rows(self, row_locks: None, frozen: FrozenClock) -> None:
        make(2, heartbeat_timeout=8)
        jobs = take(2)
        frozen.advance(8)
        with bounded(), holding(jobs[0]):
            assert list(reap.reap().jobs) == [jobs[1].id]
        assert list(reap.reap().jobs) == [jobs[0].id]
