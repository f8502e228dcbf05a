"""Bulk work under way, on every page: how far it is, for whom and why, and how to stop it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from django_ojs import clock, conf
from django_ojs.admin import links, outcome, switch, themes
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.operations import JOB_OPERATIONS
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.services import bulk
from django_ojs.services.phrases import humanize_duration
from django_ojs.store import selectors

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

MOST = 5
SHOWN_FOR = timedelta(minutes=15)
"""How long an order that has ended is shown to who gave it."""
_KEY = "django_ojs_bulk"


class BulkNote(NamedTuple):
    """One bulk job in words; ``percent`` is ``None`` before it has counted."""

    title: str
    facts: str
    percent: int | None
    url: str
    stop: str
    outcome: str
    ended: bool


def remember(request: HttpRequest, job_id: object) -> None:
    """Keep the job in the session of who ordered it, whose outcome is shown there."""
    request.session[_KEY] = [str(job_id), *request.session.get(_KEY, ())][:MOST]


def head(page: ModelAdmin, request: HttpRequest) -> dict[str, Any]:
    """The variables of the head of a page."""
    work = {"bulk_work": BulkWork(request, page.admin_site)}
    return {**work, **switch.context(page, request), **themes.context()}


class BulkWork:
    """The notes for a request, read when a page asks for them."""

    def __init__(self, request: HttpRequest, site: AdminSite) -> None:
        self._request, self._site = request, site

    def __iter__(self) -> Any:
        if not self._request.user.has_perm("django_ojs.view_job"):
            return iter(())
        using = conf.current().database
        own: Sequence[str] = getattr(self._request, "session", {}).get(_KEY, ())
        now = clock.now(using)
        return iter(
            [
                self._note(job, now)
                for job in _under_way(own, using)
                if job.finished_at is None
                or (now - job.finished_at < SHOWN_FOR and str(job.pk) != self._shown)
            ]
        )

    @property
    def _shown(self) -> str:
        """The row whose page it is: that of an order that has ended says itself what became of it."""
        match = self._request.resolver_match
        return str(match.kwargs.get("object_id", "")) if match is not None else ""

    def _note(self, job: Job, now: datetime) -> BulkNote:
        meta: dict[str, Any] = job.meta if isinstance(job.meta, dict) else {}
        place: dict[str, Any] = job.checkpoint if isinstance(job.checkpoint, dict) else {}
        done, left, of = (int(place.get(name, 0)) for name in ("done", "skipped", "of"))
        seen, ended = done + left, job.state in TERMINAL
        label = {item.name: item.label for item in JOB_OPERATIONS}.get(meta.get("operation", ""), "")
        count = "" if not of else plain(of) if place.get("exact") else at_least(of)
        became = self._became(job, meta) if ended else ""
        facts = [became or _("%s done") % plain(done)]
        if left:
            facts.append(_("%s left as they are") % plain(left))
        if job.state == State.AVAILABLE:
            facts.append(_("waits for a worker of the queue %s") % bulk.QUEUE)
        if job.state == State.ACTIVE and seen and job.attempt == 1 and job.started_at is not None:
            per_second = seen / max((now - job.started_at).total_seconds(), 0.001)
            facts.append(_("%s/s") % plain(round(per_second)))
            facts.append(_("%s left") % humanize_duration(timedelta(seconds=(of - seen) / per_second)))
        if ended and not (became and job.state == State.COMPLETED):
            stopped = became and job.state == State.CANCELLED
            facts.append(_("stopped") if stopped else str(Job.States(job.state).label))
        if who := meta.get("actor"):
            facts.append(_("by %s") % who)
        if why := meta.get("reason"):
            facts.append(str(why))
        return BulkNote(
            title=f"{label} {count}".strip(),
            facts=" · ".join(facts),
            percent=min(100, 100 * seen // of) if of and not ended else None,
            url=links.page_of(self._site, "job", job.pk),
            stop="" if ended else self._stop(job),
            outcome=self._outcome(meta) if ended else "",
            ended=ended,
        )

    def _became(self, job: Job, meta: dict[str, Any]) -> str:
        """What became of its jobs, as far as it is known."""
        using, operation = conf.current().database, str(meta.get("operation", ""))
        found = outcome.note(job.pk, operation, job.checkpoint, using=using, in_head=True)
        return found.said if found is not None else ""

    def _stop(self, job: Job) -> str:
        may = self._request.user.has_perm("django_ojs.cancel_job")
        if conf.current().admin.read_only or not may:
            return ""
        name = "admin:django_ojs_job_do"
        return reverse(name, args=[job.pk, "cancel"], current_app=self._site.name)

    def _outcome(self, meta: dict[str, Any]) -> str:
        """The list that tells what became of the jobs: those of an incident, in every state."""
        narrowed = meta.get("filter")
        search = narrowed.get("search", "") if isinstance(narrowed, dict) else ""
        if not str(search).startswith("incident:"):
            return ""
        return links.list_for(self._request, self._site, "job", q=str(search))


class BulkWorkAdmin(ModelAdmin):
    """Lists and pages that begin with the bulk work under way."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, with the head."""
        return super().changelist_view(request, {**head(self, request), **(extra_context or {})})

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a new row, with the head."""
        return super().add_view(request, form_url, {**head(self, request), **(extra_context or {})})

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page of a row, with the head."""
        context = {**head(self, request), **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)


def _under_way(own: Sequence[str], using: str) -> list[Job]:
    """The bulk jobs that wait or run, and these of the user; in one statement, each part by index."""
    rows = Job.objects.using(using).only(
        *("state", "meta", "checkpoint", "attempt", "started_at", "finished_at")
    )
    running = selectors.in_state(rows, State.ACTIVE).filter(type=bulk.TYPE)
    waiting = rows.filter(state=State.AVAILABLE, held=False, queue=bulk.QUEUE, type=bulk.TYPE)
    found = running.union(waiting, rows.filter(pk__in=list(own)), all=True)
    once = {job.pk: job for job in found[: 4 * MOST]}
    return [once[key] for key in sorted(once, reverse=True)[:MOST]]
