"""What people and clients see of a workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Sum

from django_ojs import conf
from django_ojs.domain.states import State
from django_ojs.domain.workflow import WorkflowKind, WorkflowState
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services.workflows.failures import CANCELLED, short
from django_ojs.services.workflows.operate import get

MOST_ERRORS = 100


@dataclass(frozen=True, slots=True)
class WorkflowRecord:
    """A workflow as it is stored.

    Of ``total`` members ``open`` have not ended; ``failed`` were discarded, ``cancelled`` were
    cancelled or never started. ``error`` is that of the workflow itself (``workflow_timeout``),
    ``errors`` are those of its failed jobs (if none has failed, of those cancelled by themselves, which
    is why it has), at most 100, each with ``job_id``, ``code``, ``message`` and ``attempt``.
    """

    id: UUID
    kind: str
    name: str
    state: str
    total: int
    open: int
    completed: int
    failed: int
    cancelled: int
    runs: int
    created_at: datetime
    deadline_at: datetime | None
    finished_at: datetime | None
    meta: Mapping[str, Any]
    error: Mapping[str, Any] | None
    errors: Sequence[Mapping[str, Any]] = ()


def record(row: Workflow, errors: Sequence[Mapping[str, Any]] = ()) -> WorkflowRecord:
    """The record of a row."""
    return WorkflowRecord(
        id=row.id,
        kind=row.kind,
        name=row.name,
        state=row.state,
        total=row.total,
        open=row.open,
        completed=row.completed,
        failed=row.failed,
        cancelled=row.cancelled,
        runs=row.runs,
        created_at=row.created_at,
        deadline_at=row.deadline_at,
        finished_at=row.finished_at,
        meta=row.meta,
        error=row.error,
        errors=errors,
    )


def find(workflow_id: UUID, *, using: str | None = None) -> WorkflowRecord:
    """A workflow with the errors of its jobs. Raises :class:`NotFound`."""
    using = using or conf.current().database
    row = get(workflow_id, using=using)
    return record(row, errors_of(row, using=using))


def errors_of(row: Workflow, *, using: str) -> list[dict[str, Any]]:
    """The errors of failed members and callbacks, in their order (OJS workflows 9.6).

    Of a workflow that has failed because a job was cancelled by itself, that of this job.
    """
    jobs = Job.objects.using(using).filter(workflow_id=row.id).order_by("workflow_step")
    if row.failed or row.callback_failed:
        failed = _errors(jobs.filter(state=State.DISCARDED.value))
        if failed:
            return failed
    if row.state != WorkflowState.FAILED or row.error is not None:
        return []
    return _errors(jobs.filter(state=State.CANCELLED.value))


def _errors(jobs: QuerySet[Job]) -> list[dict[str, Any]]:
    columns = ("pk", "state", "error", "attempt", "workflow_step")
    return [
        {
            "job_id": str(job_id),
            "step_index": index,
            **(CANCELLED if state == State.CANCELLED else short(error)),
            "attempt": attempt,
        }
        for job_id, state, error, attempt, index in jobs.values_list(*columns)[:MOST_ERRORS]
    ]


@dataclass(frozen=True, slots=True)
class Member:
    """A member or a callback of a workflow, as people see it.

    Before it starts its ``state`` is ``pending``, then that of its job or workflow.
    """

    index: int
    key: str
    type: str
    state: str
    depends_on: Sequence[int]
    job_id: UUID | None = None
    workflow_id: UUID | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: float | None = None
    enqueued_at: datetime | None = None
    scheduled_at: datetime | None = None


PENDING = "pending"
MOST_MEMBERS = 1000


def members(row: Workflow, *, most: int = MOST_MEMBERS, using: str) -> list[Member]:
    """The first members in their order, then the callbacks; purged ones are missing."""
    rows = WorkflowStep.objects.using(using).filter(workflow_id=row.id, index__lt=most)
    steps = {step.index: step for step in rows.defer("call")}
    jobs = Job.objects.using(using).filter(workflow_id=row.id, workflow_step__lt=most)
    fields = ("workflow_step", "extra__workflow_step_id", "pk", "type", "state")
    times = ("started_at", "finished_at", "progress", "enqueued_at", "scheduled_at")
    found: dict[int, Member] = {}
    current = {step.job_id for step in steps.values()}
    for index, name, job_id, kind, state, *more in jobs.values_list(*fields, *times):
        step = steps.get(index)
        if step is not None and job_id not in current:
            # A callback of an earlier run.
            continue
        key = step.key if step else name or f"step-{index}"
        depends = step.depends_on if step else ()
        found[index] = Member(index, key, kind, state, depends, job_id, None, *more)
    inner = Workflow.objects.using(using).filter(root_id=row.root_id, parent_id=row.id)
    children = {one.id: one for one in inner.filter(parent_step__lt=most)}
    for index, step in steps.items():
        if index not in found:
            found[index] = _unstarted(step, children, ended=row.finished_at is not None)
    return [found[index] for index in sorted(found, key=lambda index: (index < 0, abs(index)))]


def progress(row: Workflow, known: Sequence[Member], *, using: str) -> float:
    """How far a workflow is, from 0 to 1 (OJS progress 9.1): the average of its members, of a batch the
    share of those that have completed. ``known`` are its first members.
    """
    done = float(row.completed)
    if row.kind != WorkflowKind.BATCH:
        jobs = Job.objects.using(using).filter(workflow_id=row.id, workflow_step__gte=0)
        unfinished = jobs.exclude(state=State.COMPLETED.value).aggregate(total=Sum("progress"))
        done += unfinished["total"] or 0.0
        inner = (one for one in known if one.workflow_id is not None and one.state != State.COMPLETED)
        done += sum(one.progress or 0.0 for one in inner)
    return min(1.0, done / row.total)


def _unstarted(step: WorkflowStep, children: Mapping[UUID, Workflow], *, ended: bool) -> Member:
    """A step without a job: it waits, will not run, is a workflow, or its job was purged."""
    child = None if step.child_id is None else children.get(step.child_id)
    if child is not None:
        return Member(
            step.index,
            step.key,
            step.type,
            child.state,
            step.depends_on,
            workflow_id=child.id,
            started_at=child.created_at,
            finished_at=child.finished_at,
            progress=child.completed / child.total,
        )
    waits = step.state == WorkflowStep.States.WAITING and not ended
    state = PENDING if waits else State.CANCELLED.value
    return Member(step.index, step.key, step.type, state, step.depends_on)


def fresh(row: Workflow) -> Workflow:
    """The workflow as it was when it was created."""
    row.state, row.open, row.runs = WorkflowState.RUNNING.value, row.total, 1
    row.completed = row.failed = 0
    row.error = row.finished_at = row.cancel_requested_at = None
    row.deadline_at = None
    if row.timeout_ms is not None:
        row.deadline_at = row.created_at + timedelta(milliseconds=row.timeout_ms)
    return row
