"""``ojs workflow`` and what ``ojs check`` says of workflows."""

from __future__ import annotations

import json
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ojs import chain, get_workflow, group, step
from django_ojs.models import AuditEntry, Workflow
from tests.management.test_commands import run
from tests.services.support import ack, fail, take

pytestmark = pytest.mark.usefixtures("ojs_db")


@pytest.mark.slow
def test_the_list_is_newest_first_and_can_be_narrowed() -> None:
    first = chain(step("test.job"), name="first").enqueue()
    second = group(step("test.job"), chain(step("test.job")), name="second").enqueue()
    listed = json.loads(run("ojs", "workflow", "list", "--format", "json"))
    assert [row["id"] for row in listed] == [str(second.id), str(first.id)], "nested ones are left out"
    assert "second" not in run("ojs", "workflow", "list", "--name", "first")
    assert "no workflows" in run("ojs", "workflow", "list", "--state", "failed")
    assert len(run("ojs", "workflow", "list", "--limit", "1").splitlines()) == 2
    with pytest.raises(CommandError, match="--limit: must be from 1 to 1000"):
        call_command("ojs", "workflow", "list", "--limit", "0")


def test_show_says_what_has_happened_and_what_will_not_run() -> None:
    made = chain(
        step("test.job"), step("test.job", retry={"max_attempts": 1}), step("test.job")
    ).enqueue()
    ack(take(1)[0])
    fail(take(1)[0])
    shown = run("ojs", "workflow", "show", str(made.id))
    assert "1 of 3 steps done; step-1 failed at attempt 1: " in shown
    assert "; 1 did not run" in shown
    assert "None" not in shown
    value = json.loads(run("ojs", "workflow", "show", str(made.id), "--format", "json"))
    assert [one["state"] for one in value["steps"]] == ["completed", "discarded", "cancelled"]
    assert (value["state"], value["errors"][0]["step_index"]) == ("failed", 1)


def test_cancel_and_resume_leave_their_reason_in_the_audit() -> None:
    made = group(step("test.job"), step("test.job")).enqueue()
    told = run("ojs", "workflow", "cancel", str(made.id), "--reason", "not today")
    assert "is cancelled: 0 completed, 0 failed, 2 cancelled, 0 open" in told
    assert "is running" in run("ojs", "workflow", "resume", str(made.id), "--reason", "now")
    entries = AuditEntry.objects.filter(target_type="workflow", target_id=str(made.id)).order_by("pk")
    assert [(entry.action, entry.reason) for entry in entries] == [
        ("workflow.cancelled", "not today"),
        ("workflow.resumed", "now"),
    ]
    with pytest.raises(CommandError, match="has not ended"):
        call_command("ojs", "workflow", "resume", str(made.id))
    with pytest.raises(CommandError, match="ID: 'x' is not a workflow id"):
        call_command("ojs", "workflow", "show", "x")


@pytest.mark.parametrize("more", [(), ("--format", "json")])
def test_of_several_those_done_before_one_that_fails_are_said(more: tuple[str, ...]) -> None:
    made, other = (group(step("test.job")).enqueue() for _ in range(2))
    told = StringIO()
    words = ("workflow", "cancel", str(made.id), str(UUID(int=0)), str(other.id), *more)
    with pytest.raises(CommandError, match="no workflow 00000000"):
        call_command("ojs", *words, stdout=told)
    assert (get_workflow(made.id).state, get_workflow(other.id).state) == ("cancelled", "running")
    assert str(made.id) in told.getvalue()
    assert str(other.id) not in told.getvalue()


@pytest.mark.slow
def test_check_finds_wrong_counters_and_repairs_them() -> None:
    made = group(step("test.job"), step("test.job")).enqueue()
    ack(take(1)[0])
    assert "invariants hold" in run("ojs", "check")
    Workflow.objects.filter(pk=made.id).update(open=5, completed=0)
    with pytest.raises(SystemExit) as ended:
        call_command("ojs", "check")
    assert ended.value.code == 3
    told = run("ojs", "check", "--repair")
    assert f"workflow {made.id}: open 5, by the rows 1; completed 0, by the rows 1 (repaired)" in told
    found = get_workflow(made)
    assert (found.open, found.completed) == (1, 1)
    assert "invariants hold" in run("ojs", "check")


def test_a_repair_brings_a_stuck_workflow_to_its_end() -> None:
    made = group(step("test.job"), on_complete=step("test.job")).enqueue()
    Workflow.objects.filter(pk=made.id).update(open=2)
    ack(take(1)[0])
    assert get_workflow(made).open == 1
    run("ojs", "check", "--repair")
    (callback,) = take(1)
    assert callback.workflow_step == -1
    ack(callback)
    assert get_workflow(made).state == "completed"
