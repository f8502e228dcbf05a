"""The screens of rate limits: what is taken, who waits, and an operator's override."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.admin import links
from django_ojs.admin.actions import ActionReport, Operation
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.cells import badge, column, grey
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.forms import ReasonForm, validating
from django_ojs.domain.durations import format_instant, parse_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import Actor
from django_ojs.domain.rate_limit import MAX_CONCURRENCY, MAX_STARTS, parse_rate_limit
from django_ojs.models import RateLimit
from django_ojs.services import reading
from django_ojs.services.phrases import say_limits
from django_ojs.services.rate_limits import operate, read

_MOST_JOBS = 20


class OverrideForm(ReasonForm):
    """The operator's limits."""

    concurrency = forms.IntegerField(
        label=gettext_lazy("At once"), required=False, min_value=0, max_value=MAX_CONCURRENCY
    )
    rate = forms.IntegerField(
        label=gettext_lazy("Starts"), required=False, min_value=0, max_value=MAX_STARTS
    )
    period = forms.CharField(
        label=gettext_lazy("in"), required=False, help_text=gettext_lazy("A duration: 1m, PT1H.")
    )
    until = forms.CharField(
        label=gettext_lazy("Until"),
        required=False,
        help_text=gettext_lazy(
            "A time with a zone (2026-02-12T10:30:00Z), or from now: 10m, PT2H. Empty: for good."
        ),
    )

    def clean_until(self) -> datetime | None:
        """A time in RFC 3339, or a duration from now, as in the HTTP API."""
        given = self.cleaned_data["until"]
        if not given:
            return None
        now = clock.now(conf.current().database)
        with validating():
            until = parse_instant(given, "until", now)[0]
        if until <= now:
            raise forms.ValidationError("must be in the future")
        return until

    def clean(self) -> dict[str, Any]:
        """A limit at least, as an override takes it."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            parse_rate_limit(_limits(cleaned), named=False)
        except InvalidRequest as error:
            field = error.field.rpartition(".")[2]
            self.add_error(field if field in self.fields else None, error.rule)
        return cleaned


def _limits(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    rate, period = cleaned["rate"], cleaned["period"] or None
    limits = {"concurrency": cleaned["concurrency"], "period": period}
    return limits if rate is None else {**limits, "rate": rate}


def _override(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    limits = _limits(cleaned)
    for key in keys:
        operate.override(key, limits, until=cleaned["until"], actor=actor)
    return ActionReport(len(keys))


def _restore(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    for key in keys:
        operate.clear_override(key, actor=actor)
    return ActionReport(len(keys))


class RateLimitChangeList(KeysetChangeList):
    """Reads the states of a page together."""

    def read(self, request: HttpRequest) -> None:
        super().read(request)
        using = reading.database()
        states = read.states(self.result_list, clock.now(using), using)
        for row, state in zip(self.result_list, states, strict=True):
            row.ojs_state = state


@admin.register(RateLimit)
class RateLimitAdmin(OJSModelAdmin):
    """The rate limits by key."""

    list_class = RateLimitChangeList
    keys = (("pk", False),)
    list_display = ("key", "limits", "running", "waiting", "opens")
    search_fields = ("key",)
    search_help_text = gettext_lazy("The whole key.")
    fields = (
        *("key", "limits", "running", "waiting", "opens", "override_until", "override_by"),
        *("blocked_until", "holders", "next_in_line", "created_at", "used_at"),
    )
    operations = (
        Operation(
            "override",
            gettext_lazy("Override"),
            "override_ratelimit",
            gettext_lazy(
                "These limits win over those of the jobs. Jobs that have a place keep it. "
                "0 at once stops the key."
            ),
            _override,
            form=OverrideForm,
        ),
        Operation(
            "restore",
            gettext_lazy("End the override"),
            "override_ratelimit",
            gettext_lazy("The limits that the jobs ask for hold again, at once."),
            _restore,
            allowed=lambda row: row.override is not None,
        ),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        key = search_term.strip()
        return (queryset.filter(pk=key) if key else queryset), False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return tuple(map(str, self.get_fields(request, obj)))

    def _state(self, row: Any) -> read.RateLimitState:
        found: read.RateLimitState | None = getattr(row, "ojs_state", None)
        if found is None:
            found = row.ojs_state = read.state(row, clock.now(self.using), self.using)
        return found

    @column(gettext_lazy("limits"))
    def limits(self, row: Any) -> str:
        """The limits in force."""
        state = self._state(row)
        text = say_limits(state.limits)
        return format_html("{} {}", text, badge("warn", _("override"))) if state.overridden else text

    @column(gettext_lazy("running"))
    def running(self, row: Any) -> str:
        """What is taken."""
        state = self._state(row)
        taken = str(state.running)
        if state.admitted:
            taken += " " + _("+ %d let in") % state.admitted
        return badge("run", taken) if state.full else taken

    @column(gettext_lazy("waiting"))
    def waiting(self, row: Any) -> str:
        """Who waits."""
        count = self._state(row).waiting
        return badge("warn", count) if count else grey("0")

    @column(gettext_lazy("next opening"))
    def opens(self, row: Any) -> str:
        """When somebody is let in because of the time."""
        state = self._state(row)
        if not state.waiting:
            return ""
        if state.opens_at is None:
            return _("when a job ends")
        return format_instant(state.opens_at)

    @admin.display(description=gettext_lazy("jobs with a place"))
    def holders(self, row: Any) -> str:
        return self._jobs(read.holders(row.key, _MOST_JOBS, self.using))

    @admin.display(description=gettext_lazy("next in line"))
    def next_in_line(self, row: Any) -> str:
        return self._jobs(read.next_in_line(row.key, _MOST_JOBS, self.using))

    def _jobs(self, ids: Sequence[Any]) -> str:
        shown = [links.link(links.page_of(self.admin_site, "job", one), one) for one in ids]
        return format_html_join(mark_safe("<br>"), "{}", ((one,) for one in shown)) if shown else "—"
