"""The rows of all workflows at the end of a soak, for the judgement."""

from __future__ import annotations

from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services.workflows.starting import BIT
from tests.soak.workflow_oracle import Counts, MemberRow, StepRow, WorkflowRow


def read() -> tuple[list[WorkflowRow], list[MemberRow], list[StepRow]]:
    """Workflows, their jobs, their steps."""
    workflows = [
        WorkflowRow(
            str(row.id),
            str(row.parent_id or ""),
            row.kind,
            row.state,
            row.parent_step,
            row.runs,
            Counts(row.total, row.open, row.completed, row.failed),
            row.callbacks_open,
            row.finished_at,
            row.error,
        )
        for row in Workflow.objects.iterator()
    ]
    members = [
        MemberRow(
            str(row.workflow_id),
            str(row.id),
            row.state,
            row.workflow_step,
            bool(row.hooks & BIT),
        )
        for row in Job.objects.filter(workflow_step__isnull=False).iterator()
        if row.workflow_step is not None
    ]
    steps = [
        StepRow(
            str(row.workflow_id),
            row.state,
            row.when,
            str(row.child_id or ""),
            row.index,
            row.depends_on,
        )
        for row in WorkflowStep.objects.iterator()
    ]
    return workflows, members, steps
