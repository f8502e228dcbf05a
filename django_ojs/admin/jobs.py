"""The job list with a tab for each state, and the page of one job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import banner, job_list, links, live, remedies, saved_views, search
from django_ojs.admin.actions import Chosen, Operation
from django_ojs.admin.base import MOST_AT_ONCE
from django_ojs.admin.bulk import JobCount, count, describe_filter, first
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.details import DetailsAdmin
from django_ojs.admin.forms import once
from django_ojs.admin.job_changelist import START, JobChangeList, QueueFilter, SortFilter
from django_ojs.admin.job_links import linked
from django_ojs.admin.job_list import LAYOUTS, JobListing
from django_ojs.admin.job_menu import JobMenu
from django_ojs.admin.job_page import job_page
from django_ojs.admin.limits import COUNT_LIMIT_MS, SLOW, TIME_LIMIT_MS
from django_ojs.admin.operations import JOB_OPERATIONS
from django_ojs.admin.qualifiers import not_understood
from django_ojs.admin.queue_figures import live_workers, takes_bulk_work
from django_ojs.admin.replica import routed
from django_ojs.admin.sorting import PARAMETER, Reach
from django_ojs.admin.tabs import LENSES, SearchWindow, Tab
from django_ojs.domain.job import LARGE
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import State
from django_ojs.handlers import registry
from django_ojs.models import DeadLetter, Incident, Job, Queue
from django_ojs.services import bulk, reading
from django_ojs.services.verbs import VERBS
from django_ojs.store import keyset, selectors
from django_ojs.store.sessions import statement_timeout

MOST_QUEUES = 100
_WINDOW = "_ojs_window"
_DEAD = {"state": State.DISCARDED, "dead_letter": True}


@admin.register(Job)
class JobAdmin(DetailsAdmin):
    """The jobs, newest first."""

    operations = JOB_OPERATIONS
    list_class = JobChangeList
    writes_rows = True
    own_parameters: ClassVar[Sequence[str]] = ("state", "lens", START)
    list_filter = (QueueFilter, SortFilter)
    search_fields = ("id",)
    search_help_text = gettext_lazy(
        "An id, the beginning of a type, a “text” in quotes, or: queue:mail worker:w1 error:KeyError "
        "tag:x order_id:42 meta.tenant:acme. All but ids are looked for in the newest jobs first."
    )
    exclude = ("lease_id", "lease_principal", "digest", "hooks")
    # The list shows the error.
    heavy = tuple({*LARGE, "retry"} - {"error"})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows of the tab."""
        rows = super().get_queryset(request)
        if not self.is_list(request):
            return rows
        tab = self.tab(request.GET)
        # What is found by an index of its own is sorted as it is.
        partly = tab.order.reach is not Reach.TAB and not search.parse(request.GET.get("q", "")).ids
        if not partly or tab.order.reach is not Reach.LINE:
            # The line is a list of ids: by the state, too, a planner might read the whole backlog.
            rows = tab.rows(rows, self.using)
        if tab.order.value is not None:
            rows = rows.annotate(**{tab.keys[0][0]: tab.order.value})
        if tab.condition or partly:
            return rows.filter(self.window(request), tab.condition)
        return rows

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """The actions that apply to the state of the tab; on submission each job is checked.

        ``action_location`` is passed by Django 6.1 and later.
        """
        where = {} if action_location is None else {"action_location": action_location}
        found: dict[str, Any] = super().get_actions(request, **where)
        if request.method != "GET":
            return found
        offered = self.tab(request.GET).layout.actions
        return {name: action for name, action in found.items() if name not in VERBS or name in offered}

    def tab(self, params: Mapping[str, Any]) -> Tab:
        """The tab that the parameters of a list select."""
        of_text = search.is_of_text(params.get("q", ""))
        return Tab(params.get("state"), params.get("lens"), sort=params.get(PARAMETER), of_text=of_text)

    def listing(self, request: HttpRequest, found: Sequence[Job]) -> JobListing:
        """What the rows of a page share."""
        shows_args = bool(request.user.has_perm("django_ojs.view_args"))
        columns = ("tags", "args") if shows_args else ("tags",)
        keys = [row.pk for row in found]
        using, now = self.using, clock.now(self.using)
        waits = {row.queue for row in found if row.state == State.AVAILABLE and not row.held}
        return JobListing(
            now=now,
            page=links.of_rows(partial(links.page_of, self.admin_site, str(self.opts.model_name))),
            asked=saved_views.asked(request.GET),
            small=selectors.small_values(keys, columns, job_list.MOST_TEXT, using=using),
            paused={row.name: row for row in self.queues(request, waits) if row.paused},
            workers=live_workers(now, using) if waits else [],
            menu=JobMenu(
                [item for item in self.operations if self.may(request, item)],
                partial(self.url_to, asked=request.GET.urlencode()),
            ),
            selectable=bool(self.get_actions(request)),
        )

    def queues(self, request: HttpRequest, names: Collection[str] = ()) -> list[Queue]:
        """The first hundred queues, read once per request, and those with these names."""
        rows = Queue.objects.using(self.using).only("name", "paused", "paused_by", "reason")
        first: list[Queue] | None = getattr(request, "_ojs_queues", None)
        if first is None:
            first = list(rows.order_by("name")[:MOST_QUEUES])
            setattr(request, "_ojs_queues", first)  # noqa: B010 - a request knows no such attribute
        others = {*names} - {row.name for row in first} if len(first) == MOST_QUEUES else ()
        return [*first, *rows.filter(name__in=others)] if others else first

    def suggestions(self, request: HttpRequest) -> list[str]:
        """Words for the search: types with a handler here, queues, errors of the newest incidents."""
        errors = (
            Incident.objects.using(self.using).order_by("-last_seen").values_list("error", flat=True)
        )
        found = [("type", name) for name in registry.types() if not is_own(type=name)]
        found += [("queue", row.name) for row in self.queues(request)]
        found += [("error", name) for name in dict.fromkeys(errors[:MOST_QUEUES])]
        return [word for qualifier, value in found if (word := search.word(qualifier, value))]

    def window(self, request: HttpRequest) -> Q:
        """The first rows of the tab, to which conditions and orders without an index are limited."""
        found = self.looked_in(request)
        if found is None:
            # No queue has NUL in its name, and PostgreSQL rejects it as a parameter.
            start, queue = self.start(request), request.GET.get("queue", "").replace("\0", "")
            try:
                with statement_timeout(TIME_LIMIT_MS, using=self.using, by_index=True):
                    found = self.tab(request.GET).window(self.using, start, queue)
            except OperationalError as error:
                if reading.is_repeated(error):
                    raise
                self.message_user(request, SLOW, messages.ERROR)
                found = SearchWindow(Q(pk=None), None)
            setattr(request, _WINDOW, found)
        return found.rows

    def start(self, request: HttpRequest) -> Any:
        """What the window of a search begins after; ``None`` for the first one."""
        keys = self.tab(request.GET).path[:1]
        try:
            return keyset.decode(Job, keys, [request.GET[START]])[0]
        except (KeyError, ValueError, OverflowError, ValidationError):
            return None

    def looked_in(self, request: HttpRequest) -> SearchWindow | None:
        """The window that this list is limited to; ``None`` for the whole tab."""
        found: SearchWindow | None = getattr(request, _WINDOW, None)
        return found

    def counts(self, request: HttpRequest) -> dict[str, int]:
        """The jobs per state, up to the cap, read once per request."""
        found: dict[str, int] | None = getattr(request, "_ojs_counts", None)
        if found is None:
            found = selectors.counts_by_state(using=self.using)
            setattr(request, "_ojs_counts", found)  # noqa: B010 - a request knows no such attribute
        return found

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The jobs that match the words."""
        if not search_term.strip():
            return queryset, False
        shows_args = bool(request.user.has_perm("django_ojs.view_args"))
        parsed = search.parse(search_term, shows_args=shows_args)
        if parsed.unknown:
            hint = _("An argument is found by its name: order_id:42.")
            if parsed.denied:
                hint = _("Searching arguments and meta needs the permission “view args”.")
            return not_understood(request, parsed.unknown, queryset, hint)
        if parsed.partly and request.method == "GET":
            said = _("Only errors are searched: arguments need the permission “view args”.")
            self.message_user(request, said, messages.INFO)
        rows = queryset.alias(**parsed.places)
        if parsed.ids:
            return rows.filter(parsed.ids, parsed.windowed), False
        return rows.filter(self.window(request), parsed.windowed), False

    def get_urls(self) -> list[URLPattern]:
        """Adds a path for saved views."""
        view = self.admin_site.admin_view(partial(saved_views.answer, self))
        name = f"{self.opts.app_label}_{self.opts.model_name}_views"
        return [*routed(self, [path("views/", view, name=name)]), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list with its tabs; a search for an id redirects to the job."""
        term = request.GET.get("q", "").strip()
        job_id = _bare_id(term)
        if job_id is not None and self.has_view_permission(request):
            if Job.objects.using(self.using).filter(pk=job_id).exists():
                return HttpResponseRedirect(links.page_of(self.admin_site, "job", job_id))
            self.message_user(request, _("There is no job %s.") % job_id, messages.WARNING)
        own: dict[str, Any] = {"tabs": self.tabs(request), "narrowings": self.narrowings(request)}
        if request.method != "POST":
            own |= {"views": self.views(request)}
        if request.method != "POST" and not live.is_asked(request):
            own |= {"suggestions": self.suggestions(request)}
        context = own | (extra_context or {})
        return super().changelist_view(request, context)

    def tabs(self, request: HttpRequest) -> list[dict[str, Any]]:
        """The tabs: states with their counts up to the cap, and filter presets."""
        counts = self.counts(request)
        kept = {name: request.GET[name] for name in ("queue", "q") if name in request.GET}
        state, lens = request.GET.get("state"), request.GET.get("lens")
        sort = request.GET.get(PARAMETER)

        def tab(label: Any, on: bool, count: str = "", **query: str) -> dict[str, Any]:
            there = Tab(query.get("state"), query.get("lens"), sort=sort)
            if sort and there.order.name == sort:
                query[PARAMETER] = sort
            return {"label": label, "on": on, "count": count, "url": "?" + urlencode({**kept, **query})}

        found = [tab(_("All"), not state and not lens)]
        cap = selectors.COUNT_CAP
        for name, label in Job.States.choices:
            count = counts.get(name, 0)
            shown = plain(count) if count < cap else at_least(cap)
            found.append(tab(label, state == name and not lens, shown, state=name))
        return found + [tab(label, lens == name, lens=name) for name, label in LENSES.items()]

    def views(self, request: HttpRequest) -> dict[str, Any]:
        """The saved views of the user."""
        return saved_views.context(self, request)

    def narrowings(self, request: HttpRequest) -> list[dict[str, str]]:
        """The queue and the words of the search, with the address of the list without each."""
        asked = saved_views.asked(request.GET)
        words = search.words(asked.get("q", ""))
        found = [(f"queue:{asked['queue']}", {"queue": ""})] if "queue" in asked else []
        found += [
            (word, {"q": " ".join(words[:place] + words[place + 1 :])})
            for place, word in enumerate(words)
        ]
        return [
            {"label": label, "url": "?" + urlencode({k: v for k, v in (asked | less).items() if v})}
            for label, less in found
        ]

    # The page of one job

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The details of the job; one that can no longer change is not refreshed."""
        if row is None:
            return {}
        shows_args = bool(request.user.has_perm("django_ojs.view_args"))
        page = job_page(row.pk, shows_args=shows_args, using=self.using)
        page["facts"] = linked(page["facts"], page["job"], request, self.admin_site)
        if row.workflow_id is not None:
            page["workflow_url"] = links.page_of(self.admin_site, "workflow", row.workflow_id)
        helping = page["why"].remedies
        page["remedies"] = remedies.notes(helping, row.pk, request, self.admin_site)
        became = page["became"]
        return {"page": page, "changes": not page["ended"] or bool(became and became.changes)}

    def operation_initial(self, operation: Operation, row: Any) -> dict[str, Any]:
        if operation.name == "requeue":
            initial = {"args": row.args, "meta": row.meta, "queue": row.queue}
            return {**initial, "once": once(row.pk)}
        if operation.name == "edit":
            return {"queue": row.queue, "priority": row.priority}
        return {}

    def act_on_many(
        self, request: HttpRequest, operation: Operation, cleaned: Mapping[str, Any]
    ) -> None:
        """Start a bulk job, which can be watched and cancelled."""
        narrowed = self.narrowing(request)
        actor = self.actor(request, cleaned["reason"])
        said = self.describe_many(request, MOST_AT_ONCE)
        job = bulk.start(
            operation.name, narrowed, cleaned, actor, user=request.user.pk, count=said["many"]
        )
        banner.remember(request, job.id)
        link = links.link(links.page_of(self.admin_site, "job", job.id), job.id)
        started = format_html(_("Job {} does this; watch or cancel it there."), link)
        self.message_user(request, started, messages.SUCCESS)
        if said["hint"]:
            self.message_user(request, said["hint"], messages.WARNING)

    def _hint(self) -> str:
        """A warning when no live worker would take the bulk job."""
        if takes_bulk_work(live_workers(clock.now(self.using), self.using)):
            return ""
        said = _("No live worker serves the queue %(queue)s: the job waits until one does (%(how)s).")
        return said % {"queue": bulk.QUEUE, "how": f"runworker --queue {bulk.QUEUE}"}

    def does_many(self, operation: Operation) -> bool:
        return bulk.possible(operation.name)

    def narrowing(self, request: HttpRequest) -> bulk.Filter:
        return bulk.Filter(
            state=request.GET.get("state") or None,
            queue=request.GET.get("queue") or None,
            search=request.GET.get("q") or None,
            lens=request.GET.get("lens") or None,
            dead_letter=self.opts.model is DeadLetter,
        )

    def chosen(self, request: HttpRequest, queryset: QuerySet[Any], most: int) -> Chosen:
        """The selected jobs, or with "select all" the first matching ones in the order of the tab,
        found within a time limit.
        """
        if request.POST.get("select_across") != "1":
            return super().chosen(request, queryset, most)
        return first(self.narrowing(request), most, **self._reading(request))

    def describe_many(self, request: HttpRequest, known: int) -> dict[str, Any]:
        """As many as can be counted within COUNT_LIMIT_MS."""
        found = count(self.narrowing(request), **self._reading(request))
        many = found if found.exact else JobCount(max(known, found.number), exact=False)
        return {"many": str(many), "hint": self._hint()}

    def _reading(self, request: HttpRequest) -> dict[str, Any]:
        shows_args = bool(request.user.has_perm("django_ojs.view_args"))
        return {"using": self.using, "shows_args": shows_args, "limit_ms": COUNT_LIMIT_MS}

    def narrowed(self, request: HttpRequest) -> list[str]:
        """The tab, queue and search, or that every job is meant."""
        return describe_filter(self.narrowing(request))


@admin.register(DeadLetter)
class DeadLetterAdmin(JobAdmin):
    """The dead letter, newest first."""

    operations = tuple(item for item in JOB_OPERATIONS if item.name in LAYOUTS["dead_letter"].actions)
    own_parameters = (START,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Only dead-lettered jobs, on the pages of single jobs too."""
        return super().get_queryset(request).filter(**_DEAD)

    def selectable(self, request: HttpRequest) -> QuerySet[Any]:
        """Only these: who sees the dead letter need not see other jobs."""
        return super().selectable(request).filter(**_DEAD)

    def tab(self, params: Mapping[str, Any]) -> Tab:
        """Always the dead letter."""
        of_text = search.is_of_text(params.get("q", ""))
        return Tab(dead_letter=True, sort=params.get(PARAMETER), of_text=of_text)

    def counts(self, request: HttpRequest) -> dict[str, int]:
        """No counts, since there are no tabs."""
        return {}

    def tabs(self, request: HttpRequest) -> list[dict[str, Any]]:
        return []

    def views(self, request: HttpRequest) -> dict[str, Any]:
        """None: those of the job list are kept."""
        return {}


def _bare_id(term: str) -> UUID | None:
    """The id if the search is nothing else, in any form that ``UUID`` accepts."""
    try:
        return UUID(term)
    except ValueError:
        return None
