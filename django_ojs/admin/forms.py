"""The forms of the confirmations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.core import signing
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.domain.durations import parse_instant, parse_seconds_ms
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import MAX_ARGS_BYTES, MAX_META_BYTES, encode
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.reserved import RETRIED_FROM, check_meta_keys, is_own
from django_ojs.services.editing import EDITABLE


@contextmanager
def validating() -> Iterator[None]:
    """Show what the domain refuses as an error of the field."""
    try:
        yield
    except InvalidRequest as error:
        raise forms.ValidationError(error.rule) from error


class ReasonForm(forms.Form):
    """The reason, which every confirmation has, below its other fields."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("Kept with the history and the audit."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"] = self.fields.pop("reason")


class WhenForm(ReasonForm):
    """The time of a rescheduled job."""

    when = forms.CharField(
        label=gettext_lazy("When"),
        help_text=gettext_lazy("A time with a zone (2026-02-12T10:30:00Z), or from now: 10m, PT2H."),
    )

    def clean_when(self) -> datetime:
        """A time in RFC 3339, or a duration from now, as in the HTTP API."""
        now = clock.now(conf.current().database)
        with validating():
            return parse_instant(self.cleaned_data["when"], "when", now)[0]


class ExtendForm(ReasonForm):
    """The time that a running attempt gets."""

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

    def clean(self) -> dict[str, Any]:
        """Sets ``by_ms``; typed text wins over the choice, which has a default."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        text = cleaned.get("other") or cleaned.get("by") or ""
        try:
            cleaned["by_ms"] = parse_seconds_ms(text, "by")
        except InvalidRequest as error:
            self.add_error("other", error.rule)
        return cleaned


class RetryForm(ReasonForm):
    """Whether to clear an expiry, which has passed mostly, and to retry unique jobs anyway."""

    clear_expiry = forms.BooleanField(label=gettext_lazy("Clear the absolute expiry"), required=False)
    allow_duplicate = forms.BooleanField(
        label=gettext_lazy("Retry unique jobs although an equal one waits or runs"), required=False
    )


def _queue_name(name: str) -> str:
    if is_own(queue=name):
        raise forms.ValidationError(_("This queue is for the work of django_ojs itself."))
    with validating():
        return check_queue_name(name, "queue")


def _limit(label: Any) -> forms.CharField:
    return forms.CharField(label=label, required=False, help_text=_LIMIT_HELP)


_DEFAULT = "default"
_LIMIT_HELP = gettext_lazy('Seconds, 90s, 20m, PT1H; "default" for the default. Empty: as it is.')


class EditForm(ReasonForm):
    """What a waiting job was enqueued with; what is empty stays as it is."""

    queue = forms.CharField(label=gettext_lazy("Queue"), required=False)
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"), required=False, min_value=-100, max_value=100
    )
    timeout = _limit(gettext_lazy("Timeout"))
    grace_period = _limit(gettext_lazy("Grace period"))
    heartbeat_timeout = _limit(gettext_lazy("Heartbeat timeout"))
    total_timeout = _limit(gettext_lazy("Total timeout"))
    enqueue_ttl = _limit(gettext_lazy("Enqueue TTL"))
    attempt_ttl = _limit(gettext_lazy("Attempt TTL"))
    retry = forms.CharField(
        label=gettext_lazy("Retry"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy('JSON of what changes: {"max_attempts": 9}; "default" for the default.'),
    )

    def clean_queue(self) -> str:
        name: str = self.cleaned_data["queue"]
        return _queue_name(name) if name else ""

    def clean(self) -> dict[str, Any]:
        """At least one of them, each as ``edit()`` takes it."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            options = edited(cleaned)
            from_call("form", (), now=clock.now(conf.current().database), **options)
        except InvalidRequest as error:
            self.add_error(error.field.partition(".")[0], error.rule)
            return cleaned
        if not options:
            raise forms.ValidationError(_("Say what to change."))
        return cleaned


def edited(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``edit()`` that a form asks for. Raises :class:`InvalidRequest`."""
    given = {name: cleaned.get(name) for name in EDITABLE}
    options = {name: value for name, value in given.items() if value not in (None, "")}
    for name, value in options.items():
        if value == _DEFAULT and name != "queue":
            options[name] = None
        elif name == "retry":
            try:
                options[name] = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise InvalidRequest("retry", "must be JSON") from error
    return options


def _check_storable(value: Any, field: str, most: int) -> None:
    """Raise ``ValidationError`` unless the value is JSON without NaN and small enough to be stored."""
    try:
        encode(value, field, max_bytes=most)
    except InvalidRequest as error:
        raise forms.ValidationError(error.message) from error


class JSONField(forms.JSONField):
    """A JSON field that reports values too deep or numbers too long for the parser as invalid."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Not used: always ``True``."""
        return True

    def prepare_value(self, value: Any) -> Any:
        """The value as text, with lone surrogates escaped."""
        text = super().prepare_value(value)
        return text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text

    def bound_data(self, data: Any, initial: Any) -> Any:
        """The submitted text, for a form that is shown again."""
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)


_SALT = "django_ojs.requeue"


def once(job_id: UUID) -> str:
    """The signed id that the new job of a requeue will have, for the form."""
    return signing.dumps([str(job_id), str(clock.new_id())], salt=_SALT)


class RequeueForm(ReasonForm):
    """The new job: its arguments, meta and queue."""

    # Not required: Django treats [] as empty.
    args = JSONField(label=gettext_lazy("Arguments"), required=False)
    meta = JSONField(label=gettext_lazy("Meta"), required=False)
    queue = forms.CharField(label=gettext_lazy("Queue"))
    once = forms.CharField(required=False, widget=forms.HiddenInput)
    """The id of the new job, signed: a form that is submitted twice creates one job."""

    def clean_args(self) -> list[Any]:
        given = self.cleaned_data["args"]
        args: Any = [] if given is None else given
        if not isinstance(args, list):
            raise forms.ValidationError(_("Arguments are a list."))
        _check_storable(args, "args", MAX_ARGS_BYTES)
        return args

    def clean_meta(self) -> dict[str, Any]:
        given = self.cleaned_data["meta"]
        meta: Any = {} if given is None else given
        if not isinstance(meta, dict):
            raise forms.ValidationError(_("Meta is an object."))
        with validating():
            check_meta_keys(meta, "meta")
        lineage = {RETRIED_FROM: str(UUID(int=0))}
        _check_storable({**meta, **lineage}, "meta", MAX_META_BYTES)
        return meta

    def clean_once(self) -> tuple[UUID, UUID] | None:
        try:
            old, new = signing.loads(self.cleaned_data["once"], salt=_SALT)
        except signing.BadSignature:
            return None
        return UUID(old), UUID(new)

    def clean_queue(self) -> str:
        return _queue_name(self.cleaned_data["queue"])


class PurgeForm(ReasonForm):
    """The typed word protects from deleting by mistake."""

    typed = forms.CharField(label=gettext_lazy('Type "purge" to go on'))

    def clean_typed(self) -> str:
        word: str = self.cleaned_data["typed"]
        if word.strip() != "purge":
            raise forms.ValidationError(_('Type "purge".'))
        return word
