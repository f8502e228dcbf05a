"""Workflows under lock: what is changed is written at the end, together with what it starts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from django_ojs import clock
from django_ojs.domain.errors import OJSError
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobEvent
from django_ojs.domain.states import TERMINAL
from django_ojs.domain.timeouts import elapsed
from django_ojs.domain.workflow import (
    CALLBACKS,
    ENDINGS,
    ORDERED,
    MemberEnd,
    Plan,
    When,
    WorkflowKind,
    WorkflowState,
    final_state,
    plan,
    triggered,
)
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services.commit import publish
from django_ojs.services.workflows.details import detailed
from django_ojs.services.workflows.starting import BIT, Starter, planned

_COUNTERS = (
    *("state", "total", "open", "completed", "failed", "callbacks_open", "callbacks_fired"),
    *("callback_failed", "runs", "deadline_at", "cancel_requested_at", "finished_at", "error"),
    "queues",
)
_RUNNING = WorkflowState.RUNNING.value
_KINDS = {
    WorkflowState.COMPLETED.value: Kind.WORKFLOW_COMPLETED,
    WorkflowState.FAILED.value: Kind.WORKFLOW_FAILED,
    WorkflowState.CANCELLED.value: Kind.WORKFLOW_CANCELLED,
}
MEMBER_ENDS = {
    WorkflowState.COMPLETED.value: MemberEnd.COMPLETED,
    WorkflowState.FAILED.value: MemberEnd.FAILED,
    WorkflowState.CANCELLED.value: MemberEnd.CANCELLED,
}


def roots_of(ids: Iterable[UUID], using: str) -> dict[UUID, UUID]:
    """The outermost workflow of each of these; those that are gone are missing."""
    rows = Workflow.objects.using(using).filter(pk__in=set(ids))
    return dict(rows.values_list("pk", "root_id"))


def lock_roots(roots: Iterable[UUID], using: str, *, skip_locked: bool = False) -> list[Workflow]:
    """Lock these outermost workflows, in the order of their ids."""
    skips = skip_locked and connections[using].features.has_select_for_update_skip_locked
    rows = Workflow.objects.using(using).select_for_update(skip_locked=skips)
    return list(rows.filter(pk__in=set(roots)).order_by("pk"))


class Tree:
    """Workflows whose roots this transaction has locked, and what becomes of them.

    Whoever changes anything inside an outermost workflow has locked that: inner ones are only read.
    Everything is decided on the rows in memory; :meth:`write` stores it. A workflow that ends is a
    member of its parent that ends.
    """

    def __init__(self, now: datetime, using: str) -> None:
        self.now = now
        self.using = using
        self.starter = Starter(now, using)
        self._known: dict[UUID, Workflow] = {}
        self._changed: dict[UUID, Workflow] = {}
        self._steps: dict[UUID, dict[int, WorkflowStep]] = defaultdict(dict)
        self._events: list[JobEvent] = []

    @classmethod
    def lock(
        cls,
        ids: Iterable[UUID],
        *,
        skip_locked: bool = False,
        now: datetime | None = None,
        using: str,
    ) -> Tree:
        """Lock the workflows with these ids, by their roots; those that are gone are left out.

        With ``skip_locked``, so are those that another transaction holds.
        """
        roots = roots_of(ids, using)
        locked = lock_roots(roots.values(), using, skip_locked=skip_locked)
        free = {workflow.id for workflow in locked}
        wanted = {workflow_id for workflow_id, root in roots.items() if root in free}
        tree = cls(now or clock.now(using), using)
        tree.add(locked)
        if inner := wanted - tree._known.keys():
            tree.add(Workflow.objects.using(using).filter(pk__in=inner))
        return tree

    def add(self, workflows: Iterable[Workflow]) -> None:
        """Take in workflows whose root is locked."""
        for workflow in workflows:
            self._known[workflow.id] = workflow

    def find(self, workflow_id: UUID) -> Workflow | None:
        """A workflow of this tree, read if need be; ``None`` if it is gone."""
        if workflow_id not in self._known:
            self.add(Workflow.objects.using(self.using).filter(pk=workflow_id))
        return self._known.get(workflow_id)

    def known(self, workflow_id: UUID) -> Workflow | None:
        """A workflow that was taken in."""
        return self._known.get(workflow_id)

    def all(self) -> list[Workflow]:
        """Every workflow that was taken in."""
        return list(self._known.values())

    def changed(self, workflow: Workflow) -> None:
        """Have the workflow written."""
        self._changed[workflow.id] = workflow

    def step_changed(self, step: WorkflowStep) -> None:
        """Have the step written."""
        self._steps[step.workflow_id][step.index] = step

    def event(self, kind: Kind, workflow: Workflow, actor: Actor | None = None, **data: Any) -> None:
        """Have an event about the workflow published."""
        fields = {
            "workflow_id": str(workflow.id),
            "workflow_type": workflow.kind,
            "workflow_name": workflow.name,
            "total_steps": workflow.total,
            "steps_remaining": workflow.open,
            "remaining_steps": workflow.open,
            "completed_count": workflow.completed,
            "failed_count": workflow.failed,
            "state": workflow.state,
            **data,
        }
        if len(workflow.queues) == 1:
            # Whoever sees some queues only gets the events of those.
            fields["queue"] = workflow.queues[0]
        self._events.append(JobEvent(kind, fields | (actor.event_fields() if actor else {})))

    def ended(self, workflow: Workflow, endings: Sequence[tuple[int, MemberEnd]]) -> None:
        """Members and callbacks of a workflow have ended: count them, start what waited for them."""
        self.changed(workflow)
        members = [(index, ending) for index, ending in endings if index >= 0]
        for index, ending in endings:
            if index < 0:
                workflow.callbacks_open -= 1
                workflow.callback_failed |= ending is not MemberEnd.COMPLETED
            else:
                _count(workflow, ending)
        if workflow.kind in ORDERED:
            for index, ending in members:
                if ending is MemberEnd.CANCELLED and workflow.state != _RUNNING:
                    continue
                completed = ending is MemberEnd.COMPLETED
                kind = Kind.WORKFLOW_STEP_COMPLETED if completed else Kind.WORKFLOW_STEP_FAILED
                self.event(kind, workflow, step_index=index)
            if members and workflow.open:
                self._follow(workflow, members)
        self.advance(workflow)

    def _follow(self, workflow: Workflow, endings: Sequence[tuple[int, MemberEnd]]) -> None:
        """Start the steps for which all dependencies have ended, cancel those that cannot start."""
        complete = all(end is MemberEnd.COMPLETED for _, end in endings)
        following = [index + 1 for index, _ in endings]
        one_by_one = workflow.kind == WorkflowKind.CHAIN and complete
        waiting = self._waiting(workflow, following if one_by_one else None)
        ends = deque(endings)
        while ends:
            index, ending = ends.popleft()
            for step in waiting:
                if index not in step.depends_on or step.state != WorkflowStep.States.WAITING:
                    continue
                self.step_changed(step)
                lost = ending is not MemberEnd.COMPLETED and step.when == When.COMPLETED
                if lost:
                    step.state = WorkflowStep.States.CANCELLED
                else:
                    step.waits_for -= 1
                    lost = not step.waits_for and not self._start(workflow, step)
                if lost:
                    workflow.open -= 1
                    ends.append((step.index, MemberEnd.CANCELLED))
            if one_by_one and ends:
                # A step was refused: now all that follow it matter.
                known = {step.index for step in waiting}
                waiting += [one for one in self._waiting(workflow, None) if one.index not in known]

    def _waiting(self, workflow: Workflow, places: Sequence[int] | None) -> list[WorkflowStep]:
        wanted = Q(state=WorkflowStep.States.WAITING)
        if places is not None:
            wanted &= Q(index__in=places)
        found = self._members(workflow, wanted)
        return [step for step in found if step.state == WorkflowStep.States.WAITING]

    def _members(self, workflow: Workflow, wanted: Q) -> list[WorkflowStep]:
        """The members with ``wanted`` rows, and those that have changed since the last :meth:`write`,
        as they are now: a workflow may be advanced several times in between.
        """
        rows = WorkflowStep.objects.using(self.using).filter(
            wanted, workflow_id=workflow.id, index__gte=0
        )
        found = {step.index: step for step in rows} | self._steps[workflow.id]
        return [step for index, step in sorted(found.items()) if index >= 0]

    def _start(self, workflow: Workflow, step: WorkflowStep) -> bool:
        """Start a step. One that the settings no longer allow is cancelled: the report that made it due
        must not fail.
        """
        self.step_changed(step)
        try:
            self.starter.step(workflow, step)
        except OJSError as error:
            step.state = WorkflowStep.States.CANCELLED
            message = f"the step {step.key} cannot be enqueued: {error}"
            workflow.error = {"type": "step_refused", "message": message}
            return False
        return True

    def advance(self, workflow: Workflow) -> None:
        """Fire the callbacks when all members have ended, conclude when those have too."""
        self.changed(workflow)
        if workflow.open or workflow.finished_at is not None:
            return
        if not workflow.callbacks_fired and workflow.state != WorkflowState.CANCELLED:
            self._fire(workflow)
        if not workflow.callbacks_open:
            self._conclude(workflow)

    def _fire(self, workflow: Workflow) -> None:
        names = triggered(complete=workflow.is_complete and workflow.state == _RUNNING)
        rows = WorkflowStep.objects.using(self.using).filter(
            workflow_id=workflow.id, index__in=[CALLBACKS[name] for name in names]
        )
        for step in rows.order_by("-index"):
            workflow.callbacks_fired = True
            if self._start(workflow, step):
                workflow.callbacks_open += 1
            else:
                workflow.callback_failed = True

    def _conclude(self, workflow: Workflow) -> None:
        workflow.finished_at, workflow.deadline_at = self.now, None
        if workflow.state == _RUNNING:
            workflow.state = final_state(
                workflow.kind, complete=workflow.is_complete, callback_failed=workflow.callback_failed
            ).value
            took = elapsed(workflow.created_at, self.now)
            self.event(_KINDS[workflow.state], workflow, duration_ms=took)
        parent = None if workflow.parent_id is None else self.find(workflow.parent_id)
        if parent is not None and workflow.parent_step is not None:
            self.ended(parent, [(workflow.parent_step, MEMBER_ENDS[workflow.state])])

    def reopen(self, workflow: Workflow, members: Mapping[int, MemberEnd]) -> None:
        """Members that had ended are open again, and so is what was cancelled because of them."""
        self.changed(workflow)
        ends = list(members.values())
        workflow.open += len(ends)
        workflow.completed -= ends.count(MemberEnd.COMPLETED)
        workflow.failed -= ends.count(MemberEnd.FAILED)
        if workflow.state != _RUNNING:
            self.restart(workflow, members)
        self.revive(workflow, members)

    def restart(self, workflow: Workflow, open_again: Collection[int] = ()) -> None:
        """Back to running, with a new deadline. Members that were purged since the end count as
        cancelled now.
        """
        self.changed(workflow)
        ends = [end for index, end in self.endings(workflow).items() if index not in open_again]
        workflow.completed = ends.count(MemberEnd.COMPLETED)
        workflow.failed = ends.count(MemberEnd.FAILED)
        workflow.state = _RUNNING
        workflow.error = workflow.finished_at = workflow.cancel_requested_at = None
        if workflow.timeout_ms is not None:
            workflow.deadline_at = self.now + timedelta(milliseconds=workflow.timeout_ms)

    def revive(self, workflow: Workflow, open_again: Collection[int]) -> None:
        """Let cancelled steps that never started wait again, where nothing stands in their way.

        ``open_again`` are members that have ended by the rows, and have not by this decision.
        """
        if workflow.kind not in ORDERED:
            return
        never, waiting = WorkflowStep.States.CANCELLED, WorkflowStep.States.WAITING
        # Steps for "ended" may have been told of an end that is none any more.
        found = self._members(workflow, Q(state=never) | Q(state=waiting, when=When.ENDED))
        steps = {
            step.index: step
            for step in found
            if step.state == never or (step.state == waiting and step.when == When.ENDED)
        }
        ends = {index: end for index, end in self.endings(workflow).items() if index not in open_again}
        made = plan((planned(step) for step in steps.values()), ends)
        for index in (*made.waiting, *made.due):
            step = steps[index]
            workflow.open += step.state == WorkflowStep.States.CANCELLED
            step.state, step.waits_for = WorkflowStep.States.WAITING, made.waiting.get(index, 0)
            self.step_changed(step)
        self._start_all(workflow, [steps[index] for index in made.due])

    def follow_rows(self, workflow: Workflow, steps: Sequence[WorkflowStep], made: Plan) -> None:
        """Do what was planned for the steps that wait; those to cancel are no longer counted."""
        for step in steps:
            self.step_changed(step)
            if step.index in made.dead:
                step.state = WorkflowStep.States.CANCELLED
                continue
            step.waits_for = made.waiting.get(step.index, 0)
        self._start_all(workflow, [step for step in steps if step.index in made.due])

    def _start_all(self, workflow: Workflow, steps: Sequence[WorkflowStep]) -> None:
        """Start these steps. Those that are refused have ended, for all that wait for them."""
        refused = [step.index for step in steps if not self._start(workflow, step)]
        workflow.open -= len(refused)
        if refused:
            self._follow(workflow, [(index, MemberEnd.CANCELLED) for index in refused])

    def endings(self, workflow: Workflow) -> dict[int, MemberEnd]:
        """How the started members of a workflow have ended, by the rows of their jobs and workflows.

        One whose row is gone counts as cancelled, where others may wait for it.
        """
        members = Job.objects.using(self.using).filter(workflow_id=workflow.id, workflow_step__gte=0)
        found: dict[int, MemberEnd] = {}
        for index, state, hooks in members.values_list("workflow_step", "state", "hooks"):
            if index is None:
                continue
            if not hooks & BIT:
                # Retried too late: it runs by itself, and has failed for the workflow.
                found[index] = MemberEnd.FAILED
            elif state in TERMINAL:
                found[index] = ENDINGS[state]
        inner = Workflow.objects.using(self.using).filter(
            root_id=workflow.root_id, parent_id=workflow.id, finished_at__isnull=False
        )
        for index, state in inner.values_list("parent_step", "state"):
            if index is not None:
                found[index] = MEMBER_ENDS[state]
        if workflow.kind in ORDERED:
            found |= dict.fromkeys(self.gone(workflow), MemberEnd.CANCELLED)
        return found

    def gone(self, workflow: Workflow) -> set[int]:
        """The steps that were started and whose job or workflow was deleted."""
        steps = WorkflowStep.objects.using(self.using).filter(
            workflow_id=workflow.id, index__gte=0, state=WorkflowStep.States.STARTED
        )
        jobs = Job.objects.using(self.using).filter(workflow_id=workflow.id, workflow_step__gte=0)
        inner = Workflow.objects.using(self.using).filter(
            root_id=workflow.root_id, parent_id=workflow.id
        )
        there = {*jobs.values_list("workflow_step", flat=True)}
        there.update(inner.values_list("parent_step", flat=True))
        return set(steps.values_list("index", flat=True)) - there

    def write(self) -> None:
        """Store what has changed since the last time and what was started, and publish the events."""
        new = {workflow.id for workflow in self.starter.workflows}
        for workflow_id, workflow in sorted(self._changed.items()):
            if workflow_id not in new:
                workflow.save(using=self.using, update_fields=_COUNTERS)
        changed = (step for steps in self._steps.values() for step in steps.values())
        steps = sorted(changed, key=lambda step: step.pk)
        fields = ["state", "waits_for", "job_id", "child_id"]
        if steps:
            WorkflowStep.objects.using(self.using).bulk_update(steps, fields, batch_size=200)
        self.starter.insert()
        for workflow in self.starter.workflows:
            self.event(Kind.WORKFLOW_STARTED, workflow)
        events = detailed(self._events, now=self.now, using=self.using)
        publish(events, now=self.now, using=self.using)
        self.starter = Starter(self.now, self.using)
        self._changed, self._events = {}, []
        self._steps.clear()


def _count(workflow: Workflow, ending: MemberEnd) -> None:
    workflow.open -= 1
    if ending is MemberEnd.COMPLETED:
        workflow.completed += 1
    elif ending is MemberEnd.FAILED:
        workflow.failed += 1
