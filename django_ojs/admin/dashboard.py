"""The dashboard, from the roll-up and a few bounded queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
from django_ojs.admin import charts, links, refresh
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.charts import Series, at_least, plain
from django_ojs.admin.clocks import humanize_duration
from django_ojs.admin.limits import limited
from django_ojs.admin.links import choices
from django_ojs.domain import histogram
from django_ojs.domain.states import State
from django_ojs.models import Dashboard, MaintenanceRun
from django_ojs.services import reaper, rollup, stats_queries
from django_ojs.services.explain import describe_problem
from django_ojs.services.workers import STALE
from django_ojs.store import selectors


@dataclass(frozen=True, slots=True)
class ChartWindow:
    """A choice of the period that the charts cover."""

    name: str
    label: Any
    span: timedelta
    step: timedelta
    labels: str
    """The format of the time labels."""


WINDOWS: Mapping[str, ChartWindow] = {
    "1h": ChartWindow("1h", gettext_lazy("1 hour"), timedelta(hours=1), timedelta(minutes=1), "H:i"),
    "24h": ChartWindow(
        "24h", gettext_lazy("24 hours"), timedelta(hours=24), timedelta(minutes=15), "D H:i"
    ),
    "7d": ChartWindow("7d", gettext_lazy("7 days"), timedelta(days=7), timedelta(hours=2), "D j. H:i"),
}


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its label, and a link to its rows."""

    label: str
    value: str
    note: str = ""
    tone: str = ""
    url: str = ""


def context_of(page: admin.ModelAdmin[Any], request: HttpRequest, title: Any) -> dict[str, Any]:
    """Template variables of every page, with the refresh interval."""
    request.current_app = page.admin_site.name
    return {
        **page.admin_site.each_context(request),
        "title": title,
        "opts": page.opts,
        **refresh.context(request),
    }


@admin.register(Dashboard)
class DashboardAdmin(OJSModelAdmin):
    """The dashboard in place of a list."""

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Users with permission to view the per-minute statistics."""
        return bool(request.user.has_perm("django_ojs.view_minutestat"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page: ``?window=1h|24h|7d`` and ``?refresh=10|30|60|off``."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = limited(self, request, _("Dashboard"), lambda: self.shown(request))
        if isinstance(found, HttpResponse):
            return found
        context = {**context_of(self, request, _("Dashboard")), **found, **(extra_context or {})}
        return TemplateResponse(request, "admin/django_ojs/dashboard.html", context)

    def shown(self, request: HttpRequest) -> dict[str, Any]:
        """The cards and charts."""
        using = self.using
        now = clock.now(using)
        window = WINDOWS.get(request.GET.get("window", ""), WINDOWS["1h"])
        runs = {run.name: run for run in MaintenanceRun.objects.using(using).filter(name__in=_RUNS)}
        mark = runs.get(rollup.NAME)
        until = (mark and mark.watermark_at) or histogram.floor(now - rollup.LATE, rollup.MINUTE)
        # Every period is at least an hour, so the last hour is among these minutes.
        begin = until - window.span
        minutes = stats_queries.minute_stats(histogram.floor(begin, window.step), using=using)
        hour = histogram.total(minutes, until - timedelta(hours=1))
        last_scan = runs.get(reaper.NAME)
        return {
            "cards": self.cards(request, now, hour, last_scan),
            "troubles": [describe_problem(problem) for problem in reaper.problems_of(last_scan, now)],
            "windows": choices(
                request, "window", [(w.name, w.label) for w in WINDOWS.values()], window.name
            ),
            "window": window,
            "until": until,
            "counted": mark is not None,
            "charts": draw(histogram.series(minutes, begin, window.step, until=until), window),
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
        late = deadline is not None and now - deadline > timedelta(seconds=5)
        failures = self._link(request, "failurestat")
        return [
            Card(_("Running"), _capped(active), url=self._link(request, "job", state=State.ACTIVE)),
            Card(_("Waiting"), _capped(waiting), url=self._link(request, "job", state=State.AVAILABLE)),
            Card(
                _("Oldest wait"),
                "—" if oldest is None else _first_of(waiting) + humanize_duration(_age(now, oldest)),
                _("of %s jobs looked at") % plain(waiting) if waiting >= selectors.COUNT_CAP else "",
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
                _("never")
                if last_scan is None
                else _("%s ago") % humanize_duration(_age(now, last_scan.last_run_at)),
                _("a deadline is overdue by %s") % humanize_duration(now - deadline)
                if late and deadline
                else "",
                _bad(late),
            ),
        ]

    def _link(self, request: HttpRequest, model: str, **query: str) -> str:
        return links.list_for(request, self.admin_site, model, **query)


_RUNS = (reaper.NAME, rollup.NAME)
_SECONDS = (0.01, 0.02, 0.1, 0.2, 1, 2, 10, 20, 60, 120, 600, 1200, 3600, 7200)
_ENDS = [1000 * seconds for seconds in _SECONDS]


def draw(points: Sequence[histogram.SeriesPoint], window: ChartWindow) -> list[Any]:
    """Charts of the throughput, and of the percentiles of run and wait times."""
    labels = [date_format(timezone.localtime(point.at), window.labels) for point in points]
    took = [point.duration_ms for point in points]
    waited = [point.wait_ms for point in points]
    median, most = _("median"), _("95th percentile")
    step = humanize_duration(window.step)
    return [
        charts.stacked_bars(
            _("Ended jobs and failed attempts in each %s") % step,
            labels,
            [
                Series(_("completed"), [point.completed for point in points], "good"),
                Series(_("failed"), [point.failed for point in points], "bad"),
            ],
        ),
        charts.line_chart(
            _("How long completed jobs took"),
            labels,
            [
                Series(median, [pair[0] for pair in took], area=True),
                Series(most, [pair[1] for pair in took], "warn", dashed=True),
            ],
            milliseconds,
            _ENDS,
        ),
        charts.line_chart(
            _("How long completed jobs had waited"),
            labels,
            [
                Series(median, [pair[0] for pair in waited], area=True),
                Series(most, [pair[1] for pair in waited], "warn", dashed=True),
            ],
            milliseconds,
            _ENDS,
        ),
    ]


def milliseconds(value: float) -> str:
    """A span given in milliseconds."""
    if 0 < value < 1000:
        return _("%s ms") % plain(float(f"{value:.3g}"))
    return humanize_duration(timedelta(milliseconds=value))


def _capped(count: int) -> str:
    return at_least(count) if count >= selectors.COUNT_CAP else plain(count)


def _first_of(count: int) -> str:
    """A mark for a figure that covers only the counted jobs."""
    return "≥ " if count >= selectors.COUNT_CAP else ""


def _bad(value: Any) -> str:
    return "bad" if value else ""


def _age(now: datetime, then: datetime) -> timedelta:
    return max(now - then, timedelta(0))
