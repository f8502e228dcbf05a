"""The screens of schedules: when they are due, what became of their ticks; run now, pause, change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext, pgettext_lazy

from django_ojs import clock, conf
from django_ojs.admin import links
from django_ojs.admin.actions import ActionReport, Operation, Run
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.cells import badge, column, grey, since
from django_ojs.admin.redaction import pretty, redacted
from django_ojs.admin.schedule_forms import CopyForm, ScheduleForm, spec_from
from django_ojs.domain.errors import OJSError
from django_ojs.domain.job import Actor
from django_ojs.domain.schedule import ScheduleSource
from django_ojs.models import Schedule, ScheduleRun
from django_ojs.services.schedules import declared, operate, read, rows

_AHEAD = 10
_LAST = 20
_SECONDS = "%Y-%m-%d %H:%M:%S"
_TONES = {
    ScheduleRun.Outcomes.FIRED: "good",
    ScheduleRun.Outcomes.SKIPPED: "quiet",
    ScheduleRun.Outcomes.MISSED: "warn",
    ScheduleRun.Outcomes.REFUSED: "bad",
}


def _each(change: Callable[[Any, Actor], str | None]) -> Run:
    """An operation on each schedule by itself. Those that cannot be changed are skipped, and those of
    which ``change`` returns why nothing had to be.
    """

    def run(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        report = ActionReport()
        for key in keys:
            try:
                left = change(key, actor)
            except OJSError as error:
                left = error.message
            if left is None:
                report.done += 1
            else:
                report.skipped.append(left)
        return report

    return run


def _pause(name: str, actor: Actor) -> str | None:
    _row, changed = operate.pause(name, actor=actor)
    return None if changed else _("The schedule %s was paused already.") % name


def _resume(name: str, actor: Actor) -> str | None:
    _row, changed = operate.resume(name, actor=actor)
    return None if changed else _("The schedule %s was not paused.") % name


def _delete(name: str, actor: Actor) -> None:
    operate.delete(name, actor=actor)


def _run_now(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    report = ActionReport()
    for key in keys:
        try:
            _row, run = operate.run_now(key, actor=actor)
        except OJSError as error:
            report.skipped.append(error.message)
            continue
        if run.job_id is None:
            report.skipped.append(f"{key}: {run.get_outcome_display()}: {run.reason}")
            continue
        report.done += 1
        report.made = str(run.job_id) if len(keys) == 1 else None
    return report


def _put(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    spec = spec_from({"name": keys[0], **cleaned})
    operate.put(spec, source=ScheduleSource.ADMIN, actor=actor)
    return ActionReport(1)


def _copy(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    return _put([cleaned["name"]], cleaned, actor)


def _is_own(row: Schedule) -> bool:
    return not declared.is_declared(row, conf.current().database)


_ADD = Operation(
    "add",
    gettext_lazy("Add a schedule"),
    "add_schedule",
    gettext_lazy("Its jobs are enqueued from the next tick on."),
    _copy,
    form=CopyForm,
)


@admin.register(Schedule)
class ScheduleAdmin(OJSModelAdmin):
    """The schedules by name."""

    keys = (("pk", False),)
    list_display = ("name", "expression", "timezone", "type", "next_run", "last_outcome", "state")
    search_fields = ("name",)
    search_help_text = gettext_lazy("How the name begins.")
    fields = (
        *("name", "state", "expression", "timezone", "type", "queue", "job_options", "overlap"),
        *("catch_up", "source", "description", "paused_by", "pause_reason", "starts_at", "ends_at"),
        *("run_count", "ahead", "history"),
    )
    operations = (
        Operation(
            "run",
            gettext_lazy("Run now"),
            "run_schedule",
            gettext_lazy("Its job is enqueued at once, beside the ticks, whatever the last one does."),
            _run_now,
        ),
        Operation(
            "pause",
            gettext_lazy("Pause"),
            "pause_schedule",
            gettext_lazy("It has no ticks until it is resumed, also after the next deployment."),
            _each(_pause),
            allowed=lambda row: row.paused_at is None,
        ),
        Operation(
            "resume",
            gettext_lazy("Resume"),
            "pause_schedule",
            gettext_lazy("It goes on with the next tick; what passed meanwhile is not made up for."),
            _each(_resume),
            allowed=lambda row: not rows.is_on(row),
        ),
        Operation(
            "edit",
            pgettext_lazy("schedule", "Change"),
            "change_schedule",
            gettext_lazy("What has run, and a pause, stay. The next tick changes with the times only."),
            _put,
            form=ScheduleForm,
            allowed=_is_own,
            single=True,
            also=("view_args",),
        ),
        Operation(
            "copy",
            gettext_lazy("Copy to one of its own"),
            "add_schedule",
            gettext_lazy("A schedule of another name that can be changed here."),
            _copy,
            form=CopyForm,
            single=True,
            also=("view_args",),
        ),
        Operation(
            "remove",
            gettext_lazy("Delete"),
            "delete_schedule",
            gettext_lazy("It has no ticks any more. Its jobs and the record of its runs stay."),
            _each(_delete),
            allowed=_is_own,
            danger=True,
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The list has the last tick of each, by one statement."""
        found: QuerySet[Any] = super().get_queryset(request)
        if not self.is_list(request):
            return found
        runs = ScheduleRun.objects.filter(schedule=OuterRef("pk")).order_by("-tick")
        columns = {"tick": "tick", "result": "outcome", "made": "job_id", "count": "count"}
        last = {f"last_{name}": Subquery(runs.values(column)[:1]) for name, column in columns.items()}
        found = found.annotate(**last)
        return found

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        begins = search_term.strip()
        return (queryset.filter(pk__startswith=begins) if begins else queryset), False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return tuple(map(str, self.get_fields(request, obj)))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """What is empty is left out, and arguments for those who may not see any."""
        hidden = {"paused_by", "pause_reason", "starts_at", "ends_at", "description"}
        hidden = {name for name in hidden if obj is not None and not getattr(obj, name)}
        if not request.user.has_perm("django_ojs.view_args"):
            hidden.add("job_options")
        return tuple(name for name in self.fields if name not in hidden)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Not while the admin is read-only."""
        return self.may(request, _ADD)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A form like that of a copy, empty."""
        if not self.has_add_permission(request):
            return self._refusal(request, _ADD, [])
        form = self._form(request, _ADD)
        if form.is_bound and form.is_valid():
            self._perform(request, _ADD, [], form.cleaned_data)
            page = links.page_of(self.admin_site, "schedule", form.cleaned_data["name"])
            return HttpResponseRedirect(page or self._list_url())
        return self._confirmation(request, _ADD, form, [], [], new=True)

    def operation_initial(self, operation: Operation, row: Any) -> dict[str, Any]:
        """The schedule as it is."""
        if operation.name not in ("edit", "copy"):
            return {}
        envelope = rows.envelope_of(row)
        return {
            "expression": row.expression,
            "timezone": row.timezone,
            "type": row.type,
            "args": json.loads(envelope.args_json),
            "queue": envelope.queue or "",
            "overlap": row.overlap,
            "catch_up": row.catch_up,
            "description": row.description,
            "template": row.pk,
        }

    @column(gettext_lazy("next run"))
    def next_run(self, row: Any) -> str:
        """The next tick that is not left out, here and in its zone."""
        at = rows.next_run(row)
        if at is None:
            return grey("—")
        local = timezone.localtime(at)
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), f"{local:{_SECONDS}}")

    @column(gettext_lazy("last tick"))
    def last_outcome(self, row: Any) -> str:
        """What became of it, with its job."""
        if row.last_tick is None:
            return grey("—")
        run = ScheduleRun(
            tick=row.last_tick, outcome=row.last_result, job_id=row.last_made, count=row.last_count
        )
        return format_html("{} {}", self._outcome(run), since(run.tick, clock.now(self.using)))

    @column(gettext_lazy("state"))
    def state(self, row: Any) -> str:
        """Whether it has ticks, and somebody looks after them."""
        now = clock.now(self.using)
        if row.paused_at is not None:
            return badge("warn", _("paused"))
        if not row.enabled:
            return badge("quiet", _("disabled"))
        if read.is_late(row, now):
            return badge("bad", _("late"))
        if row.due_at is not None:
            return badge("good", pgettext("schedule", "active"))
        ended = row.ends_at is not None and row.ends_at <= now
        return badge("quiet", _("ended")) if ended else badge("warn", _("no process declares it"))

    @admin.display(description=gettext_lazy("job"))
    def job_options(self, row: Any) -> str:
        envelope = rows.envelope_of(row)
        shown = {"args": json.loads(envelope.args_json), "meta": json.loads(envelope.meta_json)}
        return format_html("<pre>{}</pre>", pretty(redacted(shown)))

    @admin.display(description=gettext_lazy("times ahead"))
    def ahead(self, row: Any) -> str:
        """The next ones in its zone and in that of the admin, with what the clocks do."""
        lines = [
            (f"{one.local:%a {_SECONDS} %Z}", f"{timezone.localtime(one.at):{_SECONDS}}", _remark(one))
            for one in read.ahead(row, _AHEAD, clock.now(self.using))
        ]
        if not lines:
            return "—"
        cells = format_html_join("", "<tr><td>{}</td><td>{}</td><td>{}</td></tr>", lines)
        head = format_html(
            '<tr><th>{}</th><th>{}</th><th><span class="visually-hidden">{}</span></th></tr>',
            row.timezone,
            timezone.get_current_timezone_name(),
            _("detail"),
        )
        return _scrolled(_("times ahead"), format_html("{}{}", head, cells))

    @admin.display(description=gettext_lazy("last ticks"))
    def history(self, row: Any) -> str:
        """What became of them."""
        lines = [
            (f"{timezone.localtime(run.tick):{_SECONDS}}", self._outcome(run), run.reason, run.by)
            for run in self._runs(row)[:_LAST]
        ]
        if not lines:
            return "—"
        cells = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            lines,
        )
        return _scrolled(_("last ticks"), cells)

    def _runs(self, row: Any) -> QuerySet[ScheduleRun]:
        return ScheduleRun.objects.using(self.using).filter(schedule=row.pk).order_by("-tick")

    def _outcome(self, run: ScheduleRun) -> str:
        word = run.get_outcome_display()
        text = badge(_TONES[ScheduleRun.Outcomes(run.outcome)], word)
        if run.count > 1:
            text = format_html("{} x {}", text, run.count)
        if run.job_id is None:
            return text
        return links.link(links.page_of(self.admin_site, "job", run.job_id), text)


def _scrolled(name: str, rows: SafeString) -> SafeString:
    """A table that can be wider than a phone: with keys, too, one can scroll to what is beyond."""
    return format_html(
        '<div class="ojs-scroll" role="group" aria-label="{}" tabindex="0">'
        '<table class="ojs-ahead">{}</table></div>',
        name,
        rows,
    )


def _remark(one: read.Ahead) -> str:
    if one.skipped:
        return badge("warn", _("left out: there is no such time on that day"))
    if one.shifted:
        forward = one.shifted.total_seconds() > 0
        return _("the clocks go forward before") if forward else _("the clocks go back before")
    return ""
