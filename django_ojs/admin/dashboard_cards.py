"""The figures of the dashboard: how things stand, what a period came to, what took the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_ojs.admin import links
from django_ojs.admin.axes import ChartWindow
from django_ojs.admin.charts import at_least, milliseconds, percent, plain, spread
from django_ojs.admin.job_links import search_for
from django_ojs.domain import histogram
from django_ojs.domain.histogram import Counters
from django_ojs.domain.states import State
from django_ojs.domain.workflow import WorkflowState
from django_ojs.models import Job, MaintenanceRun
from django_ojs.services.phrases import humanize_duration
from django_ojs.services.queue_samples import ALL, Sample
from django_ojs.services.totals import REST
from django_ojs.services.type_stats import Figures, TypeFigures
from django_ojs.store import selectors
from django_ojs.store.selectors import Overview

ENOUGH = 0.95
"""The share of attempts that succeed below which something is wrong."""
TOP_TYPES = 10
_OVERDUE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its label, and a link to its rows."""

    label: Any
    value: str
    note: str = ""
    tone: str = ""
    url: str = ""


class NowCards:
    """How things stand."""

    def __init__(
        self,
        request: HttpRequest,
        site: AdminSite,
        now: datetime,
        standing: Overview,
        newest: Mapping[str, Sample],
    ) -> None:
        self._request, self._site = request, site
        self._now, self._standing, self._newest = now, standing, newest

    def cards(self, last_scan: MaintenanceRun | None) -> list[Card]:
        """In the order of importance."""
        standing = self._standing
        active, waiting = standing.counts[State.ACTIVE], standing.counts[State.AVAILABLE]
        workers, late = standing.live_workers, standing.late_schedules
        return [
            self._jobs(State.AVAILABLE),
            self._oldest(),
            self._jobs(State.ACTIVE, _("of %s slots") % plain(standing.slots) if workers else ""),
            Card(
                _("Live workers"),
                plain(workers),
                tone=_bad(not workers and bool(active or waiting)),
                url=self._link("worker"),
            ),
            self._jobs(State.RETRYABLE),
            Card(
                _("Running workflows"),
                _capped(standing.workflows),
                url=self._link("workflow", state__exact=WorkflowState.RUNNING),
            ),
            Card(_("Late schedules"), plain(late), tone=_bad(late), url=self._link("schedule")),
            self._reaper(last_scan),
        ]

    def _jobs(self, state: State, note: str = "") -> Card:
        label = capfirst(str(Job.States(state).label))
        return Card(
            label, _capped(self._standing.counts[state]), note, url=self._link("job", state=state)
        )

    def _oldest(self) -> Card:
        """Where there are too many to look at all, as the last sample of each queue found it."""
        standing, sample = self._standing, self._newest.get(ALL)
        waiting = standing.counts[State.AVAILABLE]
        capped = waiting >= selectors.COUNT_CAP
        waited = None if standing.oldest is None else self._now - standing.oldest
        note = ""
        if capped and sample is not None:
            waited = max(waited or timedelta(0), timedelta(milliseconds=sample.oldest_ms))
            capped = sample.capped
        elif capped:
            note = _("of %s jobs looked at") % plain(waiting)
        name = max(
            self._newest, key=lambda queue: (queue != ALL, self._newest[queue].oldest_ms), default=""
        )
        if name and sample is not None and self._newest[name].oldest_ms == sample.oldest_ms > 0:
            note = note or pgettext("queue", "in %s") % name
        query = {"queue": name} if name else {}
        return Card(
            _("Oldest wait"),
            "—" if waited is None else ("≥ " if capped else "") + _age(waited),
            note,
            url=self._link("job", state=State.AVAILABLE, **query),
        )

    def _reaper(self, last_scan: MaintenanceRun | None) -> Card:
        deadline = self._standing.next_deadline
        overdue = timedelta(0) if deadline is None else self._now - deadline
        late = overdue > _OVERDUE
        return Card(
            _("Reaper last ran"),
            _("never") if last_scan is None else _("%s ago") % _age(self._now - last_scan.last_run_at),
            _("a deadline is overdue by %s") % _age(overdue) if late else "",
            _bad(late),
        )

    def _link(self, model: str, **query: str) -> str:
        return links.list_for(self._request, self._site, model, **query)


