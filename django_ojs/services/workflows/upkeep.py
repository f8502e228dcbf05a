"""Workflows over time: deadlines, cancellations to finish, pruning, counters against rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, F, Q

from django_ojs import clock, conf
from django_ojs.domain.states import State
from django_ojs.domain.workflow import ORDERED, MemberEnd, Plan, Planned, When, WorkflowState, plan
from django_ojs.hooks import SLICE, DeadlineHook, MaintenanceResult, MaintenanceTask
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services.workflows import operate
from django_ojs.services.workflows.starting import BIT
from django_ojs.services.workflows.tree import Tree, lock_roots
from django_ojs.store.contention import in_transaction

PAGE = 500
_behind: set[str] = set()
"""Databases in which this process has left members of stopped workflows to its next turn."""


def expire(using: str) -> int:
    """Stop the workflows whose deadline has passed, and cancel members for about ``SLICE`` seconds.

    Returns how many were stopped; the next pass does what is left of the members.
    """
    stopped = 0
    for workflow_id in operate.overdue(clock.now(using), using):
        stopped += operate.stop(workflow_id, actor=operate.REAPER, timed_out=True, using=using)
    if stopped or using in _behind:
        finish(using=using)
    return stopped


def finish(*, seconds: float = SLICE, using: str) -> operate.Pass:
    """Cancel members of stopped workflows for about ``seconds``; a held one is in no other's way."""
    until = clock.boottime() + seconds
    done = operate.Pass(0, held=False)
    for workflow_id in operate.unfinished(using):
        # As for the pages of one: a pass that cancels nothing would not get further by the next.
        if done.cancelled and clock.boottime() >= until:
            done = done._replace(late=True)
        if done.late:
            break
        one = operate.cancel_members(workflow_id, actor=operate.REAPER, until=until, using=using)
        done = operate.Pass(done.cancelled + one.cancelled, done.held or one.held, one.late)
    if done.held or done.late:
        _behind.add(using)
    else:
        _behind.discard(using)
    return done


def _finish(using: str) -> MaintenanceResult:
    # What is held is for the next time: at once it would be held still.
    return MaintenanceResult(more=finish(using=using).late)


TASK = MaintenanceTask("workflows", 30.0, _finish, enforces=True)
"""Finishes cancellations of processes that died; a reaper and a canceller finish their own."""


def prune(before: datetime, room: int, dry_run: bool, using: str) -> list[datetime]:
    """Delete up to ``room`` outermost workflows that ended before a time, with all inside them; returns
    when each was created.

    Their jobs are pruned after them, by their own retention.
    """
    rows = Workflow.objects.using(using)
    old = rows.filter(finished_at__lt=before, parent_id__isnull=True).order_by("finished_at")
    found = dict(old.values_list("pk", "created_at")[:room])
    return list(found.values()) if dry_run or not found else _delete(list(found), before, using=using)


@in_transaction
def _delete(roots: list[UUID], before: datetime, *, using: str = "") -> list[datetime]:
    # Locked, and again by age: one may have been resumed since.
    locked = lock_roots(roots, using)
    due = [one for one in locked if one.finished_at is not None and one.finished_at < before]
    everything = Workflow.objects.using(using).filter(root_id__in=[one.id for one in due])
    ids = list(everything.values_list("pk", flat=True))
    for start in range(0, len(ids), PAGE):
        part = ids[start : start + PAGE]
        WorkflowStep.objects.using(using).filter(workflow_id__in=part)._raw_delete(using)
    everything._raw_delete(using)
    return [one.created_at for one in due]


DEADLINES = DeadlineHook("workflow", expire)


class Drift(NamedTuple):
    """A workflow whose counters are not what its rows say."""

    workflow_id: UUID
    counted: dict[str, int]
    found: dict[str, int]

    def __str__(self) -> str:
        wrong = (
            f"{name} {self.counted[name]}, by the rows {value}"
            for name, value in self.found.items()
            if self.counted[name] != value
        )
        return f"workflow {self.workflow_id}: {'; '.join(wrong)}"


