"""What people do to jobs: each decision is made under the row's lock, and a lost race is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.admin.base import Operation, ReasonForm, Report
from django_ojs.domain import operations
from django_ojs.domain.durations import parse_instant, parse_seconds_ms
from django_ojs.domain.envelope import check_queue_name, from_call
from django_ojs.domain.errors import InvalidRequest, OJSError
from django_ojs.domain.job import Actor, JobRecord, Transition
from django_ojs.domain.states import TERMINAL, State
from django_ojs.services import audit, inspect, operate
from django_ojs.services.enqueue import enqueue

CHUNK = 200
_WAITING = frozenset({State.SCHEDULED, State.PENDING, State.AVAILABLE, State.RETRYABLE})
_DUE = frozenset({State.SCHEDULED, State.RETRYABLE})
_LIVE = _WAITING | {State.ACTIVE}

Decide = Callable[[JobRecord, Any], Transition | None]
Make = Callable[[Mapping[str, Any], Actor], Decide]


def _moment(value: str) -> Any:
    """A moment, or a time from now, as the rest of the product reads it."""
    try:
        return parse_instant(value, "when", clock.now(conf.current().database))[0]
    except InvalidRequest as error:
        raise forms.ValidationError(error.rule) from error


class WhenForm(ReasonForm):
    """When to run."""

    when = forms.CharField(
        label=gettext_lazy("When"),
        help_text=gettext_lazy("A time with a zone (2026-02-12T10:30:00Z), or from now: 10m, PT2H."),
    )
    field_order = ("when", "reason")

    def clean_when(self) -> Any:
        """The moment."""
        return _moment(self.cleaned_data["when"])


class ExtendForm(ReasonForm):
    """How much more time."""

    by = forms.ChoiceField(
        label=gettext_lazy("By"),
        choices=[
            ("5m", gettext_lazy("5 minutes")),
            ("15m", gettext_lazy("15 minutes")),
            ("1h", gettext_lazy("1 hour")),
            ("", gettext_lazy("other:")),
        ],
        required=False,
        widget=forms.RadioSelect,
        initial="5m",
    )
    other = forms.CharField(
        label=gettext_lazy("Other"), required=False, help_text=gettext_lazy("Seconds, 90s, 20m, PT1H.")
    )
    field_order = ("by", "other", "reason")

    def clean(self) -> dict[str, Any]:
        """``by_ms``."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        text = cleaned.get("by") or cleaned.get("other") or ""
        try:
            cleaned["by_ms"] = parse_seconds_ms(text, "by")
        except InvalidRequest as error:
            raise forms.ValidationError(error.rule) from error
        return cleaned


class RetryForm(ReasonForm):
    """An expiry that has passed must be replaced or cleared."""

    clear_expiry = forms.BooleanField(label=gettext_lazy("Clear the absolute expiry"), required=False)
    field_order = ("clear_expiry", "reason")


