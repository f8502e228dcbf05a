"""What events of workflows say beside the counters: which step it was, its duration, why it failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from django_ojs import conf
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobEvent
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import elapsed
from django_ojs.models import Job, WorkflowStep
from django_ojs.services.workflows.failures import CANCELLED, error_of, first_failure, short
from django_ojs.signals import by_kind

_OF_STEPS = frozenset({Kind.WORKFLOW_STEP_COMPLETED.value, Kind.WORKFLOW_STEP_FAILED.value})
_COLUMNS = (
    "workflow_id",
    "workflow_step",
    "type",
    "extra__workflow_step_id",
    "started_at",
    "state",
    "error",
)


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
    jobs = Job.objects.using(using).filter(of_jobs).values_list(*_COLUMNS)
    for workflow_id, index, kind, key, began, state, error in jobs:
        data = {"step_id": key or f"step-{index}", "step_type": kind}
        if began is not None:
            data["duration_ms"] = elapsed(began, now)
        if state == State.CANCELLED:
            data["error"] = dict(CANCELLED)
        elif error is not None:
            data["error"] = short(error)
        found[workflow_id, index] = data
    for workflow_id, index in {_place(event) for event in events} - found.keys():
        left |= Q(workflow_id=workflow_id, index=index)
    if left:
        # Nested workflows, and jobs that were deleted.
        rows = WorkflowStep.objects.using(using).filter(left)
        failed = {_place(event) for event in events if event.kind == Kind.WORKFLOW_STEP_FAILED}
        columns = ("workflow_id", "index", "key", "type", "child_id")
        for workflow_id, index, key, kind, child_id in rows.values_list(*columns):
            data = {"step_id": key, "step_type": kind}
            if child_id is not None and (workflow_id, index) in failed:
                data["error"] = dict(error_of(child_id, using=using))
            found[workflow_id, index] = data
    return found


def _failure(workflow_id: UUID, using: str) -> dict[str, Any]:
    """The member that it has failed by, and why."""
    failure = first_failure(workflow_id, using=using)
    if failure is None:
        return {}
    return {
        "failed_step_id": failure.name,
        "failed_step_type": failure.type,
        "error": dict(failure.error),
    }
