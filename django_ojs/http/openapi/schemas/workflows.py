"""Workflows."""

from __future__ import annotations

from django_ojs.domain.workflow import WorkflowKind, WorkflowState
from django_ojs.http.openapi import fields as f

_MEMBERS = "Jobs as they are enqueued, or workflows; with `id`, `depends_on` and `when` if they wait."


class WorkflowCallbacks(f.Body):
    """Jobs that are enqueued when all members have ended."""

    on_complete = f.mapping("Whatever became of the members.")
    on_success = f.mapping("If all have completed.")
    on_failure = f.mapping("If one has not.")


class WorkflowRequest(f.Body):
    """A workflow: `steps` or `jobs`. Without `type` it follows from `depends_on` and the callbacks."""

    type = f.one_of(*WorkflowKind)
    name = f.name()
    id = f.uuid("Chosen by the client: the same id and content again is the same workflow.")
    steps = f.array(f.mapping(_MEMBERS))
    jobs = f.array(f.mapping("The same as `steps`."))
    callbacks = WorkflowCallbacks
    options = f.mapping("Options of every job that does not have its own.")
    workflow_timeout = f.duration("One deadline over all, from now on.")
    workflow_timeout_ms = f.integer(minimum=0)
    meta = f.mapping()


class WorkflowStepComponent(f.Component):
    """A member or a callback; `pending` until it starts, then as its job or workflow."""

    needed = frozenset({"id", "index", "type", "state", "job_id", "depends_on"})
    id = f.text()
    index = f.integer()
    type = f.text()
    state = f.text()
    job_id = f.nullable()
    workflow_id = f.uuid("Of a nested workflow.")
    depends_on = f.array(f.text())
    started_at = f.timestamp()
    completed_at = f.timestamp()
    result = f.mapping("If it is an object.")


class WorkflowComponent(f.Component):
    """A workflow without its steps."""

    needed = frozenset(
        {"id", "type", "name", "state", "created_at", "started_at", "steps_total", "steps_completed"}
        | {"jobs_total", "jobs_completed", "jobs_failed", "jobs_cancelled", "failed_count", "runs"}
        | {"meta", "metadata"}
    )
    id = f.uuid()
    type = f.one_of(*WorkflowKind)
    name = f.text()
    state = f.one_of(*WorkflowState)
    created_at = f.timestamp()
    started_at = f.timestamp()
    completed_at = f.timestamp()
    cancelled_at = f.timestamp()
    deadline_at = f.timestamp()
    steps_total = f.count()
    steps_completed = f.count()
    jobs_total = f.count()
    jobs_completed = f.count()
    jobs_failed = f.count()
    jobs_cancelled = f.count()
    failed_count = f.count()
    runs = f.count()
    workflow_timeout_ms = f.count()
    parent_id = f.uuid()
    parent_step = f.count()
    error = f.mapping("Of the workflow itself, such as `workflow_timeout`.")
    meta = f.mapping()
    metadata = f.mapping()


class WorkflowAnswer(WorkflowComponent):
    """A workflow with its first 1,000 steps; the same fields under `workflow`."""

    needed = (WorkflowComponent.needed or frozenset()) | {
        *("steps", "callbacks", "errors", "failed_job_ids", "workflow"),
    }
    steps = f.array(WorkflowStepComponent)
    steps_truncated = f.boolean()
    callbacks = f.mapping("By name: each as a step.")
    errors = f.array(f.mapping("Of failed jobs: `job_id`, `step_index`, `code`, `message`, `attempt`."))
    failed_job_ids = f.array(f.uuid())
    failed_step_index = f.count()
    steps_cancelled = f.count()
    steps_already_completed = f.count()
    deduplicated = f.boolean()
    warnings = f.array(f.Warned)
    workflow = f.mapping()


WorkflowPage = f.page("WorkflowPage", "workflows", WorkflowComponent)


class MemberProgress(f.Component):
    """How far a member is; `null` if it has not told."""

    id = f.text()
    job_id = f.nullable()
    type = f.text()
    state = f.text()
    progress = f.nullable("number")


class WorkflowProgress(f.Component):
    """How far a workflow is, from 0 to 1: the average of its members, of a batch the share of those
    that have completed.
    """

    needed = frozenset(
        {"workflow_id", "type", "state", "progress", "steps", "total", "open", "completed", "failed"}
        | {"cancelled"}
    )
    type = f.one_of(*WorkflowKind)
    steps = f.array(MemberProgress, "The first 1,000.")
    steps_truncated = f.boolean()
    workflow_id = f.uuid()
    state = f.one_of(*WorkflowState)
    progress = f.number()
    total = f.count()
    open = f.count()
    completed = f.count()
    failed = f.count()
    cancelled = f.count()


class WorkflowResults(f.Component):
    """Results of members in their order, `null` for one without."""

    workflow_id = f.uuid()
    results = f.array(f.mapping("`index` and `result`."))
    next_after = f.nullable("integer", "The next `after`; `null` at the end.")
