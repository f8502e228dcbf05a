"""The soft signal: given once, with a true reason, before every end but a kill; what it is good for."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from django_ojs import api, clock
from django_ojs.api import JobHandler
from django_ojs.models import Job
from tests.process.tools import Diary, Start, StartWorker, attempts, failed, in_state, lasted, on_time
from tests.support import alive, not_none, poll
from tests.workload import jobs, stopping

pytestmark = [pytest.mark.every_database, pytest.mark.process]


def ready(worker: StartWorker, *arguments: str) -> Any:
    """A worker that has executed something: total timeouts count from the enqueue."""
    runner = worker(*arguments)
    in_state(jobs.echo.enqueue("up"), "completed", timeout=30)
    return runner


@pytest.mark.parametrize("handler", [stopping.witness, stopping.awaiting])
def test_total_timeout_tells_the_handler_and_leaves_it_its_grace_period(
    worker: StartWorker, diary: Diary, handler: JobHandler[Any, Any]
) -> None:
    ready(worker)
    job = handler.using(total_timeout=3).enqueue(diary.path)
    assert set(diary.wait("stopped", timeout=20)) == {"total_timeout"}
    error = failed(job, "discarded")
    assert (error["type"], error["timeout_kind"]) == ("total_timeout", "total")
    poll(lambda: api.get(job).checkpoint, 10)
    after = api.get(job)
    assert after.checkpoint == {"reason": "total_timeout"}
    assert after.state == "discarded"
    (attempt,) = attempts(job)
    assert attempt.outcome == "total_timeout"
    assert not_none(attempt.late_report or {"report": "none"})["report"] == "none"
    in_state(jobs.echo.enqueue("next"), "completed", timeout=20)


def test_checkpoint_saved_after_the_total_timeout_is_for_a_manual_retry(
    worker: StartWorker, diary: Diary
) -> None:
    ready(worker)
    job = stopping.witness.using(total_timeout=3).enqueue(diary.path)
    diary.wait("saved", timeout=20)
    in_state(job, "discarded")
    api.retry(job)
    assert in_state(job, "completed").result == {"reason": "total_timeout"}


def test_nothing_that_comes_after_the_total_timeout_counts(worker: StartWorker, diary: Diary) -> None:
    ready(worker)
    job = stopping.late_result.using(total_timeout=3).enqueue(diary.path)
    diary.wait("stopped", timeout=20)
    late = poll(lambda: [one.late_report for one in attempts(job) if one.late_report], 10)
    assert late[0]["report"] == "ack"
    after = api.get(job)
    assert (after.state, after.result) == ("discarded", None)
    assert not_none(after.error)["type"] == "total_timeout"


def test_handler_that_goes_on_is_killed_at_the_end_of_its_grace_period(
    worker: StartWorker, diary: Diary
) -> None:
    ready(worker)
    job = stopping.stubborn.using(total_timeout=3, grace_period=3).enqueue(diary.path)
    (pid,) = diary.wait("started", timeout=20)
    assert failed(job, "discarded")["type"] == "total_timeout"
    settled = clock.boottime()
    assert alive(int(pid)), "its grace period has just begun"
    poll(lambda: not alive(int(pid)), 15)
    assert clock.boottime() - settled > 2
    assert diary.lines("stopped") == [["total_timeout"]]


def test_signal_of_the_timeout_stands_when_the_total_runs_out_in_its_grace(
    worker: StartWorker, diary: Diary
) -> None:
    """Told at two seconds, settled at three, saved at about five, within the grace until twelve."""
    ready(worker)
    slow = stopping.slow.using(timeout=2, grace_period=10, total_timeout=3)
    job = slow.enqueue(diary.path, 3)
    diary.wait("saved", timeout=20)
    assert diary.lines("stopped") == [["timeout"]]
    after = api.get(job)
    assert (after.state, not_none(after.error)["type"]) == ("discarded", "total_timeout")
    assert after.checkpoint == {"reason": "timeout"}
    assert lasted(attempts(job)[0]) < 3.5


class TestReasons:
    def told(self, diary: Diary) -> str:
        reason, same = diary.wait("stopped", timeout=20)
        assert reason == same
        return reason

    def test_timeout(self, worker: StartWorker, diary: Diary) -> None:
        worker()
        stopping.witness.using(timeout=1).enqueue(diary.path)
        assert self.told(diary) == "timeout"

    def test_cancelled(self, worker: StartWorker, diary: Diary) -> None:
        job = stopping.witness.using(heartbeat_timeout=2).enqueue(diary.path)
        worker()
        diary.wait("started", timeout=20)
        api.cancel(job)
        assert self.told(diary) == "cancelled"

    def test_stalled(self, worker: StartWorker, manage: Start, diary: Diary) -> None:
        stopping.silent.enqueue(diary.path)
        worker("--no-maintenance")
        manage("reap_timeouts", "--loop")
        diary.wait("started", timeout=20)
        assert self.told(diary) == "stalled"

    def test_shutdown(self, worker: StartWorker, diary: Diary) -> None:
        stopping.witness.enqueue(diary.path)
        runner = worker("--shutdown-timeout", "12")
        diary.wait("started", timeout=20)
        runner.send(signal.SIGTERM)
        assert self.told(diary) == "shutdown"
        assert runner.wait(20) == 0

    def test_lost(self, worker: StartWorker, diary: Diary) -> None:
        """The row has another lease, and no attempt says why."""
        job = stopping.witness.using(heartbeat_timeout=2).enqueue(diary.path)
        worker()
        diary.wait("started", timeout=20)
        Job.objects.filter(pk=job.id).update(lease_id=clock.new_lease())
        assert self.told(diary) == "lost"
        api.cancel(job)


@pytest.mark.parametrize(
    ("how", "state", "dead"),
    [
        ("discard", "discarded", False),
        ("fail", "discarded", False),
        ("dead letter", "discarded", True),
        ("retry", "retryable", False),
    ],
)
def test_decision_in_the_grace_period_is_what_happens_next(
    worker: StartWorker, diary: Diary, how: str, state: str, dead: bool
) -> None:
    worker()
    job = stopping.decide.using(timeout=1).enqueue(diary.path, how)
    after = in_state(job, "discarded", "retryable", timeout=20)
    assert (after.state, after.dead_letter) == (state, dead)
    error = not_none(after.error)
    assert (error["type"], error["timeout_kind"]) == ("timeout", "execution")
    assert error["details"]["raised"] == ("not now" if how == "retry" else "no use")
    assert after.retry_delay_ms == (45_000 if how == "retry" else None)
    assert [one.outcome for one in attempts(job)] == ["timeout"]


def test_decision_of_a_coroutine_counts_too(worker: StartWorker, diary: Diary) -> None:
    worker()
    job = stopping.decide_async.using(timeout=1).enqueue(diary.path)
    after = in_state(job, "discarded", "retryable", timeout=20)
    assert (after.state, not_none(after.error)["type"]) == ("discarded", "timeout")


@pytest.mark.parametrize(("how", "state"), [("discard", "discarded"), ("retry", "retryable")])
def test_decision_in_the_grace_of_a_shutdown_counts_too(
    worker: StartWorker, diary: Diary, how: str, state: str
) -> None:
    runner = worker("--shutdown-timeout", "12")
    job = stopping.decide.enqueue(diary.path, how)
    diary.wait("started", timeout=20)
    runner.send(signal.SIGTERM)
    assert runner.wait(20) == 0
    after = api.get(job)
    assert (after.state, not_none(after.error)["type"]) == (state, "shutdown")
    assert after.retry_delay_ms == (45_000 if how == "retry" else None)


@pytest.mark.parametrize("handler", [stopping.told, stopping.told_async])
def test_a_handler_that_is_only_told_decides_itself(
    worker: StartWorker, diary: Diary, handler: Any
) -> None:
    """What it returns in its grace period counts; the hard stop comes as for others."""
    ready(worker)
    returns = handler.using(timeout=1).enqueue(diary.path, "return")
    raises = handler.using(timeout=1).enqueue(diary.path, "check")
    assert in_state(returns, "completed", timeout=20).result == "timeout"
    assert failed(raises, timeout=20)["type"] == "timeout"


def test_a_handler_that_is_told_and_does_not_listen_is_killed(
    worker: StartWorker, diary: Diary
) -> None:
    ready(worker)
    job = stopping.deaf.using(timeout=1, grace_period=1).enqueue(diary.path)
    assert failed(job, timeout=20)["type"] == "timeout"
    (attempt,) = attempts(job)
    assert on_time(attempt, 2)
