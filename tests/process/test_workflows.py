"""Workflows by a real worker: what handlers get of the steps before theirs, and what they add."""

from __future__ import annotations

import pytest

from django_ojs import WorkflowRecord, batch, chain, get_workflow, group, workflow
from django_ojs.models import Job
from tests.process.tools import Diary, StartWorker, in_state
from tests.support import poll
from tests.workload import jobs

pytestmark = pytest.mark.process


def ended(made: WorkflowRecord) -> WorkflowRecord:
    """The workflow when it has ended."""

    def look() -> WorkflowRecord | None:
        found = get_workflow(made)
        return found if found.finished_at else None

    return poll(look)


def result(made: WorkflowRecord, step: int) -> object:
    return Job.objects.get(workflow_id=made.id, workflow_step=step).result


def test_a_step_gets_the_results_of_those_before_it(worker: StartWorker) -> None:
    worker("--concurrency", "2")
    made = chain(
        jobs.echo.step("first"),
        group(jobs.echo.step("left"), jobs.parents.step()),
        jobs.parents.step(),
    ).enqueue()
    assert ended(made).state == "completed"
    assert result(made, 2) == ["first", {"0": "left", "1": ["first"]}]


def test_a_callback_gets_the_results_of_all_members(worker: StartWorker) -> None:
    worker("--concurrency", "2")
    made = batch(jobs.echo.steps([[n] for n in range(250)]), on_success=jobs.parents.step()).enqueue()
    assert ended(made).state == "completed"
    assert result(made, -2) == list(range(250))


def test_results_of_a_dag_come_in_the_order_of_what_was_waited_for(worker: StartWorker) -> None:
    worker("--concurrency", "2")
    with workflow("dag") as dag:
        first, second = dag.add(jobs.echo.step("a")), dag.add(jobs.echo.step("b"))
        dag.add(jobs.parents.step(), after=[second, first])
    assert ended(dag.record).state == "completed"
    assert result(dag.record, 2) == ["b", "a"]


def test_an_object_that_no_message_can_carry_is_refused(worker: StartWorker, diary: Diary) -> None:
    """It has an error of its own: the executor that asked for it goes on."""
    worker("--concurrency", "1")
    before = in_state(jobs.pid.enqueue(diary.path), "completed").result
    made = chain(
        group(*(jobs.echo.step("x" * 1_000_000) for _ in range(10))),
        jobs.parents.using(retry={"max_attempts": 1}).step(),
    ).enqueue()
    found = ended(made)
    assert found.state == "failed"
    assert "have more than 8000000 bytes together" in found.errors[0]["message"]
    assert in_state(jobs.pid.enqueue(diary.path), "completed").result == before


def test_a_job_without_a_workflow_has_none(worker: StartWorker) -> None:
    worker()
    assert in_state(jobs.parents.enqueue(), "completed").result == []


def test_a_running_member_adds_members(worker: StartWorker, diary: Diary) -> None:
    worker("--concurrency", "2")
    made = group(jobs.spread.step(["x", "y", "z"])).enqueue()
    found = ended(made)
    assert (found.state, found.total, found.completed) == ("completed", 4, 4)
    assert [result(made, step) for step in range(4)] == [3, "x", "y", "z"]


def test_a_chain_takes_no_members(worker: StartWorker) -> None:
    worker()
    made = chain(jobs.spread.using(retry={"max_attempts": 1}).step(["x"])).enqueue()
    found = ended(made)
    assert (found.state, found.failed) == ("failed", 1)
    assert "a chain takes no more members" in found.errors[0]["message"]


def test_a_workflow_that_times_out_stops_what_runs(worker: StartWorker, diary: Diary) -> None:
    worker("--concurrency", "2")
    made = group(
        jobs.loop.step(diary.path), jobs.echo.using(delay=60).step(1), on_failure=jobs.echo.step("told")
    ).enqueue(workflow_timeout="2s")
    found = ended(made)
    assert (found.state, found.cancelled) == ("failed", 2)
    assert found.error is not None
    assert (found.error["type"], found.error["timeout_kind"]) == ("workflow_timeout", "total")
    assert result(made, -3) == "told"
