"""Which member a workflow has failed by, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.states import State
from django_ojs.domain.workflow import CALLBACK_NAMES, WorkflowState
from django_ojs.models import Job, Workflow, WorkflowStep

CANCELLED: Mapping[str, Any] = {"code": "job_cancelled", "message": "the job was cancelled"}
"""Why a member has failed that was cancelled by itself: it has no error of its own, or an older one."""


class FailedMember(NamedTuple):
    """A member or a callback: what it is called, the type of its job or workflow, and its error."""

    name: str
    type: str
    error: Mapping[str, Any]


def short(error: Mapping[str, Any] | None) -> dict[str, Any]:
    """The code and the message of a stored error."""
    error = error or {}
    return {
        "code": error.get("code") or error.get("type") or "unknown",
        "message": error.get("message", ""),
    }


def first_failure(workflow_id: UUID, *, using: str) -> FailedMember | None:
    """The first job that has failed, a callback before members; else a nested workflow, else a job that
    was cancelled by itself, else a step that was refused.
    """
    jobs = Job.objects.using(using).filter(workflow_id=workflow_id).order_by("workflow_step")
    columns = ("workflow_step", "extra__workflow_step_id", "type", "error")
    for index, key, kind, error in jobs.filter(state=State.DISCARDED.value).values_list(*columns)[:1]:
        return FailedMember(_name(index, key), kind, short(error))
    steps = WorkflowStep.objects.using(using).filter(workflow_id=workflow_id).order_by("index")
    inner = Workflow.objects.using(using).filter(parent_id=workflow_id).order_by("parent_step")
    failed = inner.filter(state__in=(WorkflowState.FAILED.value, WorkflowState.CANCELLED.value))
    for child_id, index, kind in failed.values_list("pk", "parent_step", "kind")[:1]:
        assert index is not None
        key = steps.filter(index=index).values_list("key", flat=True).first()
        return FailedMember(_name(index, key), kind, error_of(child_id, using=using))
    for index, key, kind, _ in jobs.filter(state=State.CANCELLED.value).values_list(*columns)[:1]:
        return FailedMember(_name(index, key), kind, CANCELLED)
    for index, key, kind in steps.filter(state=WorkflowStep.States.CANCELLED).values_list(
        "index", "key", "type"
    )[:1]:
        error = Workflow.objects.using(using).filter(pk=workflow_id).values_list("error", flat=True)
        return FailedMember(_name(index, key), kind, short(error.first()))
    return None


def error_of(workflow_id: UUID, *, using: str) -> Mapping[str, Any]:
    """Why a workflow has not completed: its own error, or that of its first failure."""
    row = Workflow.objects.using(using).filter(pk=workflow_id).values_list("state", "error").first()
    if row is None:
        return short(None)
    state, error = row
    if error is None and state == WorkflowState.CANCELLED:
        return {"code": "workflow_cancelled", "message": "the workflow was cancelled"}
    found = None if error is not None else first_failure(workflow_id, using=using)
    return short(error) if found is None else found.error


def _name(index: int, key: str | None) -> str:
    return CALLBACK_NAMES.get(index) or key or f"step-{index}"
