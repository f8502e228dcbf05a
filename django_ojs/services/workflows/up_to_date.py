"""A workflow as it is now: what is due of its jobs and deadlines happens before it is shown."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import Q

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import after
from django_ojs.domain.workflow import WorkflowState
from django_ojs.models import Job, Workflow
from django_ojs.services.operate import change_each
from django_ojs.services.up_to_date import judge
from django_ojs.services.workflows import operate
from django_ojs.services.workflows.read import MOST_MEMBERS
from django_ojs.store.columns import DUE

_MOST = 100
"""The most jobs that one look promotes or ends, and the most workflows around and inside of one."""
_SECONDS = 0.5
"""For how long a look cancels the members of a workflow that is over its timeout."""


def bring_up_to_date(row: Workflow, *, using: str) -> None:
    """Stop what is over its timeout, promote and end jobs for which that is due (decision L5).

    Of the workflow, those around it and those inside of it; of each the first members, which are
    shown, and the callbacks. What is more is left to the reaper.
    """
    if row.finished_at is not None:
        return
    now = clock.stamp(using)
    tree = Workflow.objects.using(using).filter(root_id=row.root_id, finished_at__isnull=True)
    known = list(tree.order_by("pk").values_list("pk", "state", "deadline_at")[:_MOST])
    for workflow_id, state, deadline_at in known:
        if state != WorkflowState.RUNNING or deadline_at is None or deadline_at > now:
            continue
        if operate.stop(workflow_id, actor=operate.REAPER, timed_out=True, using=using):
            until = clock.boottime() + _SECONDS
            operate.cancel_members(workflow_id, actor=operate.REAPER, until=until, using=using)
    ids, running = _due_jobs([workflow_id for workflow_id, _, _ in known], now, using)
    if ids:
        decide = judge(running=running, now=now, using=using)
        change_each(ids, decide, skip_gone=True, using=using)


def _due_jobs(workflows: list[UUID], now: datetime, using: str) -> tuple[list[UUID], bool]:
    """The jobs that may be due, and whether some of them run."""
    jobs = Job.objects.using(using).filter(workflow_id__in=workflows, workflow_step__lt=MOST_MEMBERS)
    beating = Q(heartbeat_armed=True, heartbeat_at__isnull=False) | Q(lease_expires_at__lte=now)
    late = Q(deadline_at__lte=now) | Q(state__in=DUE, scheduled_at__lte=now)
    due = jobs.filter(late | Q(state=State.ACTIVE) & beating).order_by("pk")
    columns = ("state", "deadline_at", "lease_expires_at", "heartbeat_at", "heartbeat_timeout_ms")
    found: dict[UUID, str] = {}
    for job_id, state, *ends, beat, limit in due.values_list("pk", *columns)[:MOST_MEMBERS]:
        if beat is not None:
            ends.append(after(beat, limit))
        if state != State.ACTIVE or any(end is not None and end <= now for end in ends):
            found[job_id] = state
    ids = sorted(found)[:_MOST]
    return ids, any(found[job_id] == State.ACTIVE for job_id in ids)
