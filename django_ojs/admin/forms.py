"""What confirmations ask: times, places, arguments, and a reason."""

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
from django_ojs.domain.envelope import check_queue_name
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import MAX_ARGS_BYTES, MAX_META_BYTES, encode
from django_ojs.domain.reserved import RETRIED_FROM, check_meta_keys, is_own

T = TypeVar("T")


class ReasonForm(forms.Form):
    """What every confirmation asks."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("Kept with the history and the audit."),
    )


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
        """``by_ms``; what was typed counts more than the choice, of which one is always made."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        text = cleaned.get("other") or cleaned.get("by") or ""
        try:
            cleaned["by_ms"] = parse_seconds_ms(text, "by")
        except InvalidRequest as error:
            self.add_error("other", error.rule)
        return cleaned


class RetryForm(ReasonForm):
    """An expiry that has passed must be replaced or cleared."""

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
    """Another queue, another priority."""

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
        """One of the two at least."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not cleaned.get("queue") and cleaned.get("priority") is None and not self.errors:
            raise forms.ValidationError(_("Say a queue, a priority, or both."))
        return cleaned


def _storable(value: T, stored: Any, field: str, most: int) -> T:
    """The value, if it can be stored: no NaN, not too large."""
    try:
        encode(stored, field, max_bytes=most)
    except InvalidRequest as error:
        raise forms.ValidationError(error.message) from error
    return value


class JSONField(forms.JSONField):
    """JSON that can also be too deep for the parser, or have a number of too many digits."""

    def to_python(self, value: Any) -> Any:
        """The value."""
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Nobody asks."""
        return True

    def prepare_value(self, value: Any) -> Any:
        """As text; with escapes for halves of characters, which are no text."""
        text = super().prepare_value(value)
        return text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed, for the form that is shown again."""
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)


_SALT = "django_ojs.requeue"


def once(job_id: UUID) -> str:
    """The id that the new job of a requeue will have, for the form."""
    return signing.dumps([str(job_id), str(clock.new_id())], salt=_SALT)


class RequeueForm(ReasonForm):
    """The new job: its arguments, meta and queue."""

    # Not required: Django takes [] for nothing.
    args = JSONField(label=gettext_lazy("Arguments"), required=False)
    meta = JSONField(label=gettext_lazy("Meta"), required=False)
    queue = forms.CharField(label=gettext_lazy("Queue"))
    once = forms.CharField(required=False, widget=forms.HiddenInput)
    """The id of the new job, signed: the form sent twice makes one job."""
    field_order = ("args", "meta", "queue", "reason")

    def clean_args(self) -> list[Any]:
        """A list."""
        value = self.cleaned_data["args"]
        value = [] if value is None else value
        if not isinstance(value, list):
            raise forms.ValidationError(_("Arguments are a list."))
        return _storable(value, value, "args", MAX_ARGS_BYTES)

    def clean_meta(self) -> dict[str, Any]:
        """An object."""
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
        """A queue name."""
        return _queue_name(self.cleaned_data["queue"])


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
