"""The forms of the confirmations."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID

from django import forms
from django.core import signing
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.domain.durations import parse_instant, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import MAX_ARGS_BYTES, MAX_META_BYTES, encode
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.reserved import RETRIED_FROM, check_meta_keys, is_own

T = TypeVar("T")


class ReasonForm(forms.Form):
    """The reason, which every confirmation has."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("Kept with the history and the audit."),
    )


def _moment(value: str) -> Any:
    """A time in RFC 3339, or a duration from now, as in the HTTP API."""
    try:
        return parse_instant(value, "when", clock.now(conf.current().database))[0]
    except InvalidRequest as error:
        raise forms.ValidationError(error.rule) from error


class WhenForm(ReasonForm):
    """The time of a rescheduled job."""

    when = forms.CharField(
        label=gettext_lazy("When"),
        help_text=gettext_lazy("A time with a zone (2026-02-12T10:30:00Z), or from now: 10m, PT2H."),
    )
    field_order = ("when", "reason")

    def clean_when(self) -> Any:
        """The time as a ``datetime``."""
        return _moment(self.cleaned_data["when"])


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
    field_order = ("by", "other", "reason")

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
    """Whether to clear an expiry, which has passed mostly."""

    clear_expiry = forms.BooleanField(label=gettext_lazy("Clear the absolute expiry"), required=False)
    field_order = ("clear_expiry", "reason")


def _queue_name(name: str) -> str:
    if is_own(queue=name):
        raise forms.ValidationError(_("This queue is for the work of django_ojs itself."))
    try:
        return check_queue_name(name, "queue")
    except InvalidRequest as error:
        raise forms.ValidationError(error.rule) from error


class PlaceForm(ReasonForm):
    """A new queue, a new priority, or both."""

    queue = forms.CharField(label=gettext_lazy("Queue"), required=False)
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"), required=False, min_value=-100, max_value=100
    )
    field_order = ("queue", "priority", "reason")

    def clean_queue(self) -> str:
        """A queue name, or nothing."""
        name: str = self.cleaned_data["queue"]
        return _queue_name(name) if name else ""

    def clean(self) -> dict[str, Any]:
        """At least one of the two."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not cleaned.get("queue") and cleaned.get("priority") is None and not self.errors:
            raise forms.ValidationError(_("Say a queue, a priority, or both."))
        return cleaned


def _storable(value: T, stored: Any, field: str, most: int) -> T:
    """The value, if it is JSON without NaN and small enough to be stored."""
    try:
        encode(stored, field, max_bytes=most)
    except InvalidRequest as error:
        raise forms.ValidationError(error.message) from error
    return value


class JSONField(forms.JSONField):
    """A JSON field that reports values too deep or numbers too long for the parser as invalid."""

    def to_python(self, value: Any) -> Any:
        """The parsed value."""
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
    field_order = ("args", "meta", "queue", "reason")

    def clean_args(self) -> list[Any]:
        """The arguments, which must be a list."""
        value = self.cleaned_data["args"]
        value = [] if value is None else value
        if not isinstance(value, list):
            raise forms.ValidationError(_("Arguments are a list."))
        return _storable(value, value, "args", MAX_ARGS_BYTES)

    def clean_meta(self) -> dict[str, Any]:
        """The meta, which must be an object."""
        value = self.cleaned_data["meta"]
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise forms.ValidationError(_("Meta is an object."))
        try:
            check_meta_keys(value, "meta")
        except InvalidRequest as error:
            raise forms.ValidationError(error.rule) from error
        lineage = {RETRIED_FROM: str(UUID(int=0))}
        return _storable(value, {**value, **lineage}, "meta", MAX_META_BYTES)

    def clean_once(self) -> tuple[UUID, UUID] | None:
        """The id of the old job and that of the new one."""
        try:
            old, new = signing.loads(self.cleaned_data["once"], salt=_SALT)
        except signing.BadSignature:
            return None
        return UUID(old), UUID(new)

    def clean_queue(self) -> str:
        """The validated queue name."""
        return _queue_name(self.cleaned_data["queue"])


class PurgeForm(ReasonForm):
    """The typed word protects from deleting by mistake."""

    typed = forms.CharField(label=gettext_lazy('Type "purge" to go on'))
    field_order = ("typed", "reason")

    def clean_typed(self) -> str:
        """The word, which must be ``purge``."""
        word: str = self.cleaned_data["typed"]
        if word.strip() != "purge":
            raise forms.ValidationError(_('Type "purge".'))
        return word
