"""Workflows as clients receive them: flat, and the same under ``workflow``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_ojs.domain.states import State
from django_ojs.domain.workflow import CALLBACK_NAMES, WorkflowKind, WorkflowState
from django_ojs.http.responses import JsonObject, moment
from django_ojs.models import Workflow
from django_ojs.services.workflows.read import MOST_MEMBERS, Member

_FAILED = frozenset({State.DISCARDED.value, WorkflowState.FAILED.value})


def summary(row: Workflow) -> JsonObject:
    """A workflow without its steps."""
    ended = moment(row.finished_at)
    was_cancelled = row.state == WorkflowState.CANCELLED
    shape: JsonObject = {
        "id": str(row.id),
        "type": row.kind,
        "name": row.name,
        "state": row.state,
        "created_at": moment(row.created_at),
        "started_at": moment(row.created_at),
        "completed_at": None if was_cancelled else ended,
        "cancelled_at": moment(row.cancel_requested_at) if was_cancelled else None,
        "deadline_at": moment(row.deadline_at),
        "steps_total": row.total,
        "steps_completed": row.completed,
        "jobs_total": row.total,
        "jobs_completed": row.completed,
        "jobs_failed": row.failed,
        "failed_count": row.failed,
        "jobs_cancelled": row.cancelled,
        "runs": row.runs,
        "meta": row.meta,
        "metadata": {
            "created_at": moment(row.created_at),
            "started_at": moment(row.created_at),
            "job_count": row.total,
            "completed_count": row.completed,
            "failed_count": row.failed,
            **({"completed_at": ended} if ended else {}),
        },
    }
    if row.timeout_ms is not None:
        shape["workflow_timeout_ms"] = row.timeout_ms
    if row.parent_id is not None:
        shape |= {"parent_id": str(row.parent_id), "parent_step": row.parent_step}
    if row.error is not None:
        shape["error"] = row.error
    return {key: value for key, value in shape.items() if value is not None}


def workflow(
    row: Workflow,
    members: Sequence[Member],
    results: Mapping[int, Any],
    errors: Sequence[Mapping[str, Any]],
    **more: Any,
) -> JsonObject:
    """A workflow with its steps, their results by index, callbacks and errors."""
    keys = {member.index: member.key for member in members}
    failed = _failed(row, members)
    shape = {
        **summary(row),
        "steps": [
            _step(member, keys, results.get(member.index)) for member in members if member.index >= 0
        ],
        "callbacks": {
            CALLBACK_NAMES[member.index]: _step(member, keys) for member in members if member.index < 0
        },
        "errors": [_error(error) for error in errors],
        "failed_job_ids": [error["job_id"] for error in errors],
        **more,
    }
    if row.total > MOST_MEMBERS:
        shape["steps_truncated"] = True
    if failed and row.kind == WorkflowKind.CHAIN:
        shape["failed_step_index"] = failed[0].index
    return {**shape, "workflow": shape}


def _failed(row: Workflow, members: Sequence[Member]) -> list[Member]:
    """The members that have failed; without one, what began and was cancelled by itself."""
    steps = [member for member in members if member.index >= 0]
    failed = [member for member in steps if member.state in _FAILED]
    if failed or row.state != WorkflowState.FAILED or row.error is not None:
        return failed
    return [one for one in steps if one.state == State.CANCELLED and (one.job_id or one.workflow_id)]


def _error(error: Mapping[str, Any]) -> JsonObject:
    """The error of a job, with the callback that it is (OJS workflows 9.5)."""
    name = CALLBACK_NAMES.get(error["step_index"])
    return {**error, "callback": name} if name else dict(error)


def _step(member: Member, keys: Mapping[int, str], result: Any = None) -> JsonObject:
    shape: JsonObject = {
        "id": member.key,
        "index": member.index,
        "type": member.type,
        "state": member.state,
        "job_id": None if member.job_id is None else str(member.job_id),
        "depends_on": [keys.get(index, f"step-{index}") for index in member.depends_on],
    }
    if member.workflow_id is not None:
        shape["workflow_id"] = str(member.workflow_id)
    if member.started_at is not None:
        shape["started_at"] = moment(member.started_at)
    if member.finished_at is not None:
        shape["completed_at"] = moment(member.finished_at)
    # One SDK reads an object or nothing.
    if isinstance(result, dict):
        shape["result"] = result
    return shape


def progress(row: Workflow, members: Sequence[Member], fraction: float) -> JsonObject:
    """How far a workflow is, and each of its first members (OJS progress 9.2)."""
    shape: JsonObject = {
        "workflow_id": str(row.id),
        "type": row.kind,
        "state": row.state,
        "progress": round(fraction, 6),
        "steps": [_progress(member) for member in members if member.index >= 0],
        "total": row.total,
        "open": row.open,
        "completed": row.completed,
        "failed": row.failed,
        "cancelled": row.cancelled,
    }
    if row.total > MOST_MEMBERS:
        shape["steps_truncated"] = True
    return shape


def _progress(member: Member) -> JsonObject:
    done = 1.0 if member.state == State.COMPLETED else member.progress
    return {
        "id": member.key,
        "job_id": None if member.job_id is None else str(member.job_id),
        "type": member.type,
        "state": member.state,
        "progress": done,
    }
