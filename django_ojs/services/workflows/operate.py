"""What people, clients and deadlines do to workflows: cancel, expire, resume, add a member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from django_ojs import clock, conf, hooks
from django_ojs.domain import operations
from django_ojs.domain.errors import Conflict, LeaseLost, NotFound
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobRow
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import LIVE, State, Trigger
from django_ojs.domain.workflow import MAX_MEMBERS, Call, WorkflowKind, WorkflowState
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services import databases
from django_ojs.services.commit import commit
from django_ojs.services.job_defaults import queue_of
from django_ojs.services.unique import Revival
from django_ojs.services.verbs import API
from django_ojs.services.workflows.advance import detach
from django_ojs.services.workflows.starting import BIT
from django_ojs.services.workflows.tree import Tree
from django_ojs.store import locking
from django_ojs.store.contention import in_transaction

PAGE = 500
"""The most members that are cancelled in one transaction."""
_RUNNING, _FAILED = WorkflowState.RUNNING.value, WorkflowState.FAILED.value
_CANCELLED = WorkflowState.CANCELLED.value
_WAITING = WorkflowStep.States.WAITING
REAPER = Actor("reaper")


class Pass(NamedTuple):
    """What came of cancelling members of stopped workflows."""

    cancelled: int
    """How many jobs."""
    held: bool
    """Whether some were left because another transaction holds them."""
    late: bool = False
    """Whether time was up before all had been looked at: there is more to cancel."""


def no_workflow(workflow_id: UUID) -> NotFound:
    """The error for a workflow that does not exist."""
    return NotFound(
        f"no workflow {workflow_id}", resource_type="workflow", resource_id=str(workflow_id)
    )


def get(workflow_id: UUID, *, using: str | None = None) -> Workflow:
    """The row of a workflow. Raises :class:`NotFound`."""
    found = Workflow.objects.using(using or conf.current().database).filter(pk=workflow_id).first()
    if found is None:
        raise no_workflow(workflow_id)
    return found


def cancel(
    workflow_id: UUID,
    *,
    actor: Actor = API,
    seconds: float | None = None,
    using: str | None = None,
) -> Workflow:
    """Cancel a running workflow and all its members; its callbacks do not run.

    In two phases: the workflow is cancelled, so that nothing more of it starts, then its jobs page by
    page. If this process dies in between, or ``seconds`` have passed, the ``workflows`` maintenance
    task does the rest. Raises :class:`NotFound`, and :class:`Conflict` for a workflow that has ended.
    """
    using = using or conf.current().database
    stop(workflow_id, actor=actor, using=using)
    until = None if seconds is None else clock.boottime() + seconds
    cancel_members(workflow_id, actor=actor, until=until, skip_locked=False, using=using)
    return get(workflow_id, using=using)


@in_transaction
def stop(
    workflow_id: UUID,
    *,
    actor: Actor,
    timed_out: bool = False,
    using: str = "",
) -> bool:
    """The first phase: nothing more of the workflow starts. With ``timed_out``, if its deadline has
    passed: it has failed, and the callbacks for that run when its members have ended.
    """
    # A deadline waits for nobody: what another transaction holds is for the next pass.
    tree = Tree.lock([workflow_id], skip_locked=timed_out, using=using)
    now, workflow = tree.now, tree.known(workflow_id)
    if workflow is None:
        if timed_out:
            return False
        raise no_workflow(workflow_id)
    if timed_out and (workflow.deadline_at is None or workflow.deadline_at > now):
        return False
    if workflow.state != _RUNNING:
        raise Conflict(
            f"a workflow that is {workflow.state} cannot be cancelled",
            workflow_id=str(workflow_id),
            current_state=workflow.state,
            expected_state=_RUNNING,
        )
    below = _below(tree, workflow)
    error = _timeout_error(workflow, now) if timed_out else None
    for one in below:
        one.state, one.cancel_requested_at, one.deadline_at = _CANCELLED, now, None
        tree.changed(one)
    if timed_out:
        workflow.state = _FAILED
        workflow.error = error
        tree.event(Kind.WORKFLOW_FAILED, workflow, error=workflow.error)
    else:
        tree.event(Kind.WORKFLOW_CANCELLED, workflow, actor)
    waiting = WorkflowStep.objects.using(using).filter(
        workflow_id__in=[one.id for one in below], state=_WAITING, index__gte=0
    )
    lost: dict[UUID, int] = defaultdict(int)
    for owner in waiting.values_list("workflow_id", flat=True):
        lost[owner] += 1
    waiting.update(state=WorkflowStep.States.CANCELLED)
    # The innermost first: what ends is a member of the next one.
    for one in reversed(below):
        one.open -= lost[one.id]
        tree.advance(one)
    tree.write()
    return True


def _below(tree: Tree, workflow: Workflow) -> list[Workflow]:
    """The workflow and the running ones inside it, outer ones first."""
    rows = Workflow.objects.using(tree.using)
    tree.add(rows.filter(root_id=workflow.root_id, state=_RUNNING).exclude(pk=workflow.id))
    inner: dict[UUID | None, list[Workflow]] = defaultdict(list)
    for one in tree.all():
        if one.state == _RUNNING:
            inner[one.parent_id].append(one)
    found = [workflow]
    for one in found:
        found += inner[one.id]
    return found


def _timeout_error(workflow: Workflow, now: datetime) -> dict[str, object]:
    assert workflow.timeout_ms is not None and workflow.deadline_at is not None
    late_ms = (now - workflow.deadline_at) // timedelta(milliseconds=1)
    return {
        "type": "workflow_timeout",
        "message": f"the workflow did not end within {workflow.timeout_ms / 1000:g} s",
        "timeout_kind": "total",
        "limit_seconds": -(-workflow.timeout_ms // 1000),
        "elapsed_seconds": (workflow.timeout_ms + late_ms) // 1000,
    }


def cancel_members(
    workflow_id: UUID,
    *,
    actor: Actor,
    until: float | None = None,
    skip_locked: bool = True,
    using: str,
) -> Pass:
    """The second phase: cancel the jobs that have not ended, with ``skip_locked`` without those that
    another transaction holds. Stops at ``until``.

    Callbacks of a workflow that has failed go on; those of a cancelled one are cancelled. One page is
    cancelled even if it is late: where a few statements take longer than that, nothing would be.
    """
    cancelled, held = 0, False
    for owner, members_only in _stopped(workflow_id, using):
        jobs = Job.objects.using(using).filter(workflow_id=owner, state__in=sorted(LIVE))
        if members_only:
            jobs = jobs.filter(workflow_step__gte=0)
        left = jobs
        while ids := list(left.order_by("pk").values_list("pk", flat=True)[:PAGE]):
            if cancelled and until is not None and clock.boottime() >= until:
                return Pass(cancelled, held, late=True)
            page = _cancel_page(ids, skip_locked, actor, using=using)
            cancelled += page.cancelled
            held = held or page.held
            left = jobs.filter(pk__gt=ids[-1])
    return Pass(cancelled, held)


@in_transaction
def _cancel_page(ids: Sequence[UUID], skip_locked: bool, actor: Actor, *, using: str = "") -> Pass:
    """Cancel these jobs; with ``skip_locked`` those that no other transaction holds."""
    found = locking.jobs(ids, skip_locked=skip_locked, brief=True, using=using)
    others = hooks.held_by_others(found.values(), using=using) if skip_locked else set()
    free = [job for job in found.values() if job.id not in others]
    now = clock.now(using)
    transitions = [operations.cancel(job, actor=actor, now=now) for job in free if job.state in LIVE]
    commit(transitions, now=now, using=using)
    return Pass(len(transitions), held=skip_locked and len(free) < len(ids))


def _stopped(workflow_id: UUID, using: str) -> list[tuple[UUID, bool]]:
    """The stopped workflows in and below one, each with whether only its members are to end."""
    rows = Workflow.objects.using(using).filter(cancel_requested_at__isnull=False)
    root = rows.filter(pk=workflow_id).values_list("root_id", flat=True).first()
    found = rows.filter(root_id=root) if root else rows.none()
    inner: dict[UUID | None, list[UUID]] = defaultdict(list)
    states: dict[UUID, str] = {}
    for owner, parent, state in found.values_list("pk", "parent_id", "state"):
        inner[parent].append(owner)
        states[owner] = state
    below = [workflow_id]
    for owner in below:
        below += inner[owner]
    return [(owner, states[owner] == _FAILED) for owner in below if owner in states]


def unfinished(using: str) -> list[UUID]:
    """Workflows that were stopped and have members that have not ended, outer ones first."""
    rows = Workflow.objects.using(using).filter(
        Q(open__gt=0) | Q(state=_CANCELLED, callbacks_open__gt=0),
        cancel_requested_at__isnull=False,
        finished_at__isnull=True,
    )
    return list(rows.order_by("cancel_requested_at").values_list("pk", flat=True)[:PAGE])


def overdue(now: datetime, using: str) -> list[UUID]:
    """Workflows whose deadline has passed."""
    rows = Workflow.objects.using(using).filter(deadline_at__lte=now, state=_RUNNING)
    return list(rows.order_by("deadline_at").values_list("pk", flat=True)[:PAGE])


@in_transaction
def resume(
    workflow_id: UUID,
    *,
    actor: Actor = API,
    using: str = "",
) -> Workflow:
    """Run again what has failed or was cancelled, under a new deadline, and go on from there.

    Members get a new life under their ids, steps that never started wait again, and callbacks run
    again when all members have ended. A member that was purged stays cancelled. Raises
    :class:`NotFound`, and :class:`Conflict` for a workflow that runs or has nothing to resume, or is
    part of another one: that one is to be resumed; :class:`Duplicate` where its first step is unique
    and an equal job waits or runs.
    """
    ended = (State.DISCARDED.value, State.CANCELLED.value)
    members = Job.objects.using(using).filter(
        workflow_id__in=Workflow.objects.using(using).filter(root_id=workflow_id).values("pk"),
        state__in=ended,
        hooks__gt=0,
    )
    ids = sorted(members.values_list("pk", flat=True))
    revival = Revival(ids, using=using)
    jobs: dict[UUID, list[JobRow]] = defaultdict(list)
    # Jobs before their workflow, as everywhere.
    for start in range(0, len(ids), PAGE):
        for job in locking.jobs(ids[start : start + PAGE], brief=True, using=using).values():
            if job.state in ended and job.hooks & BIT and job.workflow_id is not None:
                jobs[job.workflow_id].append(job)
    tree = Tree.lock([workflow_id], using=using)
    workflow = tree.find(workflow_id)
    if workflow is None:
        raise no_workflow(workflow_id)
    known = {"workflow_id": str(workflow_id), "current_state": workflow.state}
    if workflow.parent_id is not None:
        raise Conflict(f"is part of the workflow {workflow.root_id}: resume that one", **known)
    if workflow.finished_at is None:
        raise Conflict("the workflow has not ended", **known)
    again: list[JobRow] = []
    complete = _resume(tree, workflow, jobs, again)
    left = bool(again or workflow.open)
    transitions = [
        operations.retry_dead(job, actor=actor, expires_at=None, now=tree.now, trigger=Trigger.RESUME)
        for job in sorted(again, key=lambda job: job.id)
    ]
    for job in again:
        revival.check(job)
    revival.revived(transition.written for transition in transitions)
    revival.write()
    commit(transitions, now=tree.now, using=using)
    tree.event(Kind.WORKFLOW_RESUMED, workflow, actor, run=workflow.runs)
    tree.write()
    for one in complete:
        tree.advance(one)
    if not (left or workflow.callbacks_open):
        why = workflow.error and workflow.error["message"]
        raise Conflict(why or "nothing of the workflow has failed or was cancelled", **known)
    tree.write()
    return workflow


def _resume(
    tree: Tree, workflow: Workflow, jobs: dict[UUID, list[JobRow]], again: list[JobRow]
) -> list[Workflow]:
    """Reopen a workflow and those inside it, and add the jobs to run again to ``again``.

    Returns those whose members have all ended, inner ones first, to be advanced when all are reopened:
    the end of an inner one is the end of a member.
    """
    own = jobs[workflow.id]
    members = [job for job in own if job.workflow_step is not None and job.workflow_step >= 0]
    rows = Workflow.objects.using(tree.using)
    inner = [
        one
        for one in rows.filter(root_id=workflow.root_id, parent_id=workflow.id)
        if one.state != WorkflowState.COMPLETED
    ]
    tree.add(inner)
    tree.restart(workflow)
    workflow.runs += 1
    workflow.callback_failed = False
    workflow.open += len(members) + len(inner)
    workflow.failed -= sum(job.state == State.DISCARDED for job in members)
    workflow.failed -= sum(one.state == _FAILED for one in inner)
    open_again = {step for job in members if (step := job.workflow_step) is not None}
    open_again |= {one.parent_step for one in inner if one.parent_step is not None}
    again += members
    complete = [ended for one in inner for ended in _resume(tree, one, jobs, again)]
    tree.revive(workflow, open_again)
    if workflow.open:
        _forget_callbacks(tree, workflow)
        return complete
    failed = [job for job in own if job not in members]
    workflow.callbacks_open = len(failed)
    again += failed
    return [*complete, workflow]


def _forget_callbacks(tree: Tree, workflow: Workflow) -> None:
    """Members run again: so will the callbacks, as new jobs."""
    steps = WorkflowStep.objects.using(tree.using).filter(workflow_id=workflow.id, index__lt=0)
    old = [step.job_id for step in steps if step.job_id is not None]
    steps.update(state=_WAITING, job_id=None)
    detach(old, tree.using)
    workflow.callbacks_fired = False


@in_transaction
def add(lease: Lease, call: Call, *, using: str = "") -> JobRow:
    """Add a member to the workflow of a running job, by the lease of that job.

    Raises :class:`LeaseLost`, :class:`InvalidRequest` for a queue in another database, and
    :class:`Conflict` for a job without a workflow, a chain, a callback and a workflow that has been
    cancelled or is full.
    """
    databases.refuse_elsewhere(queue_of(call.envelope), using, "the workflow")
    job = locking.job(lease.job_id, using=using)
    known = {"job_id": str(job.id), "current_state": job.state}
    if job.state != State.ACTIVE or job.lease_id != lease.lease_id:
        raise LeaseLost("the lease was lost", **known)
    if job.workflow_id is None or job.workflow_step is None or not job.hooks & BIT:
        raise Conflict("the job is not part of a workflow", **known)
    if job.workflow_step < 0:
        raise Conflict("a callback cannot add to its workflow: all members have ended", **known)
    tree = Tree.lock([job.workflow_id], using=using)
    workflow = tree.find(job.workflow_id)
    if workflow is None or workflow.state != _RUNNING:
        raise Conflict("the workflow does not run any more", **known)
    if workflow.kind == WorkflowKind.CHAIN:
        raise Conflict("a chain takes no more members: its last step would not wait for them", **known)
    if workflow.total >= MAX_MEMBERS:
        raise Conflict(f"the workflow has {MAX_MEMBERS} members already", **known)
    added = tree.starter.add(workflow, call)
    tree.changed(workflow)
    above = workflow.parent_id and tree.find(workflow.parent_id)
    while above:
        above.queues = sorted({*above.queues, added.queue})
        tree.changed(above)
        above = above.parent_id and tree.find(above.parent_id)
    tree.write()
    return added
