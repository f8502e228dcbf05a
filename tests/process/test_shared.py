"""Coroutines that share a process: many at a time, each with its own limits."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs import api
from django_ojs.handlers.registry import JobHandler
from django_ojs.models import Job
from tests.process.tools import Diary, Flag, StartWorker, attempts, failed, in_state, on_time
from tests.support import poll
from tests.workload import coroutines

pytestmark = pytest.mark.process

SIBLINGS = 8
AnyHandler = JobHandler[Any, Any]


def test_many_run_at_a_time_in_one_process(worker: StartWorker) -> None:
    made = [coroutines.sleep.enqueue(0.5) for _ in range(40)]
    alone, plain = coroutines.alone.enqueue(), coroutines.plain.enqueue()
    runner = worker("--drain", "--async-slots=20", "--concurrency=1")
    assert runner.wait(60) == 0
    pids = {in_state(job, "completed").result for job in made}
    assert len(pids) == 1
    found = sorted(attempts(job)[0].started_at for job in made)
    assert (found[-1] - found[0]).total_seconds() < 15, "one after the other they take 20 s"
    others = {in_state(job, "completed").result for job in (alone, plain)}
    assert not others & pids


def test_the_option_is_checked(worker: StartWorker) -> None:
    runner = worker("--drain", "--async-slots=1")
    assert runner.wait(30) == 2
    assert "--async-slots: must be 0, for none, or a number from 2 to 1000" in runner.stderr


def test_each_has_its_own_connection_and_context(worker: StartWorker) -> None:
    held = coroutines.in_transaction.enqueue(1.0)
    others = [coroutines.autocommits.enqueue() for _ in range(10)]
    asked = coroutines.ask.enqueue()
    after = [coroutines.autocommits.enqueue() for _ in range(10)]
    runner = worker("--drain", "--async-slots=4", "--concurrency=1")
    assert runner.wait(60) == 0
    its_own, commits = in_state(held, "completed").result
    assert commits is False
    found = [in_state(job, "completed").result for job in (*others, *after)]
    assert [commits for _, *commits in found] == [[True] * 5] * 20
    meanwhile = {wrapper for wrapper, *_ in found[: len(others)]}
    assert its_own not in meanwhile
    assert len(meanwhile) <= 3, "one a slot, kept from job to job"
    assert in_state(asked, "completed").result == [True, {"at": 2}, 60]
    assert api.get(asked).progress_message == "half"


@pytest.mark.parametrize("handler", [coroutines.stop, coroutines.hold], ids=["waits", "holds"])
def test_one_that_times_out_is_stopped_and_the_others_go_on(
    worker: StartWorker, diary: Diary, flag: Flag, handler: AnyHandler
) -> None:
    siblings = [coroutines.until.enqueue(diary.path, flag.path) for _ in range(SIBLINGS)]
    runner = worker("--drain", f"--async-slots={SIBLINGS + 1}", "--concurrency=1")
    diary.wait("began", SIBLINGS)
    late = handler.enqueue(diary.path)
    assert failed(late)["type"] == "timeout"
    flag.set()
    assert runner.wait(60) == 0
    assert on_time(attempts(late)[0], 4)
    pids = {line[0] for line in diary.lines("began")}
    found = [in_state(job, "completed") for job in siblings]
    assert {str(job.result) for job in found} == pids, "the process lives on"
    assert {job.attempt for job in found} == {1}


def test_a_thread_that_outlives_its_job_costs_the_others_nothing(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    sibling = coroutines.until.enqueue(diary.path, flag.path)
    runner = worker("--drain", "--async-slots=2", "--concurrency=1")
    pid, *_ = diary.wait("began")
    assert failed(coroutines.report.enqueue(diary.path))["type"] == "timeout"
    assert diary.wait("refused") == ["LeaseGone"]
    flag.set()
    assert runner.wait(60) == 0
    found = in_state(sibling, "completed")
    assert (str(found.result), found.attempt) == (pid, 1)
    assert "unexpected" not in runner.stderr


@pytest.mark.parametrize("handler", [coroutines.swallow, coroutines.deaf], ids=["swallows", "blocks"])
def test_one_that_does_not_stop_costs_the_others_no_attempt(
    worker: StartWorker, diary: Diary, flag: Flag, handler: AnyHandler
) -> None:
    siblings = [coroutines.until.enqueue(diary.path, flag.path) for _ in range(SIBLINGS)]
    runner = worker("--drain", f"--async-slots={SIBLINGS + 1}", "--concurrency=2")
    diary.wait("began", SIBLINGS)
    bad = handler.enqueue(diary.path)
    assert failed(bad)["type"] == "timeout"
    again = handler.enqueue(diary.path)
    poll(lambda: len(diary.lines("began")) == 2 * SIBLINGS + 2)
    pids = [line[0] for line in diary.lines("began")]
    assert pids.count(pids[-1]) == 1 or len(set(pids[SIBLINGS + 1 :])) == 2, (
        "it has its own process now"
    )
    flag.set()
    assert failed(again)["type"] == "timeout"
    assert runner.wait(60) == 0
    assert on_time(attempts(bad)[0], 4)
    assert on_time(attempts(again)[0], 4)
    assert [in_state(job, "completed").attempt for job in siblings] == [1] * SIBLINGS
    assert "run in processes of their own from now on" in runner.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("round", range(25))
@pytest.mark.parametrize("handler", [coroutines.swallow, coroutines.deaf], ids=["swallows", "blocks"])
def test_in_no_round_is_a_sibling_lost(
    worker: StartWorker, diary: Diary, flag: Flag, handler: AnyHandler, round: int
) -> None:
    """The hard stop meets the siblings wherever they are: beginning, waiting, ending."""
    steady = [coroutines.until.enqueue(diary.path, flag.path) for _ in range(SIBLINGS // 2)]
    bad = handler.using(timeout=1, grace_period=round % 3).enqueue(diary.path)
    runner = worker("--drain", f"--async-slots={SIBLINGS + 1}", "--concurrency=2")
    diary.wait("began", SIBLINGS // 2 + 1)
    brief = [coroutines.sleep.enqueue(0.05 * (n % 7)) for n in range(40)]
    assert failed(bad)["type"] == "timeout"
    flag.set()
    assert runner.wait(60) == 0
    found = [in_state(job, "completed") for job in (*steady, *brief)]
    assert [job.attempt for job in found] == [1] * len(found)


def test_a_crash_costs_no_attempt_until_it_is_known_whose_it_is(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    siblings = [coroutines.until.enqueue(diary.path, flag.path) for _ in range(SIBLINGS)]
    runner = worker("--drain", f"--async-slots={SIBLINGS + 1}", f"--concurrency={SIBLINGS + 1}")
    diary.wait("began", SIBLINGS)
    bad = coroutines.crash.enqueue()
    assert failed(bad)["message"] == "the executor exited with status 7"
    flag.set()
    assert runner.wait(60) == 0
    assert [in_state(job, "completed").attempt for job in siblings] == [1] * SIBLINGS
    assert api.get(bad).attempt == 1


def test_a_call_that_is_cut_off_keeps_no_thread(worker: StartWorker, diary: Diary) -> None:
    """As many as there are threads for calls; then one more job makes a call."""
    cut_off = [coroutines.save.enqueue(diary.path) for _ in range(4)]
    worker("--async-slots=2", "--concurrency=1")
    assert [failed(job)["type"] for job in cut_off] == ["timeout"] * 4
    assert in_state(coroutines.ask.enqueue(), "completed").attempt == 1


@pytest.mark.parametrize(("option", "code"), [("--once", 0), ("--max-jobs=1", 75)])
def test_a_worker_of_few_jobs_runs_a_coroutine_too(worker: StartWorker, option: str, code: int) -> None:
    job = coroutines.sleep.enqueue(0)
    assert worker(option, "--async-slots=4", "--concurrency=1").wait(60) == code
    assert in_state(job, "completed").attempt == 1


def test_an_exit_is_the_failure_of_one(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    sibling = coroutines.until.enqueue(diary.path, flag.path)
    runner = worker("--drain", "--async-slots=4", "--concurrency=1")
    diary.wait("began")
    bad = coroutines.leave.enqueue()
    assert failed(bad)["type"] == "builtins.SystemExit"
    flag.set()
    assert runner.wait(60) == 0
    assert str(in_state(sibling, "completed").result) == diary.lines("began")[0][0]


def test_a_cancelled_job_is_cancelled(worker: StartWorker, diary: Diary) -> None:
    job = coroutines.stop.enqueue(diary.path)
    runner = worker("--async-slots=4", "--concurrency=1")
    diary.wait("began")
    api.cancel(job.id)
    assert diary.wait("cancelled") == ["cancelled"]
    runner.end()
    assert in_state(job, "cancelled").attempt == 1


@pytest.mark.parametrize("what", ["task", "stubborn", "thread"])
def test_what_a_coroutine_leaves_ends_with_it_or_costs_the_process(
    worker: StartWorker, diary: Diary, flag: Flag, what: str
) -> None:
    sibling = coroutines.until.enqueue(diary.path, flag.path)
    runner = worker("--drain", "--async-slots=4", "--concurrency=1")
    diary.wait("began")
    left = in_state(coroutines.leave_task.enqueue(what), "completed").result
    later = in_state(coroutines.sleep.enqueue(0), "completed").result
    flag.set()
    assert runner.wait(60) == 0
    assert (later == left) is (what == "task")
    assert in_state(sibling, "completed").result == left, "the old process ends with its last job"


def test_middleware_runs_around_a_coroutine(worker: StartWorker, diary: Diary) -> None:
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.workload.settings_middleware",
        "OJS_TEST_DIARY": diary.path,
    }
    done = coroutines.sleep.enqueue(0.1)
    stopped = coroutines.stop.enqueue(diary.path)
    runner = worker("--drain", "--async-slots=4", "--concurrency=1", **environment)
    assert runner.wait(60) == 0, runner.stderr
    in_state(done, "completed")
    assert failed(stopped)["type"] == "timeout"
    assert len(diary.lines("outer")) == len(diary.lines("inner")) == 2
    assert diary.lines("raised") == [["SoftStop"]]
    assert diary.lines("cancelled")


def test_a_worker_that_ends_gives_its_coroutines_back(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    made = [coroutines.until.enqueue(diary.path, flag.path) for _ in range(SIBLINGS)]
    runner = worker(f"--async-slots={SIBLINGS}", "--concurrency=1", "--shutdown-timeout=1")
    diary.wait("began", SIBLINGS)
    runner.end()
    poll(lambda: not Job.objects.filter(state="active").exists())
    assert {api.get(job).state for job in made} <= {"available", "retryable"}
