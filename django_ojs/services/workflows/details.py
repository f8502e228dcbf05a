"""What events of workflows say beside the counters: which step it was, its duration, why it failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from django_ojs import conf
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobEvent
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import elapsed
from django_ojs.domain.workflow import CALLBACK_NAMES
from django_ojs.models import Job, WorkflowStep
from django_ojs.signals import by_kind

_OF_STEPS = frozenset({Kind.WORKFLOW_STEP_COMPLETED.value, Kind.WORKFLOW_STEP_FAILED.value})
_COLUMNS = ("workflow_id", "workflow_step", "type", "extra__workflow_step_id", "started_at", "error")


def detailed(events: Sequence[JobEvent], *, now: datetime, using: str) -> list[JobEvent]:
    """The events with their details (OJS events 4.4), which are read for those that somebody gets."""
    stored = conf.current().stored_events
    kinds = {event.kind for event in events}
    told = {kind for kind in kinds if kind in stored or by_kind[kind].receivers}
    steps = _steps([event for event in events if event.kind in told & _OF_STEPS], now, using)
    made = []
    for event in events:
        if event.kind in _OF_STEPS:
            more = steps.get(_place(event), {})
        elif event.kind in told & {Kind.WORKFLOW_FAILED} and "error" not in event.payload:
            more = _failure(UUID(event.payload["workflow_id"]), using)
        else:
            more = {}
        made.append(event._replace(payload={**event.payload, **more}) if more else event)
    return made


def _place(event: JobEvent) -> tuple[UUID, int]:
    return UUID(event.payload["workflow_id"]), event.payload["step_index"]


def _steps(
    events: Sequence[JobEvent], now: datetime, using: str
) -> dict[tuple[UUID, int], dict[str, Any]]:
    """By workflow and index: what the steps are called, and how long they took."""
    if not events:
        return {}
    found: dict[tuple[UUID, int], dict[str, Any]] = {}
    of_jobs, left = Q(), Q()
    for workflow_id, index in map(_place, events):
        of_jobs |= Q(workflow_id=workflow_id, workflow_step=index)
    for workflow_id, index, kind, key, began, error in _jobs(using).filter(of_jobs):
        data = {"step_id": key or f"step-{index}", "step_type": kind}
        if began is not None:
            data["duration_ms"] = elapsed(began, now)
        if error is not None:
            data["error"] = _short(error)
        found[workflow_id, index] = data
    for workflow_id, index in {_place(event) for event in events} - found.keys():
        left |= Q(workflow_id=workflow_id, index=index)
    if left:
        # Nested workflows, and jobs that were deleted.
        rows = WorkflowStep.objects.using(using).filter(left)
        for workflow_id, index, key, kind in rows.values_list("workflow_id", "index", "key", "type"):
            found[workflow_id, index] = {"step_id": key, "step_type": kind}
    return found


def _failure(workflow_id: UUID, using: str) -> dict[str, Any]:
    """The first job that has failed, a callback before members, and why."""
    failed = _jobs(using).filter(workflow_id=workflow_id, state=State.DISCARDED.value)
    for _, index, kind, key, _, error in failed.order_by("workflow_step")[:1]:
        name = CALLBACK_NAMES.get(index) or key or f"step-{index}"
        return {"failed_step_id": name, "failed_step_type": kind, "error": _short(error or {})}
    return {}


def _jobs(using: str) -> QuerySet[Job, Any]:
    return Job.objects.using(using).values_list(*_COLUMNS)


def _short(error: dict[str, Any]) -> dict[str, Any]:
    code = error.get("code") or error.get("type") or "unknown"
    return {"code": code, "message": error.get("message", "")}
