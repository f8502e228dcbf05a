"""What stands in the way of a workflow holds up nothing else, and is not lost."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_ojs import (
    WorkflowRecord,
    cancel_workflow,
    chain,
    enqueue,
    get,
    get_workflow,
    group,
    resume_workflow,
    step,
    workflow,
)
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services import attempts, promote, reap, settle
from django_ojs.services.rate_limits import admission
from django_ojs.services.settle import Outcome, Report
from django_ojs.services.workflows import operate, upkeep
from django_ojs.services.workflows.tree import Tree
from django_ojs.store.contention import impatient

from .support import ack, bounded, elsewhere, fail, held, holding, nobody_admits, take

STRICT: dict[str, Any] = {"DEFAULTS": {"total_timeout": "10s", "timeout": "5s"}}
"""Settings by which no step may take an hour."""

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@pytest.fixture
def row_locks(vendor: str) -> None:
    """Rows that can be locked one by one."""
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")


def take_one() -> Any:
    (job,) = take(1)
    return job


def locking_workflow(made: WorkflowRecord) -> AbstractContextManager[None]:
    """For the block another session holds the row of the workflow."""
    return elsewhere(lambda: list(Workflow.objects.select_for_update().filter(pk=made.id)))


@pytest.mark.slow
def test_a_held_workflow_is_in_no_other_report_s_way(row_locks: None) -> None:
    made = group(step("test.job"), step("test.job")).enqueue()
    plain = enqueue("test.job")
    jobs = take(3)
    outcomes = [Outcome(held(job), Report.ACK, "null", None, job) for job in jobs]
    with bounded(), locking_workflow(made), impatient():
        verdicts = [one.verdict for one in settle.settle(outcomes, wait=False)]
        assert sorted(verdicts) == ["held", "held", "settled"]
        assert get(plain).state == "completed"
    late = [outcome for outcome, verdict in zip(outcomes, verdicts, strict=True) if verdict == "held"]
    assert [one.verdict for one in settle.settle(late)] == ["settled", "settled"]
    assert get_workflow(made).state == "completed"


def test_a_held_workflow_is_in_no_deadline_s_way(row_locks: None, frozen: FrozenClock) -> None:
    busy = group(step("test.job", timeout="5s", grace_period=0)).enqueue(workflow_timeout="10s")
    free = group(step("test.job", delay=60)).enqueue(workflow_timeout="10s")
    plain = enqueue("test.job", timeout="5s", grace_period=0, retry={"max_attempts": 1})
    assert len(take(2)) == 2
    frozen.advance(11)
    with bounded(), locking_workflow(busy), impatient():
        assert reap.reap().counts == {"workflow": 1, "execution": 1}
    assert (get_workflow(free).state, get(plain).state) == ("failed", "discarded")
    assert get_workflow(busy).state == "running"
    reap.reap()
    assert get_workflow(busy).state == "failed"


@pytest.mark.parametrize("queues", [("default",), ("default", "other")])
def test_a_job_that_has_expired_never_starts(
    row_locks: None, frozen: FrozenClock, queues: tuple[str, ...]
) -> None:
    """Neither while its workflow is held; those behind it do."""
    made = group(*[step("test.job", enqueue_ttl="1s")] * 3).enqueue()
    frozen.advance(2)
    with bounded(), locking_workflow(made), impatient():
        assert take(1, queues=queues) == []
        plain = enqueue("test.job")
        assert [job.id for job in take(1, queues=queues)] == [plain.id]
        assert Job.objects.filter(state="available").count() == 3
    assert take(1, queues=queues) == []
    found = get_workflow(made)
    assert (found.state, found.failed) == ("failed", 3)


def test_more_expired_jobs_of_a_held_workflow_than_are_locked_hold_up_no_claim(
    row_locks: None, frozen: FrozenClock
) -> None:
    made = group(*[step("test.job", enqueue_ttl="1s")] * 450).enqueue()
    frozen.advance(2)
    with bounded(), locking_workflow(made), impatient():
        assert take(1, expire_for=60) == []
        plain = enqueue("test.job")
        assert [job.id for job in take(1, expire_for=60)] == [plain.id]


def test_a_held_workflow_is_in_no_promotion_s_way(row_locks: None, frozen: FrozenClock) -> None:
    made = group(step("test.job", delay=5, enqueue_ttl="5s"), step("test.job", delay=5)).enqueue()
    plain = enqueue("test.job", delay=5)
    frozen.advance(6)
    with bounded(), locking_workflow(made), impatient():
        assert promote.promote(limit=1) == 1
        assert promote.promote() == 1
        assert get(plain).state == "available"
        assert get_workflow(made).open == 2
    assert promote.promote() == 1
    assert get_workflow(made).failed == 1


def test_a_held_workflow_is_in_no_total_timeout_s_way(row_locks: None, frozen: FrozenClock) -> None:
    made = group(step("test.job", total_timeout="10s")).enqueue()
    enqueue("test.job", total_timeout="10s")
    jobs = take(2)
    frozen.advance(11)
    with bounded(), locking_workflow(made), impatient():
        found = attempts.check([held(job) for job in jobs])
        assert [lease.job_id for lease in found.kept] == [jobs[0].id]
    reap.reap()
    assert get_workflow(made).failed == 1


def test_a_held_workflow_is_in_no_other_way_that_a_rate_limit_turns_away(
    row_locks: None, frozen: FrozenClock
) -> None:
    limit = {"key": "a", "concurrency": 1, "on_limit": "drop"}
    enqueue("test.job", rate_limit=limit)
    with nobody_admits():
        made = group(step("test.job", rate_limit=limit)).enqueue()
        other = enqueue("test.job", rate_limit=limit)
    with bounded(), locking_workflow(made), impatient():
        admission.admit_due(at_once=True, using="default")
        assert (get(other).state, get_workflow(made).open) == ("discarded", 1)
    frozen.advance(1)
    admission.admit_due(using="default")
    assert get_workflow(made).failed == 1


def test_a_held_job_does_not_stop_the_end_of_its_workflow(row_locks: None, frozen: FrozenClock) -> None:
    made = group(step("test.job"), step("test.job")).enqueue(workflow_timeout="10s")
    first = take_one()
    frozen.advance(11)
    with bounded(), elsewhere(lambda: list(Job.objects.select_for_update().filter(pk=first.id))):
        reap.reap()
        found = get_workflow(made)
        assert (found.state, found.open, found.cancelled) == ("failed", 1, 1)
    assert upkeep.finish(using="default") == (1, False, False)
    found = get_workflow(made)
    assert (found.open, found.finished_at is not None) == (0, True)


def test_a_held_job_is_in_no_other_workflow_s_way(row_locks: None, frozen: FrozenClock) -> None:
    """Neither does a task that can do no more begin again at once."""
    busy = group(step("test.job"), step("test.job")).enqueue(workflow_timeout="9s")
    first = take_one()
    free = group(step("test.job"), on_failure=step("test.told")).enqueue(workflow_timeout="10s")
    frozen.advance(11)
    with bounded(), holding(first), impatient():
        assert reap.reap().counts == {"workflow": 2}
        found = get_workflow(free)
        assert (found.state, found.open, found.cancelled) == ("failed", 0, 1)
        assert len(take(1, types=("test.told",))) == 1
        assert not upkeep.TASK.run("default").more
        call_command("reap_timeouts", stdout=StringIO())
        assert get_workflow(busy).open == 1
    reap.reap()
    assert get_workflow(busy).finished_at is not None


def test_held_jobs_are_passed_over_page_by_page(
    row_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "PAGE", 2)
    made = group(*[step("test.job")] * 5).enqueue()
    jobs = take(5)
    operate.stop(made.id, actor=operate.REAPER, using="default")
    with bounded(), holding(*jobs[:2]), impatient():
        assert upkeep.finish(seconds=0, using="default") == (2, True, True)
        assert upkeep.finish(using="default") == (1, True, False)
        assert get_workflow(made).open == 2
    assert upkeep.finish(using="default") == (2, False, False)


def test_a_database_that_answers_slowly_does_not_stop_the_end_of_a_workflow() -> None:
    """Each pass cancels something, though its time is over before it has read what."""
    first = group(step("test.job"), step("test.job")).enqueue()
    second = group(step("test.job")).enqueue()
    for made in (first, second):
        operate.stop(made.id, actor=operate.REAPER, using="default")
    passes = 0
    while upkeep.finish(seconds=0, using="default").late:
        passes += 1
        assert passes <= 2
    assert [get_workflow(made).open for made in (first, second)] == [0, 0]


def test_a_step_that_the_settings_no_longer_allow_does_not_stop_the_report_before_it() -> None:
    first = step("test.job")
    second = step("test.job", timeout="1h")
    made = chain(first, second, step("test.job", when="ended")).enqueue()
    with override_settings(OJS=STRICT):
        ack(take_one())
        found = get_workflow(made)
        assert found.error is not None and found.error["type"] == "step_refused"
        assert "step-1" in found.error["message"] and "total_timeout" in found.error["message"]
        assert (found.state, found.completed, found.cancelled, found.open) == ("running", 1, 1, 1)
        ack(take_one())
    found = get_workflow(made)
    assert (found.state, found.completed, found.cancelled) == ("failed", 2, 1)
    assert list(upkeep.drifts()) == []


def test_a_step_that_is_refused_again_is_not_resumed() -> None:
    made = chain(step("test.job"), step("test.job", timeout="1h"), step("test.job")).enqueue()
    with override_settings(OJS=STRICT):
        ack(take_one())
        assert get_workflow(made).state == "failed"
        with pytest.raises(Conflict, match=r"step-1 cannot be enqueued: .*total_timeout"):
            resume_workflow(made)
        assert get_workflow(made).state == "failed"
    resume_workflow(made)
    for _ in range(2):
        ack(take_one())
    assert get_workflow(made).state == "completed"


def test_what_waits_for_a_step_that_is_refused_by_a_repair_goes_on() -> None:
    """Of two that were cancelled with it, one waits for its success and one for its end."""
    made = workflow("dag")
    first = made.add(step("test.job"))
    refused = made.add(step("test.job", timeout="1h"), after=first)
    other = made.add(step("test.job"), after=refused)
    made.add(step("test.job", when="ended"), after=other)
    record = made.enqueue()
    with patch.object(Tree, "ended"):
        # The workflow is not told.
        ack(take_one())
    with override_settings(OJS=STRICT):
        assert upkeep.repair(record.id, using="default") is not None
        found = get_workflow(record)
        assert (found.state, found.completed, found.cancelled, found.open) == ("running", 1, 2, 1)
        ack(take_one())
    assert get_workflow(record).state == "failed"
    assert list(upkeep.drifts()) == []


def nested_at_once() -> Any:
    return group(step("test.job"), step("test.job", timeout="1h"))


def nested_deeper() -> Any:
    return group(group(step("test.job")), group(step("test.job", timeout="1h")))


def nested_chain() -> Any:
    return group(step("test.job"), chain(step("test.job", timeout="1h"), step("test.job")))


@pytest.mark.parametrize("nested", [nested_at_once, nested_deeper, nested_chain])
def test_of_a_nested_workflow_that_the_settings_no_longer_allow_nothing_starts(nested: Any) -> None:
    made = chain(step("test.job"), nested(), step("test.job", when="ended")).enqueue()
    with override_settings(OJS=STRICT):
        ack(take_one())
        found = get_workflow(made)
        assert found.error is not None and found.error["type"] == "step_refused"
        assert (found.state, found.completed, found.cancelled, found.open) == ("running", 1, 1, 1)
        assert (Workflow.objects.count(), Job.objects.count()) == (1, 2)
        assert list(WorkflowStep.objects.exclude(workflow_id=made.id)) == []
        ack(take_one())
    found = get_workflow(made)
    assert (found.state, found.completed, found.cancelled) == ("failed", 2, 1)
    assert list(upkeep.drifts()) == []


def test_a_pass_of_the_reaper_ends_workflows_at_their_deadline(frozen: FrozenClock) -> None:
    made = group(step("test.job"), step("test.job")).enqueue(workflow_timeout="10s")
    frozen.advance(9)
    assert reap.reap().counts == {}
    frozen.advance(2)
    assert reap.reap().counts == {"workflow": 1}
    found = get_workflow(made)
    assert (found.state, found.cancelled, found.finished_at is not None) == ("failed", 2, True)
    assert found.error is not None
    assert (found.error["limit_seconds"], found.error["elapsed_seconds"]) == (10, 11)


def test_who_cancels_or_resumes_is_told_of_the_errors_too() -> None:
    made = group(step("test.job", retry={"max_attempts": 1}), step("test.other")).enqueue()
    (job,) = take(types=("test.job",))
    fail(job, type="shop.NoStock")
    (error,) = get_workflow(made).errors
    assert error["code"] == "shop.NoStock"
    assert list(cancel_workflow(made).errors) == [error]
    assert list(resume_workflow(made).errors) == list(get_workflow(made).errors) == []
