"""Processes of the worker that die: the whole worker, its fork server, a monitor, an executor."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from django_ojs import api
from tests.process.tools import (
    LATE,
    Diary,
    Flag,
    Start,
    StartWorker,
    attempts,
    failed,
    in_state,
    outcomes,
    parent_of,
    sabotaged,
    suspend,
)
from tests.support import alive, poll
from tests.workload import jobs

pytestmark = [pytest.mark.every_database, pytest.mark.process]


@pytest.mark.fault("F1")
def test_killed_worker_leaves_nothing_and_its_job_resumes(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    reaper = manage("reap_timeouts", "--loop")
    poll(lambda: "reaping" in reaper.stdout)
    job = jobs.steps.enqueue(diary.path, flag.path)
    first = worker("--no-maintenance")
    diary.wait("started")
    below = first.below()
    assert len(below) >= 3
    first.send(signal.SIGKILL)
    poll(lambda: not any(alive(pid) for pid in below))
    running = api.get(job)
    assert running.state == "active", "nothing of it is left long before its job is lost"
    last_beat = running.heartbeat_at
    assert last_beat is not None
    error = failed(job)
    (attempt,) = attempts(job)
    assert (error["type"], error["timeout_kind"], attempt.outcome) == (
        "stalled",
        "stalled",
        "stalled",
    )
    assert 8 <= (attempt.ended_at - last_beat).total_seconds() < 8 + LATE
    api.reschedule(job, timedelta(0))
    worker()
    done = in_state(job, "completed")
    assert done.result == {"resumed_from": {"step": 7}}
    assert diary.lines("resumed") == [["2"]]


@pytest.mark.fault("F2")
def test_killed_worker_takes_detached_grandchildren_with_it(worker: StartWorker, diary: Diary) -> None:
    jobs.swallow.using(timeout=300).enqueue(diary.path)
    runner = worker()
    pids = [int(pid) for pid in diary.wait("started")]
    runner.send(signal.SIGKILL)
    poll(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.fault("F19")
def test_killed_executor_is_learnt_at_once(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.hold_once.enqueue(diary.path, flag.path)
    runner = worker()
    (pid,) = diary.wait("started")
    os.kill(int(pid), signal.SIGKILL)
    error = failed(job, "discarded")
    assert error["type"] == "worker_crash"
    assert error["details"]["signal"] == signal.SIGKILL
    in_state(jobs.echo.enqueue(1), "completed")
    assert runner.running


def test_what_was_reported_with_progress_is_given_to_the_next_attempt(
    worker: StartWorker, diary: Diary
) -> None:
    job = jobs.reports.enqueue(diary.path)
    worker()
    (pid,) = diary.wait("started")
    poll(lambda: api.get(job).progress_data == {"row": 41})
    os.kill(int(pid), signal.SIGKILL)
    done = in_state(job, "completed")
    assert (done.attempt, done.result) == (2, {"row": 41})


@pytest.mark.fault("F3")
def test_killed_keeper_takes_its_executor_with_it(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    job = jobs.swallow.using(timeout=300).enqueue(diary.path)
    runner = worker()
    pids = [int(pid) for pid in diary.wait("started")]
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    error = failed(job)
    assert error["type"] == "worker_crash"
    poll(lambda: not any(alive(pid) for pid in pids))
    in_state(jobs.echo.enqueue(1), "completed")
    assert runner.running


def test_killed_fork_server_is_replaced(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker()
    _, pid = diary.wait("started")
    fork_server = parent_of(parent_of(int(pid)))
    assert parent_of(fork_server) == runner.pid
    os.kill(fork_server, signal.SIGKILL)
    poll(lambda: not alive(fork_server))
    flag.set()
    in_state(job, "completed")
    # The next executor can only come from a new fork server.
    crashed = jobs.exit_now.enqueue(3)
    assert failed(crashed)["type"] == "worker_crash"
    in_state(jobs.echo.enqueue("after"), "completed")
    assert runner.running


def test_prefetched_jobs_go_back_when_the_executor_is_stuck(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    """Quick jobs make the worker claim ahead; the stuck one must not hold the others."""
    for number in range(200):
        jobs.echo.enqueue(number)
    stuck = jobs.hold.enqueue(diary.path, flag.path)
    behind = [jobs.echo.enqueue(number) for number in range(20)]
    worker("--worker-id", "stuck")
    diary.wait("started")
    # Where the machine was slow, the stuck one was given back once itself, and some overtook it.
    poll(lambda: {api.get(job).state for job in behind} <= {"available", "completed"})
    behind = [job for job in behind if api.get(job).state == "available"]
    assert behind
    assert [api.get(job).attempt for job in behind] == [0] * len(behind)
    assert api.get(stuck).state == "active"
    worker("--worker-id", "free")
    for job in behind:
        in_state(job, "completed")
        assert api.get(job).attempt == 1
        assert [a.outcome for a in attempts(job) if a.outcome != "released"] == ["completed"]
        assert attempts(job)[-1].worker_id == "free"
    flag.set()
    assert in_state(stuck, "completed").attempt == 1


def test_prefetched_jobs_survive_the_crash_before_them(
    worker: StartWorker,
) -> None:
    for number in range(100):
        jobs.echo.enqueue(number)
    crash = jobs.exit_now.enqueue(9)
    behind = [jobs.echo.enqueue(number) for number in range(20)]
    worker("--drain").wait(60)
    assert failed(crash)["details"]["exit_status"] == 9
    assert {api.get(job).state for job in behind} == {"completed"}
    assert {api.get(job).attempt for job in behind} == {1}


@pytest.mark.fault("F17")
def test_two_workers_under_one_name(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    """The newer one stays; the older one drains and leaves."""
    job = jobs.hold.enqueue(diary.path, flag.path)
    first = worker("--worker-id", "same", **sabotaged("beats often"))
    diary.wait("started")
    second = worker("--worker-id", "same")
    poll(lambda: "stopping (replaced)" in first.stderr)
    flag.set()
    assert first.wait() == 0
    assert in_state(job, "completed").attempt == 1
    in_state(jobs.echo.enqueue(1), "completed")
    assert second.running


@pytest.mark.fault("F18")
@pytest.mark.parametrize("how", ["beats fail", pytest.param("beats hang", marks=pytest.mark.long)])
def test_worker_that_cannot_beat_claims_nothing_and_gives_up_what_it_has_lost(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag, how: str, tmp_path: Path
) -> None:
    broken = Flag(tmp_path / "broken")
    job = jobs.hold.using(heartbeat_timeout=6, grace_period=1).enqueue(diary.path, flag.path)
    served = ("--no-maintenance", "--queue", "default", "--queue", "own")
    first = worker("--worker-id", "first", *served, **sabotaged(how, broken))
    _, pid = diary.wait("started")
    broken.set()
    poll(lambda: "no heartbeat reaches the database" in first.stderr)
    assert api.get(job).state == "active", "said before the server gave it away"
    waiting = jobs.echo.using(queue="own").enqueue("still there")
    manage("reap_timeouts", "--loop")
    poll(lambda: not alive(int(pid)))
    (lost,) = attempts(job)
    assert (lost.outcome, lost.worker_id) == ("stalled", "first")
    worker("--no-maintenance", "--worker-id", "second", "--queue", "default")
    assert diary.wait("started", 2)[0] == "2"
    flag.set()
    assert in_state(job, "completed").result == "attempt 2"
    assert (api.get(waiting).state, api.get(waiting).attempt) == ("available", 0)
    broken.clear()
    in_state(waiting, "completed")
    assert attempts(waiting)[0].worker_id == "first"
    assert first.running


def test_a_crash_among_short_jobs_costs_no_other_its_result(worker: StartWorker) -> None:
    """Executors with much to do leave their reports where the supervisor finds them after their end."""
    before = jobs.echo.enqueue_many([[number] for number in range(300)])
    guilty = jobs.kill_self.enqueue()
    after = jobs.echo.enqueue_many([[number] for number in range(300)])
    assert worker("--drain", "--concurrency", "1").wait(60) == 0
    for job in (*before, *after):
        done = api.get(job)
        assert (done.state, done.attempt) == ("completed", 1)
        # Those that waited behind it were given back.
        assert [one.outcome for one in attempts(job) if one.outcome != "released"] == ["completed"]
    assert failed(guilty)["type"] == "worker_crash"
    assert [one.outcome for one in attempts(guilty)] == ["worker_crash"]


@pytest.mark.parametrize("stops", [True, False], ids=["the worker stops", "the worker goes on"])
def test_an_executor_that_does_not_begin_its_job_is_killed(worker: StartWorker, stops: bool) -> None:
    """No clock of the job runs yet. The job goes back, and its attempt does not count."""
    first = jobs.pid.enqueue(os.devnull)
    runner = worker("--shutdown-timeout=1")
    executor = int(str(in_state(first, "completed").result))
    suspend(executor)
    job = jobs.echo.enqueue("after")
    in_state(job, "active")
    if stops:
        runner.send(signal.SIGTERM)
        assert runner.wait(10) == 0
        found = api.get(job)
        assert (found.state, found.attempt) == ("available", 0)
    else:
        assert in_state(job, "completed").attempt == 1
    assert not alive(executor)
    assert set(outcomes(job)) <= {"completed"}
