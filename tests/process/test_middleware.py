"""Execution middleware and ``before_exit`` in real executors."""

from __future__ import annotations

import os
import signal

import pytest

from django_ojs import api
from tests.process.tools import Diary, Flag, StartWorker, attempts, failed, in_state
from tests.support import not_none, poll
from tests.workload import jobs
from tests.workload.tools import LATER

pytestmark = pytest.mark.process
ONCE = {"max_attempts": 1}


@pytest.fixture
def surrounded(diary: Diary) -> dict[str, str]:
    """The environment of a worker with execution middleware."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.workload.settings_middleware",
        "OJS_TEST_DIARY": diary.path,
    }


def test_a_handler_runs_inside_the_middleware(
    drained: StartWorker, diary: Diary, surrounded: dict[str, str]
) -> None:
    wrapped = jobs.echo.using(meta={"wrap": True}).enqueue(1)
    changed = jobs.echo.using(meta={"args": [2]}).enqueue("encrypted")
    drained(**surrounded)
    assert api.get(wrapped).result == ["wrapped", 1]
    assert api.get(changed).result == 2
    assert api.get(changed).args == ["encrypted"]
    assert diary.lines("outer") == [["work.echo", "1"]] * 2
    assert len(diary.lines("inner")) == 2
    assert diary.lines("returned") == [["['wrapped',", "1]"], ["2"]]


def test_what_the_middleware_raises_fails_the_attempt(
    drained: StartWorker, diary: Diary, surrounded: dict[str, str]
) -> None:
    refused = jobs.echo.using(meta={"refuse": True}, retry=ONCE).enqueue(1)
    raised = jobs.raise_text.using(retry=ONCE).enqueue(1)
    drained(**surrounded)
    error = not_none(api.get(refused).error)
    assert (error["type"], error["message"]) == ("builtins.LookupError", "refused by the middleware")
    assert diary.lines("raised")[0] == ["LookupError"]
    assert len(diary.lines("raised")) == 2
    (attempt,) = attempts(raised)
    assert "django_ojs/" not in str(attempt.error), "the worker's own frames are left out"


def test_a_stop_that_comes_after_the_handler_finds_its_result(
    worker: StartWorker, diary: Diary, flag: Flag, surrounded: dict[str, str]
) -> None:
    """The soft stop is raised in handlers only: what surrounds them is closed in peace."""
    job = jobs.echo.using(meta={"wait_for": flag.path}, timeout=4, grace_period=60).enqueue("done")
    runner = worker(**surrounded)
    diary.wait("waiting")
    poll(lambda: f"soft stop of work.echo {job.id}: timeout" in runner.stderr)
    flag.set()
    assert in_state(job, "completed").result == "done"


def test_middleware_that_hangs_is_killed(
    worker: StartWorker, diary: Diary, flag: Flag, surrounded: dict[str, str]
) -> None:
    meta = {"wait_for": flag.path}
    job = jobs.echo.using(meta=meta, timeout=4, grace_period=1, retry=LATER).enqueue("x")
    worker(**surrounded)
    assert failed(job)["type"] == "timeout"


def test_the_running_job_is_known_to_what_it_calls(drained: StartWorker) -> None:
    first, second = jobs.current_job.enqueue(), jobs.current_job_async.enqueue()
    drained()
    assert api.current() is None
    assert api.get(first).result == [str(first.id), "work.current", "None"]
    assert api.get(second).result == [str(second.id)] * 3


def test_executors_do_what_is_left_to_do_before_they_end(
    drained: StartWorker, diary: Diary, surrounded: dict[str, str]
) -> None:
    made = [jobs.pid.enqueue(diary.path) for _ in range(4)]
    runner = drained(**surrounded, OJS_TEST_MAX_JOBS="2")
    pids = {api.get(job).result for job in made}
    assert len(pids) >= 2, "executors are replaced after two jobs"
    for word in ("leaving", "left"):
        assert pids <= {int(pid) for (pid,) in diary.lines(word)}
    assert "before_exit: <function fail" in runner.stderr
    assert "not sent to diary" in runner.stderr


def test_an_executor_that_does_not_end_is_killed(
    worker: StartWorker, diary: Diary, surrounded: dict[str, str]
) -> None:
    job = jobs.pid.enqueue(diary.path)
    runner = worker(**surrounded, OJS_TEST_HANG="1")
    in_state(job, "completed")
    runner.send(signal.SIGTERM)
    assert runner.wait(30) == 0
    assert "an executor did not end in 2 s" in runner.stderr
    (pid,) = diary.wait("leaving")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert not diary.lines("left")
