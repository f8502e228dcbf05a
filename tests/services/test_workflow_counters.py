"""What ``ojs check`` says of the counters of workflows whose members have other hooks too."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_ojs import WorkflowRecord, batch, get_workflow, group, resume_workflow, step
from django_ojs.api import retry
from django_ojs.models import Job, Workflow
from django_ojs.services.rate_limits import policies
from django_ojs.services.workflows import upkeep

from .support import ack, fail, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ONE = {"key": "k", "concurrency": 1}
ONCE = {"max_attempts": 1}
LIMITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of the job": ({"rate_limit": ONE}, {}),
    "of the queue": ({}, {"QUEUES": {"default": {"rate_limit": {"concurrency": 1}}}}),
}


def assert_right(made: WorkflowRecord) -> None:
    """The check finds nothing, and a repair changes nothing."""
    before = Workflow.objects.filter(pk=made.id).values().get()
    assert [str(drift) for drift in upkeep.drifts()] == []
    assert upkeep.repair(made.id, using="default") is None
    assert Workflow.objects.filter(pk=made.id).values().get() == before


@pytest.mark.parametrize("limit", LIMITS)
def test_limited_members_count(limit: str) -> None:
    options, settings = LIMITS[limit]
    with override_settings(OJS=settings):
        made = group(
            step("test.job", **options), step("test.job", **options), on_success=step("test.job")
        ).enqueue()
        assert_right(made)
        for left in (2, 1):
            (job,) = take(5)
            assert get_workflow(made).open == left
            assert_right(made)
            ack(job)
        assert counters(made).callbacks_open == 1
        assert_right(made)
        ack(*take(5))
    assert get_workflow(made).state == "completed"


def test_counters_of_limited_members_are_mended() -> None:
    limited = step("test.job", rate_limit=ONE)
    made = group(limited, limited, step("test.job")).enqueue()
    ack(*take(1))
    Workflow.objects.filter(pk=made.id).update(open=3, completed=0)
    (drift,) = upkeep.drifts()
    assert upkeep.repair(made.id, using="default") == drift
    found = get_workflow(made)
    assert (found.open, found.completed, found.state) == (2, 1, "running")
    assert_right(made)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limited_member_that_is_retried_too_late_runs_by_itself(limit: str) -> None:
    options, settings = LIMITS[limit]
    with override_settings(OJS=settings):
        made = batch(step("test.job", retry=ONCE, **options), on_failure=step("test.told")).enqueue()
        (job,) = take(1)
        fail(job)
        retry(job.id)
        assert Job.objects.get(pk=job.id).hooks & policies.LIMITED
        assert_right(made)
        ack(*take(1))
        found = counters(made)
        assert (found.open, found.completed, found.failed, found.callbacks_open) == (0, 0, 1, 1)
        assert_right(made)


def test_a_limited_callback_that_was_given_up_is_not_counted() -> None:
    told = step("test.told", rate_limit=ONE, retry=ONCE)
    made = group(step("test.job", retry=ONCE), on_complete=told).enqueue()
    fail(*take(1))
    assert_right(made)
    (callback,) = take(1, types=("test.told",))
    fail(callback)
    resume_workflow(made)
    retry(callback.id)
    assert counters(made).callbacks_open == 0
    assert_right(made)


def counters(made: WorkflowRecord) -> Workflow:
    return Workflow.objects.get(pk=made.id)
