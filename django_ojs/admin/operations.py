"""The operations on jobs. Each decision is made under the row's lock; lost races are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.actions import ActionReport, Operation
from django_ojs.admin.clocks import humanize_duration
from django_ojs.admin.forms import ExtendForm, PlaceForm, PurgeForm, RequeueForm, RetryForm, WhenForm
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import OJSError
from django_ojs.domain.job import Actor, JobRecord, Transition
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.services import operate
from django_ojs.services.operate import Changed
from django_ojs.services.verbs import VERBS

CHUNK = 200


def _deciding(name: str) -> Callable[..., ActionReport]:
    """An operation that is a decision about each job: those in another state are left alone, and
    our own jobs too unless the operation is for them.
    """
    verb = VERBS[name]
    make = verb.decide
    assert make is not None

    def run(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        decide = make(actor=actor, **_parameters(name, cleaned))
        report = ActionReport()
        why: dict[UUID, str] = {}

        def guarded(job: JobRecord, now: Any) -> Transition | None:
            # Repeated after a lost race: the first reason may not hold any more.
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
            changes = operate.change_each(chunk, guarded, skip_gone=True)
            done = [change for change in changes if change.before != change.after]
            report.done += len(done)
            report.notes += map(_granted, done) if name == "extend" else ()
            there = {change.before.id for change in changes}
            for key in chunk:
                if key not in there:
                    report.skipped.append(_gone(key))
                elif key in why:
                    report.skipped.append(why[key])
        return report

    return run


class _Refused(Exception):
    """Why a job is skipped, in the user's language."""


def _refuse_own(job: JobRecord) -> None:
    if is_own(type=job.type):
        message = _("%s is a job of django_ojs itself: start it again from the list.")
        raise _Refused(message % job.id)


def _left(job: JobRecord) -> str:
    state = Job.States(job.state).label
    return _("%(id)s was left as it is: it is %(state)s by now.") % {"id": job.id, "state": state}


def _gone(key: UUID) -> str:
    return _("%s is no longer there.") % key


def _purge(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    report = ActionReport()
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        purged = operate.purge_finished(chunk, actor=actor)
        report.done += len(purged.done)
        there = {job.id for job in (*purged.done, *purged.left)}
        report.skipped += [_gone(key) for key in chunk if key not in there]
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


def _requeuable(job: JobRecord) -> None:
    _refuse_own(job)
    if job.state not in TERMINAL:
        raise _Refused(_left(job))


def _parameters(name: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a verb's decision, from the fields of its form."""
    match name:
        case "retry":
            return {"expires_at": None if cleaned.get("clear_expiry") else False}
        case "reschedule":
            return {"when": cleaned["when"]}
        case "extend":
            return {"by_ms": cleaned["by_ms"]}
        case "edit":
            given = {"queue": cleaned.get("queue") or None, "priority": cleaned.get("priority")}
            return {column: value for column, value in given.items() if value is not None}
    return {}


_FOR_OWN = frozenset({"cancel", "extend", "discard"})
"""The operations that internal jobs allow too; those that would start one again are not."""


def runner(name: str) -> Callable[..., ActionReport]:
    """The function that performs the operation ``name`` on many jobs, for bulk jobs too."""
    if name == "purge":
        return _purge
    return _deciding(name)


def _granted(change: Changed) -> str:
    made = operate.extension(change)
    message = _("%(id)s: %(granted)s granted; told to stop at %(soft)s, ended at %(hard)s.")
    return message % {
        "id": made.job.id,
        "granted": humanize_duration(timedelta(milliseconds=made.extended_by_ms)),
        "soft": format_instant(made.soft_deadline_at),
        "hard": format_instant(made.deadline_at),
    }


def _is(states: frozenset[State], *, own: bool) -> Callable[[Any], bool]:
    return lambda row: row.state in states and (own or not is_own(type=row.type))


def _operation(name: str, label: Any, permission: str, consequence: Any, **more: Any) -> Operation:
    allowed = _is(VERBS[name].states, own=name in _FOR_OWN)
    return Operation(name, label, permission, consequence, runner(name), allowed=allowed, **more)


_KEEP = gettext_lazy("Keep job"), gettext_lazy("Keep jobs")
JOB_OPERATIONS: tuple[Operation, ...] = (
    _operation(
        "retry",
        gettext_lazy("Retry"),
        "retry_job",
        gettext_lazy("Discarded jobs get a new life under their ids: attempts and clocks start again."),
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
        gettext_lazy("Change queue or priority"),
        "edit_job",
        gettext_lazy("Waiting jobs move."),
        form=PlaceForm,
    ),
    Operation(
        "requeue",
        gettext_lazy("Edit and requeue"),
        "requeue_job",
        gettext_lazy("A new job of the same type; this one stays as it is."),
        _requeue,
        form=RequeueForm,
        allowed=_is(VERBS["requeue"].states, own=False),
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
    Operation(
        "purge",
        gettext_lazy("Purge"),
        "purge_job",
        gettext_lazy(
            "Finished jobs are deleted with their attempts, for good. The history of events stays."
        ),
        _purge,
        form=PurgeForm,
        allowed=_is(VERBS["purge"].states, own=True),
        back=_KEEP,
        danger=True,
    ),
)
