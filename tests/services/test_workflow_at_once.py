"""Several members of workflows of one tree that end in one commit, or are retried in one."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs import WorkflowRecord, get_workflow, group, step, workflow
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.services import operate
from django_ojs.services.settle import Outcome, Report, settle
from django_ojs.services.workflows import upkeep

from .support import ack, held, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ONCE = {"max_attempts": 1}


def alone(job_type: str) -> Any:
    return step(job_type, retry=ONCE)


def in_a_group(job_type: str) -> Any:
    return group(step(job_type, retry=ONCE))


def two_and_a_third(first: Any, second: Any, **callbacks: Any) -> WorkflowRecord:
    """Two members that wait for nothing, a step that waits for both, and one that runs beside them."""
    dag = workflow("dag", **callbacks)
    dag.add(step("test.beside"))
    dag.add(step("test.last"), after=[dag.add(first), dag.add(second)])
    return dag.enqueue()


def both() -> tuple[JobRow, JobRow]:
    """The jobs of the first two members, claimed."""
    (first,), (second,) = take(types=("test.a",)), take(types=("test.b",))
    return first, second


def settle_both(first: Report, second: Report) -> None:
    """Report the end of both in one call."""
    no = Failure("test.Error", "no")
    outcomes = [
        Outcome(held(job), report, failure=no if report is Report.FAIL else None)
        for job, report in zip(both(), (first, second), strict=True)
    ]
    assert [one.verdict for one in settle(outcomes)] == ["settled", "settled"]


def counts(made: WorkflowRecord) -> tuple[str, int, int, int, int]:
    found = get_workflow(made)
    return found.state, found.open, found.completed, found.failed, found.cancelled


def assert_sound() -> None:
    assert [str(drift) for drift in upkeep.drifts()] == []


def complete(*job_types: str) -> None:
    """Acknowledge one job of each type, one by one: the counters are right after each."""
    for job_type in job_types:
        ack(*take(types=(job_type,)))
        assert_sound()


SHAPES = pytest.mark.parametrize(
    ("first", "second"),
    [(alone, alone), (in_a_group, in_a_group), (alone, in_a_group), (in_a_group, alone)],
    ids=["two jobs", "two groups", "a job and a group", "a group and a job"],
)


@SHAPES
def test_what_waits_for_two_members_that_complete_at_once_starts(first: Any, second: Any) -> None:
    made = two_and_a_third(first("test.a"), second("test.b"))
    settle_both(Report.ACK, Report.ACK)
    assert_sound()
    complete("test.last", "test.beside")
    assert counts(made) == ("completed", 0, 4, 0, 0)


@SHAPES
@pytest.mark.parametrize(
    ("one", "other"),
    [(Report.FAIL, Report.FAIL), (Report.ACK, Report.FAIL), (Report.FAIL, Report.ACK)],
    ids=["both fail", "the second fails", "the first fails"],
)
def test_what_waits_for_two_members_is_cancelled_once(
    first: Any, second: Any, one: Report, other: Report
) -> None:
    made = two_and_a_third(first("test.a"), second("test.b"))
    settle_both(one, other)
    failed = (one, other).count(Report.FAIL)
    assert counts(made) == ("running", 1, 2 - failed, failed, 1)
    assert_sound()
    complete("test.beside")
    assert counts(made) == ("failed", 0, 3 - failed, failed, 1)


@SHAPES
def test_members_that_are_cancelled_at_once_cancel_what_waits_for_them_once(
    first: Any, second: Any
) -> None:
    made = two_and_a_third(first("test.a"), second("test.b"))
    operate.cancel([job.id for job in both()])
    assert counts(made)[:3] == ("running", 1, 0)
    assert_sound()
    complete("test.beside")
    assert counts(made)[:3] == ("failed", 0, 1)
