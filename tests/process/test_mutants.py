"""What a worker must not do, each with the planted bug that does it: the test must find it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from django_ojs import api
from django_ojs.clock import FrozenClock
from django_ojs.models import Attempt
from django_ojs.services import queues
from django_ojs.services.claim import sources
from django_ojs.services.promote import promote
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.fetcher import Claims
from django_ojs.worker.threads.polling import PollSchedule
from tests.faults.mutants import ENVIRONMENT, MUTANTS
from tests.process.tools import (
    Diary,
    Flag,
    StartWorker,
    attempts,
    in_state,
    lasted,
    parent_of,
    sabotaged,
    suspend,
)
from tests.services.support import make, now_stored
from tests.support import alive, poll
from tests.worker.test_fetcher import Loop, Patient
from tests.workload import jobs, misbehaving

pytestmark = pytest.mark.process

Check = Callable[[StartWorker, Diary, Flag, dict[str, str]], None]


def deadlines_are_kept(
    worker: StartWorker, diary: Diary, flag: Flag, environment: dict[str, str]
) -> None:
    job = jobs.swallow.using(timeout=1, grace_period=1).enqueue(diary.path)
    worker(**environment)
    in_state(job, "retryable", timeout=30)
    (attempt,) = attempts(job)
    assert attempt.outcome == "timeout"
    assert 1.9 <= lasted(attempt) <= 5.0


def single_attempts_are_not_claimed_ahead(
    worker: StartWorker, diary: Diary, flag: Flag, environment: dict[str, str]
) -> None:
    """What is claimed ahead behind a long job has to be given back."""
    for number in range(200):
        jobs.echo.enqueue(number)
    held = jobs.hold.enqueue(diary.path, flag.path)
    single = jobs.echo.using(retry={"max_attempts": 1})
    made = [single.enqueue(number) for number in range(50)]
    worker(**environment)
    diary.wait("started", timeout=30)
    held_since = time.monotonic()
    poll(lambda: time.monotonic() - held_since > 0.6)
    flag.set()
    in_state(held, "completed")
    for job in made:
        in_state(job, "completed", timeout=30)
    outcomes = Attempt.objects.filter(job_id__in=[job.id for job in made])
    assert set(outcomes.values_list("outcome", flat=True)) == {"completed"}


def last_frames_are_read(
    worker: StartWorker, diary: Diary, flag: Flag, environment: dict[str, str]
) -> None:
    """An executor that ends before the runner has read anything of what it wrote."""
    job = misbehaving.last_words.enqueue(diary.path, flag.path, 60)
    runner = worker(**environment)
    executor = int(diary.wait("started", timeout=30)[0])
    suspend(runner.pid)
    try:
        flag.set()
        poll(lambda: not alive(executor))
    finally:
        runner.send(signal.SIGCONT)
    in_state(job, "retryable", timeout=30)
    progress = api.get(job).progress_data
    assert progress is not None and progress["word"] == 59


def a_kill_reaches_other_sessions_without_the_keeper(
    worker: StartWorker, diary: Diary, flag: Flag, environment: dict[str, str]
) -> None:
    """A living monitor sweeps whatever a kill has missed, so the monitor is ended first."""
    job = jobs.swallow.using(timeout=300).enqueue(diary.path)
    worker(**environment)
    pids = [int(pid) for pid in diary.wait("started")]
    poll(lambda: len({os.getsid(pid) for pid in pids}) > 1)
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    in_state(job, "retryable")
    try:
        poll(lambda: not any(alive(pid) for pid in pids), 4)
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


CHECKS: dict[str, Check] = {
    "late-deadlines": deadlines_are_kept,
    "single-attempts-ahead": single_attempts_are_not_claimed_ahead,
    "unread-last-frames": last_frames_are_read,
    "kill-spares-descendants": a_kill_reaches_other_sessions_without_the_keeper,
}


@pytest.mark.parametrize("mutant", CHECKS)
def test_a_worker_as_it_is(worker: StartWorker, diary: Diary, flag: Flag, mutant: str) -> None:
    CHECKS[mutant](worker, diary, flag, {})


@pytest.mark.parametrize("mutant", CHECKS)
def test_a_worker_with_the_bug_is_found(
    worker: StartWorker, diary: Diary, flag: Flag, mutant: str
) -> None:
    environment = {**sabotaged("mutant"), ENVIRONMENT: mutant}
    with pytest.raises(AssertionError):
        CHECKS[mutant](worker, diary, flag, environment)


def nothing_is_claimed_from_an_announced_queue_that_is_paused() -> None:
    loop = Loop()
    watcher: PollSchedule = Patient()
    where = sources(["default"], ["test.job"])
    claims = Claims(where, watcher, "w1", loop.on_claimed, loop.on_empty)
    database = DatabaseThread(loop, "default", [claims])
    database.start()
    try:
        database.want(1, 1)
        poll(lambda: loop.empty == 1)
        queues.pause(["default"])
        (job,) = make(1)
        database.wake("default", "test.job")
        poll(lambda: loop.empty == 2 or loop.claimed)
        assert not loop.claimed
        assert now_stored(job).state == "available"
    finally:
        database.close()
        database.join(10)


@pytest.mark.every_database
def test_a_notified_claim_obeys_a_pause(ojs_db: None) -> None:
    nothing_is_claimed_from_an_announced_queue_that_is_paused()


def test_a_notified_claim_that_ignores_a_pause_is_found(ojs_db: None) -> None:
    with MUTANTS["announced-claim-ignores-pause"](), pytest.raises(AssertionError):
        nothing_is_claimed_from_an_announced_queue_that_is_paused()


def what_expired_is_not_promoted(frozen: FrozenClock) -> None:
    (job,) = make(1, delay=10, expires_at=frozen.time + timedelta(seconds=9))
    frozen.advance(11)
    promote()
    assert now_stored(job).state == "discarded"


@pytest.mark.every_database
def test_what_expired_before_it_fell_due_is_discarded(ojs_db: None, frozen: FrozenClock) -> None:
    what_expired_is_not_promoted(frozen)


def test_promotion_of_what_expired_is_found(ojs_db: None, frozen: FrozenClock) -> None:
    with MUTANTS["promotes-expired"](), pytest.raises(AssertionError):
        what_expired_is_not_promoted(frozen)
