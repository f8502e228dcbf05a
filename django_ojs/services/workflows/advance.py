"""The transition hook of workflows: members that end, or get a new life, move their workflow on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connections
from django.db.models import F

from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.states import TERMINAL, State, Trigger
from django_ojs.domain.workflow import ENDINGS, MemberEnd
from django_ojs.hooks import TransitionHook
from django_ojs.models import Job, Workflow
from django_ojs.services.workflows.starting import BIT
from django_ojs.services.workflows.tree import MEMBER_ENDS, Tree, lock_roots, roots_of


def run(transitions: Sequence[Transition], now: datetime, using: str) -> None:
    """Count the members that have ended, and take back those that an operator has retried."""
    ended: dict[UUID, list[tuple[int, MemberEnd]]] = defaultdict(list)
    retried: dict[UUID, list[JobRow]] = defaultdict(list)
    for transition in transitions:
        job = transition.job
        if job.workflow_id is None or job.workflow_step is None:
            continue
        if transition.target in TERMINAL:
            ended[job.workflow_id].append((job.workflow_step, ENDINGS[transition.target.value]))
        elif transition.trigger is Trigger.RETRY:
            retried[job.workflow_id].append(job)
    if not ended and not retried:
        return
    tree = Tree.lock([*ended, *retried], now=now, using=using)
    for workflow_id, endings in ended.items():
        if (workflow := tree.find(workflow_id)) is not None:
            tree.ended(workflow, endings)
    detached = reopen(tree, retried)
    tree.write()
    detach(detached, using)


def purged(jobs: Sequence[JobRow], now: datetime, using: str) -> None:
    """A member that is deleted while its workflow runs counts as cancelled: its result is gone."""
    tree = Tree.lock([job.workflow_id for job in jobs if job.workflow_id], now=now, using=using)
    for job in jobs:
        workflow = tree.find(job.workflow_id) if job.workflow_id else None
        if workflow is None or workflow.finished_at is not None or (job.workflow_step or 0) < 0:
            continue
        workflow.completed -= job.state == State.COMPLETED
        workflow.failed -= job.state == State.DISCARDED
        tree.changed(workflow)
    tree.write()


def held(jobs: Sequence[JobRow], using: str) -> set[UUID]:
    """The jobs whose workflow another transaction holds; those of the others are locked now."""
    if not connections[using].features.has_select_for_update_skip_locked:
        return set()
    roots = roots_of((job.workflow_id for job in jobs if job.workflow_id), using)
    locked = {workflow.id for workflow in lock_roots(roots.values(), using, skip_locked=True)}
    return {job.id for job in jobs if job.workflow_id in roots and roots[job.workflow_id] not in locked}


def reopen(tree: Tree, retried: Mapping[UUID, Sequence[JobRow]]) -> list[UUID]:
    """Failed members get a new life: count them as open again, with all that waits for them.

    Each workflow is reopened once, for all its members, inner ones first: by the rows of the jobs all
    of them are open already. Returns the jobs for which it is too late, as callbacks have fired or the
    workflow was cancelled: they run by themselves.
    """
    again: dict[UUID, dict[int, MemberEnd]] = defaultdict(dict)
    around: dict[UUID, tuple[int, Workflow]] = {}
    late: list[UUID] = []
    for workflow_id, jobs in retried.items():
        line = _line(tree, workflow_id)
        if any(one.detaches for one in line):
            late += [job.id for job in jobs]
            continue
        around |= {one.id: (depth, one) for depth, one in enumerate(reversed(line))}
        for job in jobs:
            assert job.workflow_step is not None
            again[workflow_id][job.workflow_step] = ENDINGS[State(job.state).value]
    for _, workflow in sorted(around.values(), key=lambda one: one[0], reverse=True):
        if workflow.id not in again:
            continue
        was, had_ended = workflow.state, workflow.finished_at is not None
        tree.reopen(workflow, again[workflow.id])
        if had_ended and workflow.parent_id is not None and workflow.parent_step is not None:
            again[workflow.parent_id][workflow.parent_step] = MEMBER_ENDS[was]
    return late


def _line(tree: Tree, workflow_id: UUID) -> list[Workflow]:
    """A workflow and those around it, inner ones first."""
    found: list[Workflow] = []
    above: UUID | None = workflow_id
    while above is not None and (one := tree.find(above)) is not None:
        found.append(one)
        above = one.parent_id
    return found


def detach(ids: Sequence[UUID], using: str) -> None:
    """Let these jobs end without their workflows being told."""
    if ids:
        hooks = F("hooks").bitand(~BIT)
        Job.objects.using(using).filter(pk__in=ids).update(hooks=hooks)


HOOK = TransitionHook("workflows", BIT, run, purged, held)
