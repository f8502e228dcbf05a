"""The forms of schedules that are made in the admin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import conf
from django_ojs.admin.forms import JSONField, ReasonForm
from django_ojs.domain import schedule
from django_ojs.domain.envelope import Envelope, from_call
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.schedule import ScheduleSpec
from django_ojs.handlers import registry
from django_ojs.models import Schedule
from django_ojs.services.schedules import rows

_FIELDS = {"schedule": "expression", "kwargs": "args"}


class ScheduleForm(ReasonForm):
    """When which job is enqueued."""

    expression = forms.CharField(
        label=gettext_lazy("Schedule"),
        max_length=255,
        help_text=gettext_lazy(
            "Five fields (30 6 * * mon-fri), six with seconds first, @daily, @every 5m."
        ),
    )
    timezone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        initial="UTC",
        help_text=gettext_lazy("A name such as Europe/Berlin."),
    )
    type = forms.CharField(label=gettext_lazy("Job type"), max_length=255)
    # Not required: Django treats [] as empty.
    args = JSONField(label=gettext_lazy("Arguments"), required=False, initial=list)
    queue = forms.CharField(
        label=gettext_lazy("Queue"),
        required=False,
        help_text=gettext_lazy("Empty: that of the job type."),
    )
    overlap = forms.ChoiceField(
        label=gettext_lazy("While the last job has not ended"), choices=Schedule.Overlaps.choices
    )
    catch_up = forms.ChoiceField(
        label=gettext_lazy("Missed ticks that are made up for"),
        choices=Schedule.CatchUps.choices,
        initial=Schedule.CatchUps.ONE,
    )
    description = forms.CharField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=schedule.MAX_DESCRIPTION,
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    template = forms.CharField(required=False, widget=forms.HiddenInput)
    """The schedule whose job has the other options of this one."""

    def clean_args(self) -> list[Any]:
        given = self.cleaned_data["args"]
        args: Any = [] if given is None else given
        if not isinstance(args, list):
            raise forms.ValidationError(_("Arguments are a list."))
        return args

    def clean(self) -> dict[str, Any]:
        """The whole as a schedule; what the handler of this process does not take is refused too."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            spec_from({"name": "form", **cleaned})
            handler = registry.handler_of(cleaned["type"])
            if handler is not None:
                handler.arguments(cleaned["args"], {})
        except InvalidRequest as error:
            field = re.split(r"[.\[]", error.field)[0]
            field = _FIELDS.get(field, field)
            self.add_error(field if field in self.fields else None, error.rule)
        except TypeError as error:
            self.add_error("args", str(error))
        return cleaned


class CopyForm(ScheduleForm):
    """The same with a name of its own."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=255)
    field_order = ("name",)

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if Schedule.objects.using(conf.current().database).filter(pk=name).exists():
            raise forms.ValidationError(_("There is a schedule of this name."))
        return name


def spec_from(cleaned: Mapping[str, Any]) -> ScheduleSpec:
    """The schedule that a form asks for. Raises :class:`InvalidRequest`."""
    options = {name: cleaned[name] for name in ("timezone", "overlap", "catch_up", "description")}
    envelope = from_call(
        cleaned["type"], cleaned["args"], now=schedule.NO_TIME, queue=cleaned["queue"] or None
    )
    known = Schedule.objects.using(conf.current().database).filter(pk=cleaned["template"]).first()
    if known is not None and known.type == cleaned["type"]:
        envelope = _like(known, envelope)
    spec = schedule.make(cleaned["name"], cleaned["expression"], envelope, options)
    if known is None:
        return spec
    # What the form does not have stays as it was; the options of the job are those of its type.
    kept = ("catch_up_within_ms", "jitter_ms", "enabled", "starts_at", "ends_at")
    return replace(spec, **{name: getattr(known, name) for name in kept})


def _like(known: Schedule, envelope: Envelope) -> Envelope:
    return rows.envelope_of(known)._replace(args_json=envelope.args_json, queue=envelope.queue)
