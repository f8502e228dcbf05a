"""The operations on jobs. Each decision is made under the row's lock; lost races are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.actions import ActionReport, Operation, Run, say_gone
from django_ojs.admin.forms import (
    EditForm,
    ExtendForm,
    PurgeForm,
    RequeueForm,
    RetryForm,
    WhenForm,
    edited,
)
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import OJSError
from django_ojs.domain.job import Actor, JobRow, Transition
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import TERMINAL
from django_ojs.models import Job
from django_ojs.services import operate
from django_ojs.services.operate import Changed
from django_ojs.services.phrases import humanize_duration
from django_ojs.services.verbs import VERBS, Reviving

CHUNK = 200


def _deciding(name: str) -> Run:
    """Make an operation that decides about each job; skips jobs in other states, and internal jobs
    unless the operation is in ``_FOR_OWN``.
    """
    verb = VERBS[name]
    make = verb.decide
    assert make is not None

    def run(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        decide = make(actor=actor, **_parameters(name, cleaned))
        reviving = decide if isinstance(decide, Reviving) else None
        report = ActionReport()
        why: dict[UUID, str] = {}

        def guarded(job: JobRow, now: Any) -> Transition | None:
            # Repeated after a lost race: an earlier reason may be outdated.
            why.pop(job.id, None)
            try:
                if name not in _FOR_OWN:
                    _refuse_own(job)
                if job.state not in verb.states:
                    raise _Refused(_left(job))
                return decide(job, now)
            except OJSError as error:
                why[job.id] = f"{job.id}: {error.message}"
            except _Refused as error:
                why[job.id] = str(error)
            return None

        for start in range(0, len(keys), CHUNK):
            chunk = keys[start : start + CHUNK]
            changes = operate.change_each(chunk, guarded, skip_gone=True, reviving=reviving)
            done = [change for change in changes if change.before != change.after]
            report.done += len(done)
            report.notes += map(_granted, done) if name == "extend" else ()
            there = {change.before.id for change in changes}
            for key in chunk:
                if key not in there:
                    report.skipped.append(say_gone(key))
                elif key in why:
                    report.skipped.append(why[key])
        return report

    return run


class _Refused(Exception):
    """Why a job is skipped, in the user's language."""


def _refuse_own(job: JobRow) -> None:
    if is_own(type=job.type):
        message = _("%s is a job of django_ojs itself: start it again from the list.")
        raise _Refused(message % job.id)


def _left(job: JobRow) -> str:
    state = Job.States(job.state).label
    return _("%(id)s was left as it is: it is %(state)s by now.") % {"id": job.id, "state": state}


def _purge(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    report = ActionReport()
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        purged = operate.purge_finished(chunk, actor=actor)
        report.done += len(purged.done)
        there = {job.id for job in (*purged.done, *purged.left)}
        report.skipped += [say_gone(key) for key in chunk if key not in there]
        report.skipped += map(_left, purged.left)
    return report


def _requeue(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    """Create a job of the same type and options; its meta has the id of the original."""
    wanted = {name: cleaned[name] for name in ("args", "queue", "meta")}
    old, new_id = cleaned.get("once") or (None, None)
    if old == keys[0]:
        wanted["new_id"] = new_id
    try:
        new = operate.requeue(keys[0], **wanted, check=_requeuable, actor=actor)
    except _Refused as refused:
        return ActionReport(skipped=[str(refused)])
    return ActionReport(done=1, made=str(new.id))


def _requeuable(job: JobRow) -> None:
    _refuse_own(job)
    if job.state not in TERMINAL:
        raise _Refused(_left(job))


def _parameters(name: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields of a verb's form to the parameters of its decision."""
    match name:
        case "retry":
            return {
                "expires_at": None if cleaned.get("clear_expiry") else False,
                "allow_duplicate": bool(cleaned.get("allow_duplicate")),
            }
        case "reschedule":
            return {"when": cleaned["when"]}
        case "extend":
            return {"by_ms": cleaned["by_ms"]}
        case "edit":
            return edited(cleaned)
    return {}


_FOR_OWN = frozenset({"cancel", "extend", "discard", "purge"})
"""Operations that are allowed on internal jobs: none that would start one again."""


def runner(name: str) -> Run:
    """Return the function that performs an operation on many jobs, for bulk jobs too."""
    return {"purge": _purge, "requeue": _requeue}.get(name) or _deciding(name)


def _granted(change: Changed) -> str:
    made = operate.extension(change)
    message = _("%(id)s: %(granted)s granted; told to stop at %(soft)s, ended at %(hard)s.")
    return message % {
        "id": made.job.id,
        "granted": humanize_duration(timedelta(milliseconds=made.extended_by_ms)),
        "soft": format_instant(made.soft_deadline_at),
        "hard": format_instant(made.deadline_at),
    }


def _operation(name: str, label: Any, permission: str, consequence: Any, **more: Any) -> Operation:
    states, own = VERBS[name].states, name in _FOR_OWN

    def allowed(row: Any) -> bool:
        return row.state in states and (own or not is_own(type=row.type))

    return Operation(name, label, permission, consequence, runner(name), allowed=allowed, **more)


_KEEP = gettext_lazy("Keep job"), gettext_lazy("Keep jobs")
JOB_OPERATIONS: tuple[Operation, ...] = (
    _operation(
        "retry",
        gettext_lazy("Retry"),
        "retry_job",
        gettext_lazy("Discarded jobs become available again: attempts and timeouts start from zero."),
        form=RetryForm,
    ),
    _operation(
        "run_now",
        gettext_lazy("Run now"),
        "retry_job",
        gettext_lazy("Scheduled and retryable jobs become available at once."),
    ),
    _operation(
        "reschedule",
        gettext_lazy("Reschedule"),
        "retry_job",
        gettext_lazy("Scheduled and retryable jobs start at another time."),
        form=WhenForm,
    ),
    _operation(
        "extend",
        gettext_lazy("Extend timeout"),
        "extend_job",
        gettext_lazy("The running attempt gets more time, up to its total timeout."),
        form=ExtendForm,
    ),
    _operation(
        "edit",
        gettext_lazy("Change queue, priority or limits"),
        "edit_job",
        gettext_lazy("Waiting jobs move."),
        form=EditForm,
    ),
    _operation(
        "requeue",
        gettext_lazy("Edit and requeue"),
        "requeue_job",
        gettext_lazy("A new job of the same type; this one stays as it is."),
        form=RequeueForm,
        single=True,
        also=("view_args",),
    ),
    _operation(
        "cancel",
        gettext_lazy("Cancel job"),
        "cancel_job",
        gettext_lazy(
            "Cancelled at once and for good. A running job's worker is told to stop it; "
            "its result will be refused."
        ),
        several=gettext_lazy("Cancel jobs"),
        back=_KEEP,
        danger=True,
    ),
    _operation(
        "discard",
        gettext_lazy("Discard"),
        "discard_job",
        gettext_lazy(
            "Waiting jobs are given up. They do not enter the dead letter; a retry is possible."
        ),
        back=_KEEP,
        danger=True,
    ),
    _operation(
        "purge",
        gettext_lazy("Purge"),
        "purge_job",
        gettext_lazy(
            "Finished jobs are deleted with their attempts, for good. The history of events stays."
        ),
        form=PurgeForm,
        back=_KEEP,
        danger=True,
    ),
)