class PlaceForm(ReasonForm):
    """Another queue, another priority."""

    queue = forms.CharField(label=gettext_lazy("Queue"), required=False)
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"), required=False, min_value=-100, max_value=100
    )
    field_order = ("queue", "priority", "reason")

    def clean_queue(self) -> str:
        """A queue name, or nothing."""
        name: str = self.cleaned_data["queue"]
        try:
            return check_queue_name(name, "queue") if name else ""
        except InvalidRequest as error:
            raise forms.ValidationError(error.rule) from error

    def clean(self) -> dict[str, Any]:
        """One of the two at least."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not cleaned.get("queue") and cleaned.get("priority") is None and not self.errors:
            raise forms.ValidationError(_("Say a queue, a priority, or both."))
        return cleaned


class RequeueForm(ReasonForm):
    """The new job: its arguments, meta and queue."""

    # Not required: Django takes [] for nothing.
    args = forms.JSONField(label=gettext_lazy("Arguments"), required=False)
    meta = forms.JSONField(label=gettext_lazy("Meta"), required=False)
    queue = forms.CharField(label=gettext_lazy("Queue"))
    field_order = ("args", "meta", "queue", "reason")

    def clean_args(self) -> list[Any]:
        """A list."""
        value = self.cleaned_data["args"] or []
        if not isinstance(value, list):
            raise forms.ValidationError(_("Arguments are a list."))
        return value

    def clean_meta(self) -> dict[str, Any]:
        """An object."""
        value = self.cleaned_data["meta"] or {}
        if not isinstance(value, dict):
            raise forms.ValidationError(_("Meta is an object."))
        return value


class PurgeForm(ReasonForm):
    """Typed, so that it is not done by mistake."""

    typed = forms.CharField(label=gettext_lazy('Type "purge" to go on'))
    field_order = ("typed", "reason")

    def clean_typed(self) -> str:
        """The word itself."""
        word: str = self.cleaned_data["typed"]
        if word.strip() != "purge":
            raise forms.ValidationError(_('Type "purge".'))
        return word


def _deciding(allowed: frozenset[State], make: Make) -> Callable[..., Report]:
    """An operation that is a decision about each job: those in another state are left alone."""

    def run(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> Report:
        decide = make(cleaned, actor)
        report = Report()

        def guarded(job: JobRecord, now: Any) -> Transition | None:
            if job.state not in allowed:
                report.skipped.append(_left(job))
                return None
            try:
                return decide(job, now)
            except OJSError as error:
                report.skipped.append(f"{job.id}: {error.message}")
                return None

        for start in range(0, len(keys), CHUNK):
            report.skipped, before = [], report.skipped
            changes = operate.change_each(_present(keys[start : start + CHUNK]), guarded)
            report.done += sum(change.before != change.after for change in changes)
            report.skipped = before + report.skipped
        return report

    return run


def _present(keys: Sequence[UUID]) -> list[UUID]:
    """Without those that retention has taken meanwhile."""
    return list(operate.existing(keys))


def _left(job: JobRecord) -> str:
    return _("%(id)s was left as it is: it is %(state)s by now.") % {"id": job.id, "state": job.state}


def _purge(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> Report:
    report = Report()
    for start in range(0, len(keys), CHUNK):
        ended: list[UUID] = []
        for key, job in operate.existing(keys[start : start + CHUNK]).items():
            if job.state in TERMINAL:
                ended.append(key)
            else:
                report.skipped.append(_left(job))
        report.done += len(operate.purge(ended, actor=actor)) if ended else 0
    return report


def _requeue(keys: Sequence[UUID], cleaned: Mapping[str, Any], actor: Actor) -> Report:
    """A new job with the same type and terms; where it comes from is in its meta."""
    using = conf.current().database
    old = inspect.find(keys[0], using=using)
    if old.state not in TERMINAL:
        return Report(skipped=[_left(old)])
    meta = {**cleaned["meta"], "retried_from": str(old.id)}
    options: dict[str, Any] = {"queue": cleaned["queue"], "priority": old.priority, "meta": meta}
    options["retry"] = old.json("retry")
    for name in ("timeout", "heartbeat_timeout"):
        if getattr(old, f"{name.partition('_')[0]}_explicit"):
            options[f"{name}_ms"] = getattr(old, f"{name}_ms")
    for name in ("total_timeout_ms", "enqueue_ttl_ms", "visibility_timeout_ms"):
        options[name] = getattr(old, name)
    options["grace_period"] = f"{old.grace_period_ms}ms"
    now = clock.now(using)
    new = enqueue([from_call(old.type, cleaned["args"], now=now, **options)], now=now)[0]
    audit.note("job.requeued", actor, target=("job", str(old.id)), new_job_id=str(new.id))
    return Report(done=1, target=f"../../../{new.id}/change/")


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
        lambda cleaned, actor: (
            lambda job, now: operations.extend(job, by_ms=cleaned["by_ms"], actor=actor, now=now)
        ),
    ),
    "edit": (_WAITING, _edit),
    "discard": (
        _WAITING,
        lambda cleaned, actor: lambda job, now: operations.discard(job, actor=actor, now=now),
    ),
}
"""The operations that are a decision about each job: the states that they are for, and the decision."""


def runner(name: str) -> Callable[..., Report]:
    """What does the operation ``name`` to many jobs; also for bulk work."""
    if name == "purge":
        return _purge
    return _deciding(*DECISIONS[name])


def _is(states: frozenset[State]) -> Callable[[Any], bool]:
    return lambda row: row.state in states


def _operation(name: str, label: Any, permission: str, consequence: Any, **more: Any) -> Operation:
    allowed = _is(DECISIONS[name][0])
    return Operation(name, label, permission, consequence, runner(name), allowed=allowed, **more)


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
        allowed=_is(frozenset(TERMINAL)),
        single=True,
        also=("view_args",),
    ),
    _operation(
        "cancel",
        gettext_lazy("Cancel"),
        "cancel_job",
        gettext_lazy(
            "Cancelled at once and for good. A running job's worker is told to stop it; "
            "its result will be refused."
        ),
        danger=True,
    ),
    _operation(
        "discard",
        gettext_lazy("Discard"),
        "discard_job",
        gettext_lazy(
            "Waiting jobs are given up. They do not enter the dead letter; a retry is possible."
        ),
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
        allowed=_is(frozenset(TERMINAL)),
        danger=True,
    ),
)
