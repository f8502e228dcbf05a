"""New workflows, and the jobs of steps that have become due: gathered, then inserted together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import NamedTuple
from uuid import UUID

from django_ojs import clock
from django_ojs.domain import stored_workflow
from django_ojs.domain.admission import admit, copies_of
from django_ojs.domain.errors import OJSError
from django_ojs.domain.job import JobRow
from django_ojs.domain.workflow import (
    CALLBACKS,
    Call,
    Definition,
    Fan,
    Planned,
    Step,
    When,
    WorkflowKind,
    WorkflowState,
    each_call,
    plan,
)
from django_ojs.models import Workflow, WorkflowStep
from django_ojs.services.enqueue import insert
from django_ojs.services.job_defaults import queue_of, resolve_defaults, without_type_policy

BIT = 1
"""The bit of workflows in the ``hooks`` of a job."""
_ROWS = 1000


class Parent(NamedTuple):
    """The workflow that a nested one is a member of, and its place there."""

    workflow: Workflow
    step: int


class Starter:
    """Rows that are about to be inserted, in the transaction that decided on them."""

    def __init__(self, now: datetime, using: str) -> None:
        self.now = now
        self.using = using
        self.workflows: list[Workflow] = []
        self._steps: list[WorkflowStep] = []
        self._jobs: list[JobRow] = []

    def workflow(
        self,
        definition: Definition,
        *,
        parent: Parent | None = None,
        created_by: str = "",
        digest: str | None = None,
    ) -> Workflow:
        """A new workflow with its steps, and the jobs of those that wait for nothing."""
        workflow_id = definition.id or clock.new_id()
        timeout = definition.timeout_ms
        workflow = Workflow(
            id=workflow_id,
            root_id=parent.workflow.root_id if parent else workflow_id,
            parent_id=parent.workflow.id if parent else None,
            parent_step=parent.step if parent else None,
            kind=definition.kind.value,
            name=definition.name,
            state=WorkflowState.RUNNING.value,
            total=definition.total,
            open=definition.total,
            completed=0,
            failed=0,
            callbacks_open=0,
            callbacks_fired=False,
            callback_failed=False,
            runs=1,
            created_at=self.now,
            timeout_ms=timeout,
            deadline_at=None if timeout is None else self.now + timedelta(milliseconds=timeout),
            meta=dict(definition.meta),
            queues=sorted({queue_of(call.envelope) for call in each_call(definition)}),
            created_by=parent.workflow.created_by if parent else created_by,
            digest=digest,
        )
        self.workflows.append(workflow)
        self._members(workflow, definition)
        for name, call in definition.callbacks.items():
            self._steps.append(_step(workflow, CALLBACKS[name], Step(call, name)))
        return workflow

    def _members(self, workflow: Workflow, definition: Definition) -> None:
        rows: list[WorkflowStep] = []
        index = 0
        for member in definition.members:
            if isinstance(member, Fan):
                self._fan(workflow, member, index)
                index += len(member.args)
                continue
            if isinstance(member.what, Definition) or definition.is_ordered:
                rows.append(_step(workflow, index, member))
            else:
                self._jobs.append(self._job(member.what, workflow.id, index, member.key))
            index += 1
        due = set(plan((planned(row) for row in rows), {}).due)
        for row in rows:
            if row.index in due:
                self.step(workflow, row)
        self._steps += rows

    def step(self, workflow: Workflow, row: WorkflowStep) -> None:
        """Start a step: insert its job, or its workflow. The row is left to the caller to write.

        Of a workflow in which a job is refused nothing is inserted.
        """
        what = stored_workflow.load(row.call)
        row.state = WorkflowStep.States.STARTED
        row.waits_for = 0
        if isinstance(what, Definition):
            gathered = [(rows, len(rows)) for rows in (self.workflows, self._steps, self._jobs)]
            try:
                row.child_id = self.workflow(what, parent=Parent(workflow, row.index)).id
            except OJSError:
                for rows, before in gathered:
                    del rows[before:]
                raise
        else:
            job = self._job(what, workflow.id, row.index, row.key)
            row.job_id = job.id
            self._jobs.append(job)

    def add(self, workflow: Workflow, call: Call) -> JobRow:
        """One more member, whose job waits for nothing."""
        index = workflow.total
        job = self._job(call, workflow.id, index, "")
        self._jobs.append(job)
        if workflow.kind == WorkflowKind.DAG:
            row = _step(workflow, index, Step(call))
            row.state, row.job_id = WorkflowStep.States.STARTED, job.id
            self._steps.append(row)
        workflow.queues = sorted({*workflow.queues, job.queue})
        workflow.total += 1
        workflow.open += 1
        return job

    def _job(self, call: Call, workflow_id: UUID, index: int, key: str) -> JobRow:
        envelope = call.due(self.now)
        if key:
            envelope = envelope._replace(extra={**(envelope.extra or {}), "workflow_step_id": key})
        # What the job type declares is for jobs by themselves.
        envelope = without_type_policy(envelope)
        record = admit(envelope, resolve_defaults(envelope), job_id=clock.new_id(), now=self.now)
        return record._replace(hooks=record.hooks | BIT, workflow_id=workflow_id, workflow_step=index)

    def _fan(self, workflow: Workflow, fan: Fan, start: int) -> None:
        first = self._job(fan.call, workflow.id, start, "")
        self._jobs += copies_of(first, clock.new_ids(len(fan.args)), fan.args, count(start))

    def insert(self) -> None:
        """Write all of it: workflows, steps, jobs."""
        Workflow.objects.using(self.using).bulk_create(self.workflows, batch_size=_ROWS)
        WorkflowStep.objects.using(self.using).bulk_create(self._steps, batch_size=_ROWS)
        insert(self._jobs, now=self.now, using=self.using)


def _step(workflow: Workflow, index: int, step: Step) -> WorkflowStep:
    what = step.what
    return WorkflowStep(
        workflow_id=workflow.id,
        index=index,
        key=step.key or f"step-{index}",
        type=what.kind.value if isinstance(what, Definition) else what.envelope.type,
        depends_on=list(step.depends_on),
        when=step.when.value,
        waits_for=len(set(step.depends_on)),
        call=stored_workflow.dump(what),
        state=WorkflowStep.States.WAITING,
    )


def planned(row: WorkflowStep) -> Planned:
    """The step as :func:`django_ojs.domain.workflow.plan` takes it."""
    return Planned(row.index, row.depends_on, When(row.when))


def steps_of(ids: Iterable[UUID], using: str) -> Sequence[WorkflowStep]:
    """All steps of these workflows, in order."""
    rows = WorkflowStep.objects.using(using).filter(workflow_id__in=list(ids))
    return list(rows.order_by("workflow_id", "index"))
