"""Several members of workflows of one tree that end in one commit, or are retried in one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from django_ojs import WorkflowRecord, batch, get_workflow, group, step, workflow
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.models import Job
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


def dead() -> list[UUID]:
    """The jobs that have failed for good."""
    return list(Job.objects.filter(state="discarded").order_by("pk").values_list("pk", flat=True))


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


@SHAPES
def test_two_members_that_are_retried_at_once_reopen_the_workflow_once(first: Any, second: Any) -> None:
    made = two_and_a_third(first("test.a"), second("test.b"))
    complete("test.beside")
    settle_both(Report.FAIL, Report.FAIL)
    assert counts(made) == ("failed", 0, 1, 2, 1)
    operate.retry_dead(dead())
    assert counts(made) == ("running", 3, 1, 0, 0)
    assert_sound()
    complete("test.a", "test.b", "test.last")
    assert counts(made) == ("completed", 0, 4, 0, 0)


@SHAPES
def test_two_members_of_a_workflow_that_runs_are_retried_at_once(first: Any, second: Any) -> None:
    made = two_and_a_third(first("test.a"), second("test.b"))
    settle_both(Report.FAIL, Report.FAIL)
    operate.retry_dead(dead())
    assert counts(made) == ("running", 4, 0, 0, 0)
    assert_sound()
    complete("test.a", "test.b", "test.last", "test.beside")
    assert counts(made) == ("completed", 0, 4, 0, 0)


def test_one_of_two_members_that_are_retried_at_once_fails_again() -> None:
    made = two_and_a_third(in_a_group("test.a"), alone("test.b"))
    complete("test.beside")
    settle_both(Report.FAIL, Report.FAIL)
    operate.retry_dead(dead())
    settle_both(Report.FAIL, Report.ACK)
    assert counts(made) == ("failed", 0, 2, 1, 1)


@pytest.mark.parametrize(
    ("inner", "failed"),
    [
        (lambda: [alone("test.a"), alone("test.b")], 2),
        (lambda: [in_a_group("test.a"), in_a_group("test.b")], 2),
        (lambda: [group(alone("test.a"), in_a_group("test.b"))], 1),
    ],
    ids=["jobs", "groups", "a group of a job and a group"],
)
def test_members_of_a_group_that_are_retried_at_once_have_not_failed(inner: Any, failed: int) -> None:
    made = group(*inner()).enqueue()
    settle_both(Report.FAIL, Report.FAIL)
    assert counts(made) == ("failed", 0, 0, failed, 0)
    operate.retry_dead(dead())
    assert counts(made) == ("running", failed, 0, 0, 0)
    assert_sound()
    complete("test.a", "test.b")
    assert counts(made) == ("completed", 0, failed, 0, 0)


def test_of_two_members_that_are_retried_at_once_one_is_too_late() -> None:
    """The callbacks of its own workflow have run: it runs by itself, and the other is waited for."""
    too_late = batch(alone("test.a"), on_complete=step("test.told"))
    made = two_and_a_third(too_late, alone("test.b"))
    settle_both(Report.FAIL, Report.FAIL)
    complete("test.told")
    assert counts(made) == ("running", 1, 1, 1, 1)
    operate.retry_dead(dead())
    assert counts(made) == ("running", 3, 1, 0, 0)
    complete("test.a", "test.b", "test.last", "test.beside")
    assert counts(made) == ("completed", 0, 4, 0, 0)


def test_a_refused_step_is_started_once_when_two_members_are_retried_at_once() -> None:
    dag = workflow("dag")
    dag.add(alone("test.a"))
    dag.add(alone("test.b"))
    dag.add(step("test.refused", timeout="1h"), after=dag.add(step("test.first")))
    made = dag.enqueue()
    with override_settings(OJS={"DEFAULTS": {"total_timeout": "10s", "timeout": "5s"}}):
        ack(*take(types=("test.first",)))
    settle_both(Report.FAIL, Report.FAIL)
    assert counts(made) == ("failed", 0, 1, 2, 1)
    operate.retry_dead(dead())
    assert counts(made) == ("running", 3, 1, 0, 0)
    complete("test.refused", "test.a", "test.b")
    assert counts(made) == ("completed", 0, 4, 0, 0)