def of_period(
    whole: Counters, before: Counters | None, newest: Sample | None, window: ChartWindow, failures: str
) -> list[Card]:
    """What a period came to, beside what was ``before``; ``failures`` is where they are listed."""

    def compared(value: Any, write: Any = plain) -> str:
        return "" if value is None else f"{window.before}: {write(value)}"

    def earlier(name: str) -> Any:
        return None if before is None else getattr(before, name)

    share, share_before = succeeded(whole), None if before is None else succeeded(before)
    poor = share is not None and share < ENOUGH
    worse = share is not None and share_before is not None and share < share_before - 0.01
    ages, oldest = ((), 0) if newest is None else (newest.ages, newest.oldest_ms)
    waits = histogram.wait_percentile(whole.waits, ages, oldest, 0.95)
    waits_before = None if before is None else histogram.percentile(before.waits, 0.95)
    timed_out = whole.timed_out > (1 - ENOUGH) * max(1, whole.completed + whole.failed)
    return [
        Card(_("Completed"), plain(whole.completed), compared(earlier("completed"))),
        Card(
            _("Failed attempts"),
            plain(whole.failed),
            compared(earlier("failed")),
            _bad(poor),
            failures,
        ),
        Card(
            _("Attempts that succeeded"),
            "—" if share is None else percent(share),
            compared(share_before, percent),
            "bad" if poor else "warn" if worse else "",
        ),
        Card(
            _("Timed out"),
            plain(whole.timed_out),
            compared(earlier("timed_out")),
            _bad(timed_out),
            failures,
        ),
        Card(
            _("Wait, 95th percentile"),
            "—" if waits is None else milliseconds(waits),
            compared(waits_before, milliseconds),
        ),
    ]


def succeeded(counters: Counters | TypeFigures) -> float | None:
    """The share of attempts that succeeded, ``None`` without any."""
    attempts = counters.completed + counters.failed
    return counters.completed / attempts if attempts else None


class TypeRow(NamedTuple):
    """What the table of job types says of one, or of all others."""

    name: str
    url: str
    completed: str
    failed: str
    tone: str
    succeeded: str
    median: str
    most: str
    spread: SafeString
    """The durations as a histogram."""
    share: int
    """Percent of the time of all attempts."""
    busy: str


def of_types(request: HttpRequest, site: AdminSite, figures: Figures) -> list[TypeRow]:
    """The job types that took the most time, and the others together."""
    ranked = sorted(figures, key=lambda name: (name == REST, -figures[name].busy_ms, name))
    shown, others = ranked[:TOP_TYPES], ranked[TOP_TYPES:]
    whole, rest = TypeFigures(), TypeFigures()
    for name in ranked:
        whole.add(figures[name])
    if REST in shown:
        shown.remove(REST)
        others.append(REST)
    for name in others:
        rest.add(figures[name])
    rows = [(name, search_for(request, site, "type", name), figures[name]) for name in shown]
    if others:
        rows.append((_("all others"), "", rest))
    return [_type_row(name, url, one, whole) for name, url, one in rows]


def _type_row(name: str, url: str, figures: TypeFigures, whole: TypeFigures) -> TypeRow:
    share = succeeded(figures)
    spans = [histogram.percentile(figures.durations, part) for part in (0.5, 0.95)]
    median, most = ("—" if span is None else milliseconds(span) for span in spans)
    return TypeRow(
        name,
        url,
        plain(figures.completed),
        plain(figures.failed),
        _bad(share is not None and share < ENOUGH),
        "—" if share is None else percent(share),
        median,
        most,
        spread(figures.durations),
        round(100 * figures.busy_ms / whole.busy_ms) if whole.busy_ms else 0,
        humanize_duration(timedelta(milliseconds=figures.busy_ms)),
    )


def _capped(count: int) -> str:
    return at_least(count) if count >= selectors.COUNT_CAP else plain(count)


def _bad(value: Any) -> str:
    return "bad" if value else ""


def _age(span: timedelta) -> str:
    return humanize_duration(timedelta(seconds=max(0, int(span.total_seconds()))))
