"""The five timeouts are enforced on the server's word alone; an outage never mass-fails the living."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_ojs.api import edit, enqueue, enqueue_many
from django_ojs.clock import FrozenClock
from django_ojs.domain.timeouts import heartbeat_deadline
from django_ojs.models import Attempt, Event, Job, MaintenanceRun
from django_ojs.services import leases, operate, promote, reap, reaper, turns
from django_ojs.services.settle import Outcome, Report, settle
from django_ojs.services.up_to_date import find_up_to_date
from django_ojs.store import due_times, selectors
from tests.support import not_none

from .support import ack, held, make, now_stored, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

NO_JITTER = {"initial_interval": "PT10S", "jitter": False}


def _reap(frozen: FrozenClock, seconds: float) -> dict[str, int]:
    frozen.advance(seconds)
    return dict(reap.reap().counts)


def test_execution_timeout_is_enforced_at_timeout_plus_grace(frozen: FrozenClock) -> None:
    make(timeout=2, grace_period=1, retry=NO_JITTER)
    (job,) = take()
    assert _reap(frozen, 2.9) == {}
    assert _reap(frozen, 0.1) == {"execution": 1}
    stored = now_stored(job)
    error = stored.json("error")
    assert stored.state == "retryable"
    assert (error["type"], error["timeout_kind"]) == ("timeout", "execution")
    assert (error["limit_seconds"], error["elapsed_seconds"]) == (2, 3)
    event = Event.objects.get(kind="job.timeout").data
    assert {
        "job_id",
        "job_type",
        "queue",
        "timeout_kind",
        "limit_seconds",
        "elapsed_seconds",
        "attempt",
    } <= set(event)
    assert Attempt.objects.get().outcome == "timeout"


def test_heartbeats_never_move_the_execution_deadline(frozen: FrozenClock) -> None:
    make(timeout=10, grace_period=0)
    (job,) = take()
    for _ in range(9):
        frozen.advance(1)
        (kept,) = leases.beat([held(job)])
        assert kept.deadline_at == job.deadline_at
    assert _reap(frozen, 1) == {"execution": 1}


@pytest.mark.fault("F67")
def test_stalled_after_the_heartbeat_timeout(frozen: FrozenClock) -> None:
    make(heartbeat_timeout=2, retry=NO_JITTER)
    (job,) = take()
    frozen.advance(1.5)
    assert len(leases.beat([held(job)])) == 1
    assert _reap(frozen, 1.9) == {}
    assert _reap(frozen, 0.2) == {"stalled": 1}
    stored = now_stored(job)
    assert (stored.state, stored.json("error")["timeout_kind"]) == ("retryable", "stalled")
    assert Event.objects.filter(kind="job.stalled").count() == 1


def test_the_default_heartbeat_timeout_needs_a_worker_that_beats(frozen: FrozenClock) -> None:
    make(2)
    silent = take(1, beats=False)[0]
    beating = take(1, beats=True)[0]
    assert _reap(frozen, 61) == {"stalled": 1}
    assert (now_stored(silent).state, now_stored(beating).state) == ("active", "retryable")
    leases.beat([held(silent)])
    assert _reap(frozen, 61) == {"stalled": 1}


@pytest.mark.fault("F69")
def test_total_timeout_ends_a_job_in_any_state(frozen: FrozenClock) -> None:
    waiting = enqueue("test.job", total_timeout=5)
    scheduled = enqueue("test.job", total_timeout=5, delay=60)
    pending = enqueue("test.job", total_timeout=5, pending=True)
    running = enqueue("test.other", total_timeout=5)
    take(types=["test.other"])
    assert _reap(frozen, 5) == {"total": 4}
    for job in (waiting, scheduled, pending, running):
        stored = now_stored(job)
        assert stored.state == "discarded"
        assert stored.json("error")["timeout_kind"] == "total"
    assert Event.objects.filter(kind="job.total_timeout").count() == 4


@pytest.mark.fault("F71")
def test_enqueue_ttl_holds_until_the_first_start_only(frozen: FrozenClock) -> None:
    never = enqueue("test.job", enqueue_ttl=3, retry=NO_JITTER)
    started = enqueue("test.other", enqueue_ttl=3)
    (claimed,) = take(types=["test.other"])
    assert _reap(frozen, 3) == {"enqueue_ttl": 1}
    stored = now_stored(never)
    assert (stored.state, stored.dead_letter) == ("discarded", False)
    assert stored.json("error")["type"] == "enqueue_ttl_expired"
    kinds = set(Event.objects.filter(job_id=never.id).values_list("kind", flat=True))
    assert {"job.ttl_expired", "job.expired", "job.discarded"} <= kinds
    assert ack(claimed)[0].job is not None
    assert now_stored(started).state == "completed"


@pytest.mark.fault("F71")
@pytest.mark.parametrize("limit", ["enqueue_ttl", "expires_at"])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_what_has_started_has_no_enqueue_ttl_after_a_requeue(
    frozen: FrozenClock, limit: str, most: int
) -> None:
    """Not even where the requeue takes the attempt back, so that the job may run once more."""
    end = 5 if limit == "enqueue_ttl" else frozen.time + timedelta(seconds=5)
    options: dict[str, Any] = {limit: end}
    (job,) = make(retry={"max_attempts": most}, **options)
    (claimed,) = take()
    settle([Outcome(held(claimed), Report.REQUEUE)])
    assert _reap(frozen, 6) == {}
    assert find_up_to_date(job.id).state == "available"
    edit(job, priority=1)
    assert _reap(frozen, 0) == {}
    assert find_up_to_date(job.id).state == "available"
    release(*take())
    assert _reap(frozen, 0) == {}
    assert find_up_to_date(job.id).state == "available"


@pytest.mark.fault("F71")
def test_an_expired_job_is_discarded_by_the_claim_that_meets_it(frozen: FrozenClock) -> None:
    job = enqueue("test.job", enqueue_ttl=3)
    frozen.advance(3)
    assert take() == []
    assert now_stored(job).state == "discarded"


def test_a_visibility_lease_returns_the_job_at_once(frozen: FrozenClock) -> None:
    make()
    (job,) = take(visibility_ms=3000, beats=False)
    assert _reap(frozen, 2.9) == {}
    assert _reap(frozen, 0.1) == {"visibility": 1}
    stored = now_stored(job)
    assert (stored.state, stored.attempt, stored.started_at) == ("available", 1, None)
    (again,) = take(visibility_ms=3000)
    frozen.advance(2)
    leases.beat([held(again)])
    assert _reap(frozen, 2) == {}


def test_an_extension_moves_the_deadline_and_is_bounded_by_the_total(frozen: FrozenClock) -> None:
    make(timeout=2, grace_period=0, total_timeout=10)
    (job,) = take()
    operate.extend_timeout([job.id], 3000)
    assert _reap(frozen, 4.9) == {}
    operate.extend_timeout([job.id], 60_000)
    assert now_stored(job).deadline_at == job.created_at + timedelta(seconds=10)
    assert _reap(frozen, 5.1) == {"total": 1}


@pytest.mark.fault("F70")
def test_a_retry_that_cannot_end_in_time_is_not_planned(frozen: FrozenClock) -> None:
    from .support import fail

    make(timeout=5, total_timeout=10, retry=NO_JITTER)
    (job,) = take()
    fail(job, type="boom")
    stored = now_stored(job)
    assert (stored.state, stored.json("error")["type"]) == ("discarded", "total_timeout")
    assert [error["type"] for error in stored.json("errors")] == ["boom", "total_timeout"]
    assert not_none(Attempt.objects.get().error)["type"] == "boom"


def test_limit_and_dry_run(frozen: FrozenClock) -> None:
    make(5, enqueue_ttl=1)
    frozen.advance(2)
    assert reap.reap(dry_run=True).counts == {"enqueue_ttl": 5}
    assert reap.reap(limit=2).counts == {"enqueue_ttl": 2}
    assert reap.reap().counts == {"enqueue_ttl": 3}


@pytest.mark.slow
def test_more_than_a_batch_is_reaped_in_one_pass(frozen: FrozenClock) -> None:
    make(turns.BATCH + 30, enqueue_ttl=1)
    assert _reap(frozen, 2) == {"enqueue_ttl": turns.BATCH + 30}


@pytest.mark.slow
def test_more_than_a_batch_is_stalled_in_one_pass(frozen: FrozenClock) -> None:
    make(turns.BATCH + 30, heartbeat_timeout=2)
    assert len(take(turns.BATCH + 30)) == turns.BATCH + 30
    frozen.advance(3)
    assert reap.reap(dry_run=True).counts == {"stalled": turns.BATCH + 30}
    assert reap.reap(limit=7).counts == {"stalled": 7}
    assert _reap(frozen, 0) == {"stalled": turns.BATCH + 23}


@pytest.mark.slow
def test_a_pass_has_as_many_statements_for_many_as_for_few(frozen: FrozenClock) -> None:
    connection = connections["default"]
    counts = set()
    for due in (3, 30):
        make(due, timeout=5, grace_period=0, heartbeat_timeout=60, retry=NO_JITTER)
        make(due, job_type="test.silent", timeout=60, heartbeat_timeout=5, retry=NO_JITTER)
        take(due)
        take(due, types=["test.silent"])
        make(1, job_type="test.living")
        take(types=["test.living"])
        frozen.advance(6)
        with CaptureQueriesContext(connection) as queries:
            assert reap.reap().counts == {"execution": due, "stalled": due}
        counts.add(len(queries))
    assert len(counts) == 1


def test_silences_are_those_of_the_domain(frozen: FrozenClock) -> None:
    """The database and ``domain.timeouts`` agree about when beats are overdue."""
    for number, (timeout, beats, visibility) in enumerate(
        itertools.product((None, "PT0.25S", 7, 86_400), (True, False), (None, 1500))
    ):
        kind = f"test.t{number}"
        enqueue(kind, heartbeat_timeout=timeout)
        frozen.advance(0.001001)
        (job,) = take(types=[kind], beats=beats, visibility_ms=visibility)
        frozen.advance(0.4)
        if number % 3 == 0:
            leases.beat([held(job)])
    expected = []
    for row in Job.objects.all():
        record = selectors.jobs([row.pk], using="default")[row.pk]
        moments = [heartbeat_deadline(record), record.lease_expires_at]
        if any(moments):
            expected.append((min(moment for moment in moments if moment), record.id))
    found = due_times.next_stall_deadlines(100, using="default")
    assert len(found) == len(expected) > 10
    assert [silence.due for silence in found] == sorted(silence.due for silence in found)
    due = {silence.id: silence.due for silence in found}
    for moment, job_id in expected:
        assert abs(due[job_id] - moment) <= timedelta(milliseconds=1)
    assert due_times.next_stall_deadlines(2, using="default") == found[:2]


def test_next_due_is_the_earliest_clock(frozen: FrozenClock) -> None:
    make(total_timeout=60)
    enqueue("test.other", heartbeat_timeout=4)
    take(types=["test.other"])
    due = reap.reap().next_due
    assert due is not None
    late = due - (frozen.time + timedelta(seconds=4))
    assert timedelta(0) <= late <= timedelta(milliseconds=1), "early: nothing is overdue yet"


def test_a_stalled_job_is_due_when_it_is_read_as_due(frozen: FrozenClock) -> None:
    """Whatever the fraction of a millisecond: otherwise it would be looked at again a second later."""
    frozen.advance(0.0004)
    make(heartbeat_timeout=2)
    take()
    due = reap.reap().next_due
    assert due is not None
    frozen.time = due
    assert reap.reap().counts == {"stalled": 1}


class TestOutage:
    """Decision T9."""

    def _scan(self) -> dict[str, int]:
        return dict(reaper.scan(cadence=timedelta(seconds=1), ran_by="test").counts)

    @pytest.mark.slow
    @pytest.mark.fault("F75")
    def test_an_outage_does_not_stall_the_living(self, frozen: FrozenClock) -> None:
        make(3)
        jobs = take(3)
        assert self._scan() == {}
        frozen.advance(300)
        assert self._scan() == {}
        assert {now_stored(job).state for job in jobs} == {"active"}
        run = MaintenanceRun.objects.get(name="reap")
        assert (run.resumed_at, run.outages) == (frozen.time, 1)
        leases.beat([held(jobs[0])])
        for _ in range(61):
            frozen.advance(1)
            leases.beat([held(jobs[0])])
            self._scan()
        assert now_stored(jobs[0]).state == "active"
        assert now_stored(jobs[1]).state == "retryable"

    @pytest.mark.fault("F75")
    def test_execution_deadlines_get_15_seconds_once(self, frozen: FrozenClock) -> None:
        make(timeout=60, grace_period=0, heartbeat_timeout=3600)
        (job,) = take()
        self._scan()
        frozen.advance(300)
        assert self._scan() == {}
        for _ in range(7):
            frozen.advance(2)
            assert self._scan() == {}
        frozen.advance(1)
        assert self._scan() == {"execution": 1}
        assert now_stored(job).state == "retryable"

    def test_total_and_ttl_get_none(self, frozen: FrozenClock) -> None:
        make(total_timeout=60)
        make(enqueue_ttl=60)
        self._scan()
        frozen.advance(300)
        assert self._scan() == {"total": 1, "enqueue_ttl": 1}

    def test_a_first_scan_is_no_gap(self, frozen: FrozenClock) -> None:
        make(heartbeat_timeout=5)
        take()
        frozen.advance(300)
        assert self._scan() == {"stalled": 1}

    @pytest.mark.fault("F75")
    def test_a_failed_write_of_this_process_counts_as_an_outage(self, frozen: FrozenClock) -> None:
        make(heartbeat_timeout=5)
        take()
        self._scan()
        frozen.advance(6)
        reaper.note_outage()
        assert self._scan() == {}
        for pause in (1, 1, 1, 1, 0.99):
            frozen.advance(pause)
            assert self._scan() == {}
        # SQLite reads when beats are overdue in milliseconds, rounded up.
        frozen.advance(0.011)
        assert self._scan() == {"stalled": 1}

    @pytest.mark.parametrize("every", [20, 60])
    def test_single_runs_from_cron_enforce_everything_within_one_run(
        self, frozen: FrozenClock, every: int
    ) -> None:
        def once() -> None:
            reaper.scan(cadence=None, ran_by="cron")
            promote.promote()

        for _ in range(3):
            once()
            frozen.advance(every)
        once()
        execution = enqueue("t.execution", timeout=5, grace_period=1, retry=NO_JITTER)
        stalled = enqueue("t.stalled", heartbeat_timeout=5, retry=NO_JITTER)
        for kind in ("t.execution", "t.stalled"):
            assert len(take(types=[kind])) == 1
        total = enqueue("t.total", total_timeout=5)
        ttl = enqueue("t.ttl", enqueue_ttl=5)
        soft = enqueue("t.soft", timeout=5, grace_period=0, retry=NO_JITTER)
        take(types=["t.soft"])
        frozen.advance(every)
        once()
        kinds = [
            now_stored(j).json("error")["timeout_kind"] for j in (execution, soft, stalled, total, ttl)
        ]
        assert kinds == ["execution", "execution", "stalled", "total", "enqueue_ttl"]


def test_a_loop_scans_only_when_something_may_be_due(frozen: FrozenClock) -> None:
    loop = reaper.ReaperLoop(interval=0.2, ran_by="test", using="default")
    make(heartbeat_timeout=2)
    take()
    loop.tick()
    first = MaintenanceRun.objects.get(name="reap").last_run_at
    frozen.advance(0.2)
    assert loop.tick().counts == {}
    assert MaintenanceRun.objects.get(name="reap").last_run_at == first
    for _ in range(8):
        frozen.advance(0.2)
        assert loop.tick().counts == {}
    frozen.advance(0.3)
    assert loop.tick().counts == {"stalled": 1}


def test_a_loop_finds_new_silence(frozen: FrozenClock) -> None:
    loop = reaper.ReaperLoop(interval=0.2, ran_by="test", using="default")
    loop.tick()
    make(heartbeat_timeout="500ms")
    take()
    for _ in range(9):
        frozen.advance(0.1)
        assert loop.tick().counts == {}, "running jobs are read once a second"
    frozen.advance(0.1)
    assert loop.tick().counts == {"stalled": 1}


def test_a_loop_records_itself_now_and_then(frozen: FrozenClock) -> None:
    """Less often while nothing has a deadline, and at once when something has again."""
    loop = reaper.ReaperLoop(interval=0.2, ran_by="test", using="default")

    def records(*seconds: float) -> list[bool]:
        found = []
        for pause in seconds:
            frozen.advance(pause)
            loop.tick()
            found.append(MaintenanceRun.objects.get(name="reap").last_run_at == frozen.time)
        return found

    assert records(0, 5.1, 4.6, 0.1) == [True, False, False, True]
    frozen.advance(5.1)
    make(enqueue_ttl=3600)
    assert records(0, 4.9, 0.1) == [True, False, True]
    assert MaintenanceRun.objects.get(name="reap").cadence_ms == 5000


@pytest.mark.parametrize("interval", [0.2, 1, 4.9, 5, 7, 9.9, 30])
def test_a_loop_at_rest_is_never_taken_for_an_outage(frozen: FrozenClock, interval: float) -> None:
    """Whoever looks beside it goes by its record: three cadences without one are an outage."""
    loop = reaper.ReaperLoop(interval=interval, ran_by="test", using="default")
    loop.tick()
    late: list[timedelta] = []
    for _ in range(round(60 / interval) + 2):
        frozen.advance(interval + 0.01)
        run = MaintenanceRun.objects.get(name="reap")
        late.append(frozen.time - run.last_run_at - 2.5 * timedelta(milliseconds=run.cadence_ms or 0))
        loop.tick()
    assert max(late) < timedelta(0)


def test_a_probe_of_near_deadlines_hides_no_silence(frozen: FrozenClock) -> None:
    """After a slow look it reads those of the next minute; jobs that run may have later ones."""
    probe = due_times.DueProbe("default")
    probe._near_until = math.inf
    loop = reaper.ReaperLoop(
        interval=0.2,
        ran_by="test",
        using="default",
        next_deadline=lambda: probe.look().deadline,
    )
    loop.tick()
    make(heartbeat_timeout=2)
    take()
    counts: Counter[str] = Counter()
    for _ in range(35):
        frozen.advance(0.1)
        counts.update(loop.tick().counts)
    assert counts == {"stalled": 1}


@pytest.mark.slow
@pytest.mark.every_database
def test_of_many_processes_few_read_what_runs(frozen: FrozenClock) -> None:
    """Each of ten would read every running job once a second, for what another has just judged."""

    def looping(name: str) -> reaper.ReaperLoop:
        probe = due_times.DueProbe("default")
        return reaper.ReaperLoop(
            interval=0.2,
            ran_by=name,
            using="default",
            next_deadline=lambda: probe.look().deadline,
            last_scan=lambda: probe.scanned_at,
        )

    make(timeout=3600, heartbeat_timeout=18)
    take()
    loops = [looping(f"r{number}") for number in range(10)]
    ended: list[float] = []
    with CaptureQueriesContext(connections["default"]) as seen:
        for step in range(1, 201):
            frozen.advance(0.1)
            counts = [loop.tick().counts for loop in loops[: step // 5]]
            ended += [step / 10 for each in counts if each.get("stalled")]
    reads = sum("heartbeat_armed OR" in query["sql"] for query in seen)
    assert 40 <= reads <= 70, "ten scans in five seconds, and little else"
    assert ended == [pytest.approx(18, abs=1)]


@pytest.mark.every_database
def test_what_runs_does_not_wait_behind_a_backlog_of_what_waits(frozen: FrozenClock) -> None:
    """More jobs are past their enqueue TTL than one transaction ends, all for longer than those."""
    enqueue_many("test.late", [[n] for n in range(turns.BATCH)], enqueue_ttl=1)
    make(timeout=2, grace_period=0, retry=NO_JITTER)
    make(1, "test.silent", heartbeat_timeout=2, retry=NO_JITTER)
    take(2, types=["test.job", "test.silent"])
    frozen.advance(3)
    assert reap.reap(limit=2).counts == {"execution": 1, "stalled": 1}
    assert reap.reap().counts == {"enqueue_ttl": turns.BATCH}
