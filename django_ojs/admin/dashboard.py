"""The dashboard, from the roll-up and a few bounded queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import banner, dashboard_charts, links, plots, refresh
from django_ojs.admin.axes import WINDOWS, AxisMark
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.dashboard_charts import BacklogCharts
from django_ojs.admin.limits import limited
from django_ojs.admin.links import choices
from django_ojs.domain import histogram
from django_ojs.domain.states import State
from django_ojs.models import Dashboard, DeployMark, MaintenanceRun
from django_ojs.services import deploys, health, reaper, rollup, stats_queries
from django_ojs.services.phrases import humanize_duration
from django_ojs.services.workers import STALE
from django_ojs.store import selectors


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its label, and a link to its rows."""

    label: str
    value: str
    note: str = ""
    tone: str = ""
    url: str = ""


class FiguresAdmin(OJSModelAdmin):
    """A page of figures in place of a list."""

    title: ClassVar[Any]
    template: ClassVar[str]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page, with the refresh interval."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = limited(self, request, self.title, lambda: self.shown(request))
        if isinstance(found, HttpResponse):
            return found
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": self.title,
            "opts": self.opts,
            **refresh.context(request),
            **banner.head(self, request),
            **found,
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.template, context)

    def shown(self, request: HttpRequest) -> dict[str, Any]:
        """The figures, as template variables."""
        raise NotImplementedError


@admin.register(Dashboard)
class DashboardAdmin(FiguresAdmin):
    """The dashboard: ``?window=1h|24h|7d|30d`` and ``?refresh=5|10|30|60|off``."""

    title = gettext_lazy("Dashboard")
    template = "admin/django_ojs/dashboard.html"

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Users with permission to view the per-minute statistics."""
        return bool(request.user.has_perm("django_ojs.view_minutestat"))

    def shown(self, request: HttpRequest) -> dict[str, Any]:
        """The cards and charts."""
        using = self.using
        now = clock.now(using)
        asked = request.GET.get("window")
        window = next((one for one in WINDOWS if one.name == asked), WINDOWS[0])
        runs = {run.name: run for run in MaintenanceRun.objects.using(using).order_by("name")}
        mark = runs.get(rollup.NAME)
        until = (mark and mark.watermark_at) or histogram.floor(now - rollup.LATE, rollup.MINUTE)
        # Every period is at least an hour, so the last hour is among these minutes.
        begin = window.begin(until)
        marks = [AxisMark(row.at, _deployed(row)) for row in deploys.between(begin, now, using=using)]
        axis = window.axis(until, marks)
        minutes = stats_queries.minute_stats(axis.begin, using=using)
        points = histogram.series(minutes, axis.begin, window.step, until=until)
        samples = BacklogCharts(window, now, marks, using)
        hour = histogram.total(minutes, until - timedelta(hours=1))
        last_scan = runs.get(reaper.NAME)
        return {
            "cards": self.cards(request, now, hour, last_scan),
            "troubles": [
                f"{one.problem} {one.remedy}"
                for one in health.problems(now=now, runs=runs.values(), using=using)
            ],
            "windows": choices(request, "window", [(w.name, w.label) for w in WINDOWS], window.name),
            "window": window,
            "until": until,
            "deploys": [mark.text for mark in marks],
            "counted": mark is not None,
            "charts": [
                samples.backlog(),
                plots.throughput(axis, window.each, points),
                dashboard_charts.waits(axis, points, samples.samples),
                dashboard_charts.durations(axis, points),
                samples.slots(),
            ],
        }

    def cards(
        self,
        request: HttpRequest,
        now: datetime,
        hour: histogram.Counters,
        last_scan: MaintenanceRun | None,
    ) -> list[Card]:
        """The current state, and sums over the last hour of the roll-up."""
        standing = selectors.standing(now - STALE, using=self.using)
        workers, oldest, deadline = standing.live_workers, standing.oldest, standing.next_deadline
        active, waiting = standing.counts[State.ACTIVE], standing.counts[State.AVAILABLE]
        capped = waiting >= selectors.COUNT_CAP
        late = deadline is not None and now - deadline > timedelta(seconds=5)
        failures = self._link(request, "failurestat")
        return [
            Card(_("Running"), _capped(active), url=self._link(request, "job", state=State.ACTIVE)),
            Card(_("Waiting"), _capped(waiting), url=self._link(request, "job", state=State.AVAILABLE)),
            Card(
                _("Oldest wait"),
                "—" if oldest is None else ("≥ " if capped else "") + _age(now, oldest),
                _("of %s jobs looked at") % plain(waiting) if capped else "",
            ),
            Card(_("Failed, last hour"), plain(hour.failed), "", _bad(hour.failed), failures),
            Card(_("Timed out, last hour"), plain(hour.timed_out), "", _bad(hour.timed_out), failures),
            Card(_("Completed, last hour"), plain(hour.completed)),
            Card(
                _("Live workers"),
                plain(workers),
                tone=_bad(not workers and bool(active or waiting)),
                url=self._link(request, "worker"),
            ),
            Card(
                _("Reaper last ran"),
                _("never") if last_scan is None else _("%s ago") % _age(now, last_scan.last_run_at),
                _("a deadline is overdue by %s") % humanize_duration(now - deadline)
                if late and deadline
                else "",
                _bad(late),
            ),
        ]

    def _link(self, request: HttpRequest, model: str, **query: str) -> str:
        return links.list_for(request, self.admin_site, model, **query)


def _deployed(row: DeployMark) -> str:
    """When what was deployed."""
    at = date_format(timezone.localtime(row.at), "SHORT_DATETIME_FORMAT")
    return f"{at} {row.name or _('deployment')}"


def _capped(count: int) -> str:
    return at_least(count) if count >= selectors.COUNT_CAP else plain(count)


def _bad(value: Any) -> str:
    return "bad" if value else ""


def _age(now: datetime, then: datetime) -> str:
    return humanize_duration(max(now - then, timedelta(0)))
