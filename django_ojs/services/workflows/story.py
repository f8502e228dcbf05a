"""What has happened to a workflow and what will not run, in a sentence of the current language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ojs.domain.job import JobRow
from django_ojs.domain.workflow import CALLBACK_NAMES, ORDERED, WorkflowState
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services.workflows.read import Member
from django_ojs.services.workflows.starting import BIT


def story(
    row: Workflow, found: Sequence[Member], errors: Sequence[Mapping[str, Any]], *, using: str
) -> str:
    """For example ``2 of 7 steps done; parse failed at attempt 3: TimeoutError; 4 will not run``."""
    parts = [_done(row), *_failures(row, found, errors)]
    steps = WorkflowStep.objects.using(using).filter(workflow_id=row.id, index__gte=0)
    never = steps.filter(state=WorkflowStep.States.CANCELLED).count()
    stopped = row.cancelled - never
    if stopped > 0:
        parts.append(ngettext("%d was cancelled", "%d were cancelled", stopped) % stopped)
    if never and row.finished_at is None:
        parts.append(ngettext("%d will not run", "%d will not run", never) % never)
    elif never:
        parts.append(ngettext("%d did not run", "%d did not run", never) % never)
    waiting = steps.filter(state=WorkflowStep.States.WAITING).count() if row.open else 0
    if waiting:
        parts.append(ngettext("%d waits for others", "%d wait for others", waiting) % waiting)
    if row.callbacks_open:
        parts.append(_("callbacks are running"))
    return "; ".join(parts)


def _done(row: Workflow) -> str:
    numbers = {"done": row.completed, "total": row.total}
    if row.kind in ORDERED:
        said = ngettext(
            "%(done)d of %(total)d step done", "%(done)d of %(total)d steps done", row.total
        )
    else:
        said = ngettext("%(done)d of %(total)d job done", "%(done)d of %(total)d jobs done", row.total)
    return said % numbers


def _failures(row: Workflow, found: Sequence[Member], errors: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = []
    keys = {**{member.index: member.key for member in found}, **CALLBACK_NAMES}
    # Callbacks stand first among the errors; what made them necessary is said first.
    for error in sorted(errors, key=lambda error: error["step_index"] < 0)[:1]:
        why = f"{error['code']}: {error['message']}" if error["message"] else error["code"]
        name = keys.get(error["step_index"], f"step-{error['step_index']}")
        said = _("%(step)s failed at attempt %(attempt)d: %(why)s")
        parts.append(said % {"step": name, "attempt": error["attempt"], "why": why})
    inner = [one.key for one in found if one.workflow_id and one.state == WorkflowState.FAILED]
    if inner:
        parts.append(_("failed inside: %s") % ", ".join(inner[:3]))
    more = row.failed + row.callback_failed - len(errors[:1]) - len(inner)
    if more > 0:
        parts.append(ngettext("%d more failed", "%d more failed", more) % more)
    if row.error is not None:
        parts.append(_error(row))
    return parts


def _error(row: Workflow) -> str:
    error: Mapping[str, Any] = row.error or {}
    if error.get("type") == "workflow_timeout":
        return _("it did not end within %s s") % f"{(row.timeout_ms or 0) / 1000:g}"
    return str(error.get("message", ""))


def lineage(job: JobRow, using: str) -> list[Workflow]:
    """The workflow that a job is part of, and those around it, the innermost first."""
    if job.workflow_id is None:
        return []
    rows = Workflow.objects.using(using)
    line = list(rows.filter(pk=job.workflow_id))
    while line and line[-1].parent_id is not None:
        above = rows.filter(pk=line[-1].parent_id).first()
        if above is None:
            break
        line.append(above)
    return line


def explain_part(job: JobRow, line: Sequence[Workflow]) -> list[str]:
    """What the workflow of a job means for it."""
    if not line:
        return []
    workflow = line[0]
    names = {"workflow": str(workflow), "state": Workflow.States(workflow.state).label}
    place = job.workflow_step
    if place is not None and place in CALLBACK_NAMES:
        said = _("It is the callback %(callback)s of the workflow %(workflow)s, which is %(state)s.")
        reasons = [said % {"callback": CALLBACK_NAMES[place], **names}]
    else:
        said = _("It is a member of the workflow %(workflow)s, which is %(state)s.")
        reasons = [said % names]
    if not job.hooks & BIT:
        reasons.append(_("It is detached: what becomes of it changes nothing in the workflow."))
    elif job.state == Job.States.DISCARDED and any(one.detaches for one in line):
        reasons.append(
            _("If it is retried now it runs by itself: the workflow does not go on with it.")
        )
    return reasons
