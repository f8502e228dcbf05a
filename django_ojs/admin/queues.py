"""The queue screens: depth by state, age of the oldest job, serving workers, pauses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.admin import charts, links
from django_ojs.admin.actions import ActionReport, Operation, Run
from django_ojs.admin.cells import Cell, badge, column, grey, shortened, since
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.details import DetailsAdmin
from django_ojs.domain import histogram
from django_ojs.domain.job import Actor
from django_ojs.domain.states import State
from django_ojs.models import Job, MinuteStat, Queue, Worker
from django_ojs.services import bulk, queues, rollup, stats_queries
from django_ojs.services.workers import STALE
from django_ojs.store import selectors
from django_ojs.store.selectors import QueueDepth

MOST_WORKERS = 1000
MINUTES = 60


@dataclass(frozen=True, slots=True)
class Hour:
    """Completed and failed attempts in each of the last 60 minutes of the roll-up."""

    completed: list[int] = field(default_factory=lambda: [0] * MINUTES)
    failed: list[int] = field(default_factory=lambda: [0] * MINUTES)


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """What the list shows of a queue."""

    depth: QueueDepth
    hour: Hour
    service: str
    """``live``, ``quiet`` or ``none``: the best state among the workers that serve it."""
    now: datetime


def live_workers(now: datetime, using: str) -> list[Any]:
    """The workers with a recent heartbeat that have not stopped, the latest heartbeat first."""
    rows = Worker.objects.using(using).filter(heartbeat_at__gt=now - STALE)
    rows = rows.exclude(phase=Worker.Phase.STOPPED)
    return list(
        rows.only("id", "name", "queues", "types", "phase", "directive", "principal").order_by(
            "-heartbeat_at"
        )[:MOST_WORKERS]
    )


def serving(name: str, workers: Sequence[Any]) -> list[Any]:
    """The workers that take jobs of a queue: those that name it, and those that name none."""
    return [worker for worker in workers if not worker.queues or name in worker.queues]


def takes_bulk_work(workers: Sequence[Any]) -> bool:
    """Whether a worker takes the bulk jobs of the admin; workers over HTTP never do."""
    return any(_claims(worker) and bulk.TYPE in worker.types for worker in serving(bulk.QUEUE, workers))


def _claims(worker: Any) -> bool:
    return bool(worker.phase == Worker.Phase.RUNNING and worker.directive is None)


def last_hour(names: Sequence[str], until: datetime, using: str) -> dict[str, Hour]:
    """The roll-up of several queues by minute, in one statement."""
    since = until - timedelta(minutes=MINUTES)
    found = {name: Hour() for name in names}
    rows = MinuteStat.objects.using(using).filter(step=60, at__gte=since, at__lt=until)
    columns = ("queue", "at", "completed", "failed")
    for name, at, completed, failed in rows.filter(queue__in=names).values_list(*columns):
        place = (at - since) // rollup.MINUTE
        found[name].completed[place] += completed
        found[name].failed[place] += failed
    return found


def overviews(names: Sequence[str], *, using: str) -> dict[str, QueueOverview]:
    """What the list shows of the queues of a page, in four statements for any number of them."""
    if not names:
        return {}
    now = clock.now(using)
    depths = selectors.depths(names, using=using)
    hours = last_hour(names, stats_queries.watermark(now=now, using=using), using)
    workers = live_workers(now, using)
    return {
        name: QueueOverview(depths[name], hours[name], _service(serving(name, workers)), now)
        for name in names
    }


def _service(workers: Sequence[Any]) -> str:
    if not workers:
        return "none"
    return "live" if any(map(_claims, workers)) else "quiet"


class QueueChangeList(KeysetChangeList):
    """The overviews of a page are read for all its rows at once."""

    def read(self, request: HttpRequest) -> None:
        """One page with the overviews of its queues."""
        super().read(request)
        using = conf.current().database
        found = overviews([row.name for row in self.result_list], using=using)
        for row in self.result_list:
            row.ojs_overview = found[row.name]


def _switching(switch: Callable[..., list[str]], otherwise: Any) -> Run:
    """Pauses or resumes queues; ``otherwise`` is shown for those that were so before."""

    def run(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        changed = switch(keys, actor=actor)
        return ActionReport(len(changed), [otherwise % name for name in keys if name not in changed])

    return run


QUEUE_OPERATIONS = (
    Operation(
        "pause",
        gettext_lazy("Pause"),
        "pause_queue",
        gettext_lazy(
            "No more jobs are claimed from the queue; those that run go on, and new ones are accepted. "
            "The total timeout and the time-to-live clocks of its jobs keep running: jobs can expire "
            "while they wait."
        ),
        _switching(queues.pause, gettext_lazy("The queue %s was paused already.")),
        allowed=lambda row: not row.paused,
    ),
    Operation(
        "resume",
        gettext_lazy("Resume"),
        "pause_queue",
        gettext_lazy("Jobs are claimed from the queue again, at once."),
        _switching(queues.resume, gettext_lazy("The queue %s was not paused.")),
        allowed=lambda row: bool(row.paused),
    ),
)


def _jobs_in(state: State) -> Cell:
    """The column with the number of jobs in a state, linked to them."""

    @column(Job.States(state).label)
    def cell(page: Any, row: Any) -> str:
        depth = row.ojs_overview.depth
        text = counted(depth, state)
        url = links.list_of(page.admin_site, "job", state=state, queue=row.name)
        return links.link(url, text) if depth.counts[state] else text

    return cell


@admin.register(Queue)
class QueueAdmin(DetailsAdmin):
    """The queues, by name."""

    operations = QUEUE_OPERATIONS
    list_class = QueueChangeList
    keys = (("pk", False),)
    list_display = (
        "name",
        "badges",
        "available",
        "active",
        "scheduled",
        "retryable",
        "oldest",
        "throughput",
        "failures",
        "paused_because",
    )
    list_filter = ("paused",)
    search_fields = ("name__startswith",)
    search_help_text = gettext_lazy("The beginning of a name.")

    # Columns

    @admin.display(description=gettext_lazy("status"))
    def badges(self, row: Any) -> SafeString:
        """Paused or running, and whether a live worker serves it."""
        return badges(row, row.ojs_overview.service)

    available = _jobs_in(State.AVAILABLE)
    active = _jobs_in(State.ACTIVE)
    scheduled = _jobs_in(State.SCHEDULED)
    retryable = _jobs_in(State.RETRYABLE)

    @column(gettext_lazy("oldest waits"))
    def oldest(self, row: Any) -> str:
        """How long the oldest of the counted available jobs has waited."""
        return oldest(row.ojs_overview.depth, row.ojs_overview.now)

    @column(gettext_lazy("completed, last hour"))
    def throughput(self, row: Any) -> str:
        """Completed attempts by minute."""
        return spark(_("Completed, last hour"), row.ojs_overview.hour.completed, "good")

    @column(gettext_lazy("failed, last hour"))
    def failures(self, row: Any) -> str:
        """Failed attempts by minute."""
        return spark(_("Failed attempts, last hour"), row.ojs_overview.hour.failed, "bad")

    @column(gettext_lazy("paused by"))
    def paused_because(self, row: Any) -> str:
        """Who paused it, when and why."""
        if not row.paused:
            return ""
        when = since(row.paused_at, row.ojs_overview.now)
        reason = shortened(row.reason) or "—"
        return format_html("{} · {} · {}", row.paused_by or "—", when, reason)

    # The page

    def details(self, row: Any) -> dict[str, Any]:
        """Depth by state, the last hour, and the workers that serve the queue."""
        using, site = self.using, self.admin_site
        now = clock.now(using)
        until = stats_queries.watermark(now=now, using=using)
        workers = serving(row.name, live_workers(now, using))
        cap = selectors.AMONG_CAP
        found = selectors.depths([row.name], cap=cap, states=selectors.ALL_STATES, using=using)
        depth = found[row.name]
        begin = until - timedelta(minutes=MINUTES)
        minutes = stats_queries.minute_stats(begin, row.name, using=using)
        points = histogram.series(minutes, begin, rollup.MINUTE, until=until)
        return {
            "queue": row,
            "badges": badges(row, _service(workers)),
            "paused_at": since(row.paused_at, now),
            "oldest": oldest(depth, now),
            "partly": State.AVAILABLE in depth.capped,
            "counts": [
                (
                    label,
                    counted(depth, state),
                    links.list_of(site, "job", state=state, queue=row.name),
                )
                for state, label in Job.States.choices
            ],
            "cap": charts.plain(cap),
            "chart": charts.throughput(
                _("Ended jobs and failed attempts in each minute"),
                [date_format(timezone.localtime(point.at), "H:i") for point in points],
                points,
            ),
            "workers": [
                {
                    "name": worker.name,
                    "url": links.page_of(site, "worker", worker.pk),
                    "phase": worker.get_phase_display(),
                    "all": not worker.queues,
                }
                for worker in workers[:50]
            ],
            "more_workers": max(0, len(workers) - 50),
        }


def badges(row: Any, service: str) -> SafeString:
    """The status of a queue as coloured words."""
    said = [("warn", _("paused")) if row.paused else ("good", _("running"))]
    if service == "none":
        said.append(("bad", _("no live workers")))
    elif service == "quiet":
        said.append(("warn", _("all workers are quiet")))
    return format_html_join(" ", "{}", ((badge(*one),) for one in said))


def spark(title: str, values: Sequence[int], tone: str) -> SafeString:
    """The sum and a sparkline; a grey zero when there is nothing to draw."""
    total = sum(values)
    if not total:
        return grey(0)
    return format_html("{} {}", charts.plain(total), charts.sparkline(title, values, tone))


def counted(depth: QueueDepth, state: str) -> SafeString:
    """The number of jobs, or a lower bound; grey when none was found among the rows examined."""
    count = depth.counts[state]
    if state not in depth.capped:
        return format_html("{}", charts.plain(count))
    text = charts.at_least(count)
    return format_html("{}", text) if count else grey(text)


def oldest(depth: QueueDepth, now: datetime) -> SafeString:
    """How long the oldest available job has waited, or a lower bound."""
    mark = "≥ " if depth.oldest is not None and State.AVAILABLE in depth.capped else ""
    return format_html("{}{}", mark, since(depth.oldest, now))
