"""The dashboard, from the roll-up, samples and a few bounded queries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import banner, dashboard_charts, links, live, plots, refresh
from django_ojs.admin.axes import WINDOWS, AxisMark, ChartWindow
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.dashboard_cards import NowCards, of_period, of_types
from django_ojs.admin.dashboard_charts import BacklogCharts
from django_ojs.admin.limits import limited
from django_ojs.admin.links import choices
from django_ojs.domain import histogram
from django_ojs.domain.states import State
from django_ojs.models import Dashboard, DeployMark, MaintenanceRun
from django_ojs.services import (
    deploys,
    health,
    queue_samples,
    reaper,
    rollup,
    stats_queries,
    type_stats,
)
from django_ojs.services.queue_samples import Backlog, Sample
from django_ojs.services.schedules import fire
from django_ojs.services.workers import STALE
from django_ojs.store import selectors


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
            **live.base(request, self.admin_site),
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
        """The cards, and the charts unless the reader has these already."""
        using = self.using
        now = clock.now(using)
        asked = request.GET.get("window")
        window = next((one for one in WINDOWS if one.name == asked), WINDOWS[0])
        runs = {run.name: run for run in MaintenanceRun.objects.using(using).order_by("name")}
        mark = runs.get(rollup.NAME)
        until = (mark and mark.watermark_at) or histogram.floor(now - rollup.LATE, rollup.MINUTE)
        standing = selectors.standing(now - STALE, now - fire.LATE, using=using)
        # What it shows changes with the minute, and with what is counted.
        minute = histogram.floor(now, rollup.MINUTE)
        version = f"{window.name}-{minute.timestamp():.0f}-{until.timestamp():.0f}"
        past: Past | None = None
        if not live.knows(request, "ojs-past", version):
            past = Past(window, until, now, using)
        newest: Mapping[str, Sample] = {}
        if past is not None:
            newest = past.samples.last
        elif standing.counts[State.AVAILABLE] >= selectors.COUNT_CAP:
            newest = queue_samples.newest(using=using)
        problems = health.problems(
            now=now, runs=runs.values(), late_schedules=standing.late_schedules, using=using
        )
        cards = NowCards(request, self.admin_site, now, standing, newest)
        return {
            "cards": cards.cards(runs.get(reaper.NAME)),
            "troubles": [f"{one.problem} {one.remedy}" for one in problems],
            "windows": choices(request, "window", [(w.name, w.label) for w in WINDOWS], window.name),
            "until": until,
            "counted": mark is not None,
            "version": version,
            "past": past and past.shown(request, self.admin_site),
        }


class Past:
    """What happened in a period, read from the roll-up and from samples."""

    def __init__(self, window: ChartWindow, until: datetime, now: datetime, using: str) -> None:
        self._window, self._until = window, until
        begin = window.begin(until)
        self._deploys = [
            AxisMark(row.at, _deployed(row)) for row in deploys.between(begin, now, using=using)
        ]
        self._axis = window.axis(until, self._deploys)
        first, last = begin - window.ago, until - window.ago
        rows = stats_queries.minute_stats(begin, also=(first, last), using=using)
        self._points = histogram.series(rows, begin, window.step, until=until)
        self._whole = histogram.total(self._points, begin)
        before = histogram.total(rows, first, last)
        self._before = before if before.events else None
        self._charts = BacklogCharts(window, now, self._deploys, using)
        steps = window.by_type
        self._types = type_stats.read(histogram.floor(until - window.span, steps), steps, using=using)

    @property
    def samples(self) -> Backlog:
        """What waited."""
        return self._charts.samples

    def shown(self, request: HttpRequest, site: AdminSite) -> dict[str, Any]:
        """The template variables."""
        window, axis, points = self._window, self._axis, self._points
        failures = links.list_for(request, site, "failurestat")
        newest = self.samples.last.get(queue_samples.ALL)
        return {
            "cards": of_period(self._whole, self._before, newest, window, failures),
            "deploys": [mark.text for mark in self._deploys],
            "charts": [
                self._charts.backlog(),
                plots.throughput(window, axis, points, self._before),
                dashboard_charts.waits(axis, points, self.samples),
                dashboard_charts.durations(axis, points),
                self._charts.slots(),
            ],
            "types": of_types(request, site, self._types),
            "types_since": histogram.floor(self._until - window.span, window.by_type),
        }


def _deployed(row: DeployMark) -> str:
    """When what was deployed."""
    at = date_format(timezone.localtime(row.at), "SHORT_DATETIME_FORMAT")
    return f"{at} {row.name or _('deployment')}"
