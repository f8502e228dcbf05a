"""The workers as a board, the worst first: how busy they are, their memory, what each of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin import board, links
from django_ojs.admin.cells import Column, badge, grey, shortened, since
from django_ojs.admin.links import SiteLinks
from django_ojs.domain.states import State
from django_ojs.models import Job, Worker
from django_ojs.services import deploys, reading
from django_ojs.services.workers import STALE
from django_ojs.store import selectors

MOST_SHOWN = 100
"""Workers on one page of the board."""
MOST_JOBS = 3
"""Jobs that the row of a worker names."""
_READ = 2000
_TONES = ("", "warn", "warn", "bad")
"""By how bad it is."""
_PHASE = Worker.Phase
STALE_STATUS = "stale"
STATUSES: Mapping[str, tuple[Any, str]] = {
    _PHASE.RUNNING: (gettext_lazy("running"), "good"),
    _PHASE.QUIET: (gettext_lazy("quiet"), "warn"),
    _PHASE.DRAIN: (gettext_lazy("draining"), "warn"),
    _PHASE.TERMINATE: (gettext_lazy("terminating"), "warn"),
    STALE_STATUS: (gettext_lazy("stale"), "bad"),
    _PHASE.STOPPED: (gettext_lazy("stopped"), "quiet"),
}
"""The statuses of a worker, with the word and the colour of its badge."""
DIRECTIVES = {"quiet": gettext_lazy("told to be quiet"), "terminate": gettext_lazy("told to stop")}


def status(row: Any, now: datetime) -> str:
    """The phase that a worker reported last, or ``stale`` without a recent heartbeat."""
    if row.phase != _PHASE.STOPPED and now - row.heartbeat_at > STALE:
        return STALE_STATUS
    return str(row.phase)


def badges(row: Any, now: datetime) -> SafeString:
    """The status and the directive as coloured words."""
    found = status(row, now)
    word, tone = STATUSES.get(found, (found, "quiet"))
    if not row.directive:
        return badge(tone, word)
    directive = DIRECTIVES.get(row.directive, row.directive)
    return format_html("{} {}", badge(tone, word), badge("warn", directive))


@dataclass(slots=True)
class WorkerOverview:
    """What the board shows of a worker beside its row; the jobs are those that began first."""

    now: datetime
    jobs: list[Job] = field(default_factory=list)
    newest: str = ""
    """The version of the worker of its client that started last."""

    @property
    def overdue(self) -> int:
        """How many of its jobs have a deadline that has passed."""
        return sum(job.deadline_at is not None and job.deadline_at < self.now for job in self.jobs)

    def is_old(self, row: Any) -> bool:
        """Whether another version was started later."""
        return deploys.version_of(row.version, row.labels) != self.newest

    def trouble(self, row: Any) -> int:
        """How bad it is: 3 for a silent worker that has jobs, 2 for one that is silent or has a job
        over its deadline, 1 for one that is stopping, told to, or of an old version, else 0; -1 if it
        has stopped.
        """
        found = status(row, self.now)
        if found == _PHASE.STOPPED:
            return -1
        if found == STALE_STATUS:
            return 3 if self.jobs or row.running else 2
        if self.overdue:
            return 2
        return int(found != _PHASE.RUNNING or bool(row.directive) or self.is_old(row))

    def rank(self, row: Any) -> tuple[Any, ...]:
        """The place on the board: the worst first, then the busiest."""
        return (-self.trouble(row), -self.overdue, -_busy(row), -row.running, row.name, row.pk)


def _busy(row: Any) -> float:
    """The busy part of its slots."""
    return row.running / row.concurrency if row.concurrency else 0


class WorkerBoard(board.BoardList):
    """The workers of a page with what they run, the worst first."""

    def read(self, request: HttpRequest) -> None:
        """One page, in order of trouble."""
        super().read(request)
        using = reading.database()
        found = overviews(self.result_list, using=using)
        for row in self.result_list:
            row.ojs_overview = found[row.pk]
        self.arrange(COLUMNS, lambda row: row.ojs_overview.rank(row))
        site = SiteLinks(self.model_admin.admin_site)
        selectable = bool(self.model_admin.get_actions(request))
        self.board = format_html_join(
            "", "{}", ((_row(site, row, self.columns, selectable),) for row in self.result_list)
        )


def overviews(rows: Sequence[Any], *, using: str) -> dict[int, WorkerOverview]:
    """What the board shows of these workers, in two statements for any number of them."""
    if not rows:
        return {}
    now = rows[0].ojs_now
    found = {row.pk: WorkerOverview(now) for row in rows}
    whose = {(row.name, row.principal): found[row.pk] for row in rows}
    active = Job.objects.using(using).filter(worker_id__in=[row.name for row in rows])
    active = selectors.in_state(active, State.ACTIVE).order_by("worker_id")
    columns = ("type", "worker_id", "lease_principal", "started_at", "deadline_at")
    for job in active.only("id", *columns)[:_READ]:
        if (owner := whose.get((job.worker_id, job.lease_principal or ""))) is not None:
            owner.jobs.append(job)
    started = Worker.objects.using(using).exclude(phase=_PHASE.STOPPED).order_by("-started_at")
    newest: dict[str, str] = {}
    for principal, version, labels in started.values_list("principal", "version", "labels")[:_READ]:
        newest.setdefault(principal, deploys.version_of(version, labels))
    for row in rows:
        overview = found[row.pk]
        overview.jobs.sort(key=lambda job: job.started_at or now)
        overview.newest = newest.get(row.principal, deploys.version_of(row.version, row.labels))
    return found


def _row(site: SiteLinks, row: Any, columns: Sequence[Column], selectable: bool) -> SafeString:
    tone = _TONES[max(0, row.ojs_overview.trouble(row))]
    return board.row_of(
        row,
        columns,
        site,
        name=format_html("{}{}", links.link(site.page_of("worker", row.pk), row.name), _place(row)),
        tone=tone,
        selectable=selectable,
    )


def _place(row: Any) -> SafeString:
    """Where it runs, and for whom, below its name."""
    parts = [row.hostname, "" if row.pid is None else str(row.pid), row.principal]
    said = " · ".join(part for part in parts if part)
    return format_html(' <small class="ojs-quiet">{}</small>', said) if said else SafeString("")


def slots(row: Any, url: str = "") -> SafeString:
    """How busy it is, as a bar with its figures, which lead to its jobs."""
    if not row.concurrency:
        return format_html("{}", links.link(url, row.running))
    return format_html(
        '<meter min="0" max="{0}" value="{1}" title="{2}">{1}/{0}</meter> {3}',
        row.concurrency,
        min(row.running, row.concurrency),
        _("%(busy)s of %(slots)s slots are busy") % {"busy": row.running, "slots": row.concurrency},
        links.link(url, f"{row.running}/{row.concurrency}"),
    )


def memory(row: Any) -> Any:
    """The resident memory of its processes."""
    return grey("—") if row.rss_bytes is None else filesizeformat(row.rss_bytes)


def _jobs_of(row: Any, site: SiteLinks) -> str:
    """The address of the list of the jobs that it runs, empty if it cannot be written."""
    wanted = f'worker:"{row.name}" client:"{row.principal}"'
    return site.list_of("job", state=State.ACTIVE, q=wanted) if wanted.count('"') == 4 else ""


def _runs(row: Any, site: SiteLinks) -> str:
    """The jobs that began first, each with how long it runs, and a link to all."""
    overview: WorkerOverview = row.ojs_overview
    parts = [
        format_html(
            "<li{}>{} {}</li>",
            format_html(' class="ojs-bad" title="{}"', _("over its deadline"))
            if job.deadline_at is not None and job.deadline_at < overview.now
            else "",
            links.link(site.page_of("job", job.pk), shortened(job.type)),
            since(job.started_at, overview.now),
        )
        for job in overview.jobs[:MOST_JOBS]
    ]
    more = len(overview.jobs) - MOST_JOBS
    if more > 0:
        parts.append(
            format_html("<li>{}</li>", links.link(_jobs_of(row, site), _("and %s more") % more))
        )
    items = format_html_join("", "{}", ((part,) for part in parts))
    return format_html('<ul class="ojs-runs">{}</ul>', items) if parts else ""


def _slots(row: Any, site: SiteLinks) -> str:
    return slots(row, _jobs_of(row, site) if row.running else "")


def _version(row: Any, site: SiteLinks) -> str:
    said = deploys.version_of(row.version, row.labels)
    if row.phase != _PHASE.STOPPED and row.ojs_overview.is_old(row):
        return format_html("{} {}", shortened(said) or "—", badge("warn", _("old version")))
    return format_html("{}", shortened(said) or "—")


def _queues(row: Any, site: SiteLinks) -> str:
    """The first five queue names."""
    names = list(map(str, row.queues))
    if not names:
        return _("all")
    return ", ".join(map(shortened, names[:5])) + (" …" if len(names) > 5 else "")


COLUMNS: tuple[Column, ...] = (
    Column("badges", gettext_lazy("status"), lambda row, site: badges(row, row.ojs_now)),
    Column("slots", gettext_lazy("slots busy"), _slots, _busy),
    Column("runs", gettext_lazy("runs"), _runs),
    Column(
        "memory",
        gettext_lazy("memory"),
        lambda row, site: memory(row),
        lambda row: row.rss_bytes or 0,
    ),
    Column(
        "version",
        gettext_lazy("version"),
        _version,
        lambda row: deploys.version_of(row.version, row.labels) or "",
    ),
    Column("served", gettext_lazy("queues"), _queues),
    Column(
        "heartbeat",
        gettext_lazy("last heartbeat"),
        lambda row, site: since(row.heartbeat_at, row.ojs_now),
        lambda row: row.ojs_now - row.heartbeat_at,
    ),
    Column(
        "uptime",
        gettext_lazy("started"),
        lambda row, site: since(row.started_at, row.ojs_now),
        lambda row: row.ojs_now - row.started_at,
    ),
)
