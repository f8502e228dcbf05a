"""Coroutines of one executor share its event loop, and nothing else."""

from __future__ import annotations

import pytest

from django_ojs import api
from tests.process.tools import StartWorker, failed, in_state
from tests.workload import jobs

pytestmark = pytest.mark.process


def test_a_client_outlives_the_job_that_opened_it(worker: StartWorker) -> None:
    made = [jobs.use_client.enqueue() for _ in range(10)]
    runner = worker("--drain", "--concurrency=1")
    assert runner.wait(30) == 0
    assert len({tuple(in_state(job, "completed").result) for job in made}) == 1, "process and loop"
    assert "left behind" not in runner.stderr


@pytest.mark.parametrize(
    ("what", "found"), [("task", ""), ("stubborn task", "tasks"), ("thread", "threads")]
)
def test_what_a_coroutine_leaves_runs_beside_no_other_job(
    worker: StartWorker, what: str, found: str
) -> None:
    """A task ends when it is cancelled; for what does not end the process is replaced."""
    left = jobs.leave_async.enqueue(what)
    after = [jobs.count_async.enqueue() for _ in range(5)]
    runner = worker("--drain", "--concurrency=1")
    assert runner.wait(60) == 0
    pids = [in_state(job, "completed").result for job in (left, *after)]
    assert len(set(pids[1:])) == 1
    assert (pids[0] != pids[1]) is bool(found)
    assert f"a handler left behind: {found}" in runner.stderr if found else "left" not in runner.stderr
    assert [api.get(job).attempt for job in (left, *after)] == [1] * 6


@pytest.mark.fault("F22")
@pytest.mark.parametrize("where", ["itself", "a task"])
@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt"])
def test_an_exit_of_a_coroutine_is_its_own_failure(worker: StartWorker, name: str, where: str) -> None:
    """It leaves the loop in the middle: what it would interrupt there is the next job."""
    first = jobs.count_async.enqueue()
    ended = jobs.exit_async.enqueue(name, where)
    after = [jobs.count_async.enqueue() for _ in range(5)]
    runner = worker("--drain", "--concurrency=1")
    assert runner.wait(60) == 0
    assert failed(ended)["type"] == f"builtins.{name}"
    pids = [in_state(job, "completed").result for job in (first, *after)]
    assert (pids[0] == pids[1]) is (where == "itself")
    assert [api.get(job).attempt for job in after] == [1] * 5


def test_each_coroutine_has_the_context_of_its_own_job(drained: StartWorker) -> None:
    made = [jobs.current_job_async.enqueue() for _ in range(3)]
    drained("--concurrency=1")
    assert [in_state(job, "completed").result for job in made] == [[str(job.id)] * 3 for job in made]