def drifts(*, using: str | None = None) -> Iterator[Drift]:
    """The workflows that have not ended and whose counters are wrong, without locks."""
    using = using or conf.current().database
    rows = Workflow.objects.using(using).filter(finished_at__isnull=True)
    for workflow_id in rows.order_by("pk").values_list("pk", flat=True).iterator(chunk_size=PAGE):
        # Again under lock: a settlement may be under way.
        if (drift := _drift(workflow_id, False, using=using)) is not None:
            yield drift


@in_transaction
def repair(workflow_id: UUID, *, using: str = "") -> Drift | None:
    """Set the counters of a workflow to what its rows say, and advance it; ``None`` if all is right."""
    return _drift(workflow_id, True, using=using)


@in_transaction
def _drift(workflow_id: UUID, repairing: bool, *, using: str = "") -> Drift | None:
    tree = Tree.lock([workflow_id], using=using)
    workflow = tree.find(workflow_id)
    if workflow is None or workflow.finished_at is not None:
        return None
    steps, made = _waiting(tree, workflow)
    found = _by_rows(workflow, using)
    # Steps that cannot start any more are open by their rows only.
    rows = {**found, "open": found["open"] - len(made.dead)}
    counted = {name: getattr(workflow, name) for name in rows}
    waits = {"waits_for": sum(made.waiting.values())}
    counted_waits = {"waits_for": sum(step.waits_for for step in steps)}
    if (rows, waits) == (counted, counted_waits):
        return None
    if repairing:
        for name, value in rows.items():
            setattr(workflow, name, value)
        tree.follow_rows(workflow, steps, made)
        tree.advance(workflow)
        tree.write()
    return Drift(workflow_id, counted | counted_waits, rows | waits)


def _waiting(tree: Tree, workflow: Workflow) -> tuple[list[WorkflowStep], Plan]:
    """The steps that wait, and what should become of them by what has ended."""
    rows = WorkflowStep.objects.using(tree.using).filter(workflow_id=workflow.id, index__gte=0)
    steps = list(rows.filter(state=WorkflowStep.States.WAITING).defer("call").order_by("index"))
    if not steps or workflow.kind not in ORDERED:
        return [], plan((), {})
    never = rows.filter(state=WorkflowStep.States.CANCELLED).values_list("index", flat=True)
    ends = tree.endings(workflow) | dict.fromkeys(never, MemberEnd.CANCELLED)
    gone = tree.gone(workflow)
    plans = []
    for step in steps:
        needed = list(dict.fromkeys(step.depends_on))
        if step.waits_for <= sum(other not in ends for other in needed):
            # What is gone had ended for this step before it was purged.
            needed = [other for other in needed if other not in gone]
        plans.append(Planned(step.index, needed, When(step.when)))
    return steps, plan(plans, ends)


def _by_rows(workflow: Workflow, using: str) -> dict[str, int]:
    # Other hooks have other bits.
    jobs = Job.objects.using(using).filter(workflow_id=workflow.id).alias(bit=F("hooks").bitand(BIT))
    members: Counter[str] = Counter()
    own = jobs.filter(workflow_step__gte=0, bit=BIT).values_list("state")
    for state, count in own.annotate(count=Count("pk")):
        members[state] += count
    # Who was retried too late runs by itself, and has failed for the workflow.
    members[State.DISCARDED] += jobs.filter(workflow_step__gte=0, bit=0).count()
    inner = Workflow.objects.using(using).filter(root_id=workflow.root_id, parent_id=workflow.id)
    ended = Counter(inner.filter(finished_at__isnull=False).values_list("state", flat=True))
    waiting = WorkflowStep.objects.using(using).filter(
        workflow_id=workflow.id, index__gte=0, state=WorkflowStep.States.WAITING
    )
    terminal = {State.COMPLETED.value, State.DISCARDED.value, State.CANCELLED.value}
    live = sum(count for state, count in members.items() if state not in terminal)
    live += inner.filter(finished_at__isnull=True).count() + waiting.count()
    callbacks = jobs.filter(~Q(state__in=sorted(terminal)), workflow_step__lt=0, bit=BIT)
    return {
        "open": live,
        "completed": members[State.COMPLETED] + ended[WorkflowState.COMPLETED],
        "failed": members[State.DISCARDED] + ended[WorkflowState.FAILED],
        "callbacks_open": callbacks.count(),
    }
