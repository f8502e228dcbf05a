"""The execution timeout: soft signal, grace, hard kill; extensions; heartbeats."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_ojs import api, clock
from django_ojs.api import JobHandler
from django_ojs.models import Attempt, Event, Queue
from django_ojs.services.reap import recover
from tests.process.tools import (
    Diary,
    Flag,
    Start,
    StartWorker,
    attempts,
    failed,
    in_state,
    lasted,
    on_time,
    outcomes,
    sabotaged,
    suspend,
)
from tests.support import alive, not_none, poll
from tests.workload import jobs, misbehaving

pytestmark = [pytest.mark.every_database, pytest.mark.process]


@pytest.mark.fault("F23")
def test_endless_loop_is_ended_by_the_soft_signal(worker: StartWorker, diary: Diary) -> None:
    job = jobs.loop.enqueue(diary.path)
    runner = worker()
    error = failed(job)
    assert error["type"] == "timeout"
    assert error["timeout_kind"] == "execution"
    assert (error["limit_seconds"], error["attempt"]) == (4, 1)
    (attempt,) = attempts(job)
    assert attempt.outcome == "timeout"
    assert on_time(attempt, 4)
    assert Event.objects.filter(job_id=job.id, kind="job.timeout").count() == 1
    following = jobs.echo.enqueue("next")
    assert in_state(following, "completed").result == "next"
    assert runner.running
    assert attempts(following)[0].worker_id == attempt.worker_id


@pytest.mark.fault("F24", "F34")
def test_what_swallows_everything_is_killed_with_all_it_started(
    worker: StartWorker, diary: Diary
) -> None:
    job = jobs.swallow.enqueue(diary.path)
    runner = worker()
    pids = [int(pid) for pid in diary.wait("started")]
    assert all(alive(pid) for pid in pids)
    begun = api.get(job).started_at
    error = failed(job)
    assert not [pid for pid in pids if alive(pid)], "reported before everything was gone"
    assert (error["type"], error["timeout_kind"]) == ("timeout", "execution")
    (attempt,) = attempts(job)
    assert attempt.started_at == begun
    assert on_time(attempt, 5)
    following = jobs.echo.enqueue("next")
    assert in_state(following, "completed").worker_id is None
    assert attempts(following)[0].worker_id == attempt.worker_id
    assert runner.running


@pytest.mark.fault("F5", "F26", "F27", "F28", "F31", "F50")
def test_hard_kill_needs_nothing_from_the_handler(worker: StartWorker, diary: Diary) -> None:
    """The worker and its other executors are not affected: all of them end on time, side by side."""
    handlers: list[JobHandler[..., Any]] = [
        jobs.slow_clean_up,
        jobs.deaf_async,
        jobs.stop_self,
        jobs.mask,
        jobs.hold_gil,
        jobs.busy_async,
        misbehaving.ignore_bell,
        misbehaving.pause,
        misbehaving.query,
    ]
    runner = worker("--concurrency", str(len(handlers)))
    made = {handler.type: handler.enqueue(diary.path) for handler in handlers}
    for name, job in made.items():
        assert failed(job)["type"] == "timeout"
        assert outcomes(job) == ["timeout"]
        # The mask holds for one thread only: another one lets the soft signal in.
        assert on_time(attempts(job)[-1], 4 if name == jobs.mask.type else 5), name
    pids = [int(pid) for (pid,) in diary.lines("started")]
    assert len(pids) == len(handlers)
    assert not [pid for pid in pids if alive(pid)]
    in_state(jobs.echo.enqueue("next"), "completed")
    assert runner.running


@pytest.mark.fault("F25", "F50")
def test_soft_signal_gets_through(worker: StartWorker, diary: Diary) -> None:
    """To what catches ``Exception``, to a coroutine, to the end of a shield; it leaves time to act."""
    swallowing = misbehaving.swallow_exception.enqueue(diary.path)
    coroutine = jobs.sleep_async.enqueue(diary.path)
    shielded = jobs.shielded.enqueue(diary.path)
    worker("--concurrency=3")
    for job, limit in ((swallowing, 4), (coroutine, 4), (shielded, 4.5)):
        assert failed(job)["type"] == "timeout"
        assert on_time(attempts(job)[-1], limit)
    assert diary.lines("cancelled") == [[]]
    assert diary.lines("whole") == [["True"]]


def test_what_a_handler_does_about_its_timeout(worker: StartWorker, diary: Diary) -> None:
    """A result within the grace period, a checkpoint for the next attempt, more time in advance."""
    late = jobs.late_result.enqueue(diary.path)
    saving = jobs.clean_up.enqueue(diary.path)
    extending = jobs.extend.enqueue()
    worker("--concurrency=3")
    assert in_state(late, "completed").result == "late"
    assert diary.lines("stopped") == [["timeout"]]
    assert lasted(attempts(late)[-1]) >= 4
    assert in_state(saving, "completed").result == {"row": 41, "attempt": 1}
    assert diary.lines("saved") == [[]]
    assert outcomes(saving) == ["timeout", "completed"]
    assert in_state(extending, "completed").result == "30"
    assert outcomes(extending) == ["completed"]


@pytest.mark.fault("F32", "F33")
def test_clean_up_may_use_the_database_and_the_transaction_is_rolled_back(
    worker: StartWorker,
) -> None:
    job = jobs.query_in_clean_up.enqueue("clean-up")
    worker()
    assert failed(job)["type"] == "timeout"
    names = set(Queue.objects.filter(name__startswith="clean-up").values_list("name", flat=True))
    assert names == {"clean-up-kept"}


def test_extension_made_elsewhere_that_no_beat_tells(
    worker: StartWorker, diary: Diary, flag: Flag, tmp_path: Path
) -> None:
    """The worker asks before it enforces a timeout, however shortly before it was extended."""
    broken = Flag(tmp_path / "broken")
    job = jobs.patient.enqueue(diary.path, flag.path)
    worker("--no-maintenance", **sabotaged("beats fail", broken))
    diary.wait("started")
    broken.set()
    started_at = api.get(job).started_at
    assert started_at is not None
    api.extend_timeout(job, 60)
    poll(lambda: clock.now("default") > started_at + timedelta(seconds=5))
    assert api.get(job).state == "active"
    flag.set()
    assert in_state(job, "completed", "retryable").result == "done"


def test_extension_that_runs_out_is_enforced(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.patient.enqueue(diary.path, flag.path)
    worker()
    diary.wait("started")
    api.extend_timeout(job, 1)
    assert failed(job)["type"] == "timeout"
    assert on_time(attempts(job)[0], 5)


@pytest.mark.fault("F73")
@pytest.mark.parametrize(("handler", "limit"), [(jobs.loop, 4), (jobs.swallow, 5)])
def test_an_outage_gives_reports_time_and_handlers_none(
    worker: StartWorker, diary: Diary, handler: JobHandler[[str], None], limit: int
) -> None:
    """Decision T9 against T2: only an extension lets a handler run for longer."""
    job = handler.using(grace_period=1).enqueue(diary.path)
    runner = worker()
    diary.wait("started")
    now = clock.now("default")
    assert recover(until=now + timedelta(seconds=15), now=now, using="default") == 1
    recovered = api.get(job)
    assert recovered.started_at is not None
    assert recovered.deadline_at is not None
    assert recovered.deadline_at - recovered.started_at > timedelta(seconds=14)
    assert failed(job)["type"] == "timeout"
    (attempt,) = attempts(job)
    assert on_time(attempt, limit)
    assert runner.running


def test_the_option_of_the_worker_is_for_handlers_that_do_not_say(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    quiet = jobs.hold.using(heartbeat_timeout=2, grace_period=1).enqueue(diary.path, flag.path)
    worker("--heartbeat=manual")
    diary.wait("started")
    assert failed(quiet)["type"] == "stalled"


def test_silent_handler_in_manual_mode_is_stalled(
    worker: StartWorker, manage: Start, diary: Diary
) -> None:
    job = jobs.silent.enqueue(diary.path)
    worker("--no-maintenance")
    manage("reap_timeouts", "--loop")
    (pid,) = diary.wait("started")
    error = failed(job)
    assert (error["type"], error["timeout_kind"]) == ("stalled", "stalled")
    poll(lambda: not alive(int(pid)))


def test_total_timeout_ends_a_running_job(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    worker()
    in_state(jobs.echo.enqueue("up"), "completed")
    job = jobs.hold.using(total_timeout=6, grace_period=1).enqueue(diary.path, flag.path)
    _, pid = diary.wait("started")
    error = failed(job, "discarded")
    assert (error["type"], error["timeout_kind"]) == ("total_timeout", "total")
    poll(lambda: not alive(int(pid)))
    assert Attempt.objects.get(job_id=job.id).outcome == "total_timeout"


@pytest.mark.fault("F58")
def test_cancelled_job_is_stopped(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.hold.using(heartbeat_timeout=5, grace_period=1).enqueue(diary.path, flag.path)
    worker()
    _, pid = diary.wait("started")
    api.cancel(job)
    cancelled = api.get(job)
    assert (cancelled.state, cancelled.row.lease_id) == ("cancelled", None)
    following = jobs.echo.enqueue(1)
    in_state(following, "completed")
    assert not alive(int(pid)), "the executor of a stopped handler is recycled"
    assert api.get(job).state == "cancelled"
    assert [attempt.outcome for attempt in attempts(job)] == ["cancelled"]


@pytest.mark.fault("F58")
def test_cancelled_deaf_job_is_killed(worker: StartWorker, diary: Diary) -> None:
    job = jobs.swallow.using(timeout=300, heartbeat_timeout=5).enqueue(diary.path)
    worker()
    pids = [int(pid) for pid in diary.wait("started")]
    api.cancel(job)
    poll(lambda: not any(alive(pid) for pid in pids))
    assert api.get(job).state == "cancelled"


@pytest.mark.fault("F4")
def test_suspended_runner_comes_back_too_late(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    job = jobs.hold.using(heartbeat_timeout=6).enqueue(diary.path, flag.path)
    first = worker("--no-maintenance", "--worker-id", "first")
    diary.wait("started")
    suspend(first.pid)
    manage("reap_timeouts", "--loop")
    poll(lambda: attempts(job))
    worker("--no-maintenance", "--worker-id", "second")
    assert diary.wait("started", 2)[0] == "2"
    flag.set()
    assert in_state(job, "completed").result == "attempt 2"
    diary.wait("finished", 2)
    os.kill(first.pid, signal.SIGCONT)
    poll(lambda: attempts(job)[0].late_report)
    stale, valid = attempts(job)
    assert (stale.outcome, stale.worker_id, stale.attempt) == ("stalled", "first", 1)
    assert not_none(stale.late_report)["report"] == "ack"
    assert (valid.outcome, valid.worker_id, valid.attempt) == ("completed", "second", 2)
    assert api.get(job).result == "attempt 2"
    assert first.running


@pytest.mark.fault("F4")
def test_suspended_worker_gives_up_what_it_has_lost(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    """Runner, monitor and executor sleep and wake together, as with a virtual machine."""
    job = jobs.hold.using(heartbeat_timeout=6, grace_period=1).enqueue(diary.path, flag.path)
    first = worker("--no-maintenance", "--worker-id", "first", "--queue", "default", "--queue", "own")
    _, pid = diary.wait("started")
    everybody = [first.pid, *first.below()]
    suspend(*everybody)
    manage("reap_timeouts", "--loop")
    poll(lambda: attempts(job))
    worker("--no-maintenance", "--worker-id", "second", "--queue", "default")
    assert diary.wait("started", 2)[0] == "2"
    for number in everybody:
        os.kill(number, signal.SIGCONT)
    poll(lambda: not alive(int(pid)))
    again = jobs.echo.using(queue="own").enqueue("still there")
    in_state(again, "completed")
    assert attempts(again)[0].worker_id == "first"
    flag.set()
    assert in_state(job, "completed").result == "attempt 2"
    assert first.running
