"""What people do to jobs: each decision is made under the row's lock, and a lost race is said."""

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
from django_ojs.domain import operations
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import OJSError
from django_ojs.domain.job import Actor, JobRecord, Transition
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.services import operate
from django_ojs.services.operate import Changed

CHUNK = 200
_WAITING = frozenset({State.SCHEDULED, State.PENDING, State.AVAILABLE, State.RETRYABLE})
_DUE = frozenset({State.SCHEDULED, State.RETRYABLE})
_LIVE = _WAITING | {State.ACTIVE}

Decide = Callable[[JobRecord, Any], Transition | None]
Make = Callable[[Mapping[str, Any], Actor], Decide]


def _deciding(
    allowed: frozenset[State], make: Make, *, own: bool, tell: Callable[[Changed], str] | None = None
) -> Callable[..., ActionReport]:
    """An operation that is a decision about each job: those in another state are left alone, and
    unless it is for them (``own``) our own jobs. ``tell`` says what became of a job.
    """

    def run(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        decide = make(cleaned, actor)
        report = ActionReport()
        why: dict[UUID, str] = {}

        def guarded(job: JobRecord, now: Any) -> Transition | None:
            # Run again after a lost race: what was said the first time may be true no longer.
            why.pop(job.id, None)
            try:
                if not own:
                    _refuse_own(job)
                if job.state not in allowed:
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
            report.notes += [tell(change) for change in done] if tell is not None else []
            there = {change.before.id for change in changes}
            for key in chunk:
                if key not in there:
                    report.skipped.append(_gone(key))
                elif key in why:
                    report.skipped.append(why[key])
        return report

    return run


class _Refused(Exception):
    """Why a job is left as it is, in the words of the user."""


def _refuse_own(job: JobRecord) -> None:
    if is_own(type=job.type):
        said = _("%s is a job of django_ojs itself: start it again from the list.")
        raise _Refused(said % job.id)


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
    """A new job with the same type and terms; where it comes from is in its meta."""
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


def _retry(cleaned: Mapping[str, Any], actor: Actor) -> Decide:
    expires_at = None if cleaned.get("clear_expiry") else False
    return lambda job, now: operations.retry_dead(job, actor=actor, expires_at=expires_at, now=now)


def _edit(cleaned: Mapping[str, Any], actor: Actor) -> Decide:
    changes: dict[str, Any] = {}
    if cleaned.get("queue"):
        changes["queue"] = cleaned["queue"]
    if cleaned.get("priority") is not None:
        changes["priority"] = cleaned["priority"]
    return lambda job, now: operations.edit(job, changes, actor=actor)


DECISIONS: Mapping[str, tuple[frozenset[State], Make]] = {
    "retry": (frozenset({State.DISCARDED}), _retry),
    "run_now": (
        _DUE,
        lambda cleaned, actor: (
            lambda job, now: operations.reschedule(job, when=now, actor=actor, now=now)
        ),
    ),
    "reschedule": (
        _DUE,
        lambda cleaned, actor: (
            lambda job, now: operations.reschedule(job, when=cleaned["when"], actor=actor, now=now)
        ),
    ),
    "cancel": (
        _LIVE,
        lambda cleaned, actor: lambda job, now: operations.cancel(job, actor=actor, now=now),
    ),
    "extend": (
        frozenset({State.ACTIVE}),
        lambda cleaned, actor: operate.extending(cleaned["by_ms"], actor=actor),
    ),
    "edit": (_WAITING, _edit),
    "discard": (
        _WAITING,
        lambda cleaned, actor: lambda job, now: operations.discard(job, actor=actor, now=now),
    ),
}
"""The operations that are a decision about each job: the states that they are for, and the decision."""
STATES: Mapping[str, frozenset[State]] = {
    **{name: states for name, (states, _make) in DECISIONS.items()},
    "requeue": frozenset(TERMINAL),
    "purge": frozenset(TERMINAL),
}
"""The states that each operation is for."""
_FOR_OWN = frozenset({"cancel", "extend", "discard"})
"""Those for our own jobs too, which act for who started them: not what starts one again."""


def runner(name: str) -> Callable[..., ActionReport]:
    """What does the operation ``name`` to many jobs; also for bulk work."""
    if name == "purge":
        return _purge
    tell = _granted if name == "extend" else None
    return _deciding(*DECISIONS[name], own=name in _FOR_OWN, tell=tell)


def _granted(change: Changed) -> str:
    made = operate.extension(change)
    said = _("%(id)s: %(granted)s granted; told to stop at %(soft)s, ended at %(hard)s.")
    return said % {
        "id": made.job.id,
        "granted": humanize_duration(timedelta(milliseconds=made.extended_by_ms)),
        "soft": format_instant(made.soft_deadline_at),
        "hard": format_instant(made.deadline_at),
    }


def _is(states: frozenset[State], *, own: bool) -> Callable[[Any], bool]:
    return lambda row: row.state in states and (own or not is_own(type=row.type))


def _operation(name: str, label: Any, permission: str, consequence: Any, **more: Any) -> Operation:
    allowed = _is(DECISIONS[name][0], own=name in _FOR_OWN)
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
        allowed=_is(TERMINAL, own=False),
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
        allowed=_is(TERMINAL, own=True),
        back=_KEEP,
        danger=True,
    ),
)
