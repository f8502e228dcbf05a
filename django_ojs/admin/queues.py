"""The queue screens: depth by state, age of the oldest job, serving workers, pauses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import axes, board, charts, links, plots, switch
from django_ojs.admin.actions import ActionReport, Operation, Run
from django_ojs.admin.board import BoardList, Switch
from django_ojs.admin.cells import since
from django_ojs.admin.details import DetailsAdmin
from django_ojs.admin.links import SiteLinks
from django_ojs.admin.queue_figures import live_workers, overviews, service_of, serving
from django_ojs.admin.sorting import PARAMETER
from django_ojs.domain import histogram
from django_ojs.domain.job import Actor
from django_ojs.domain.states import State
from django_ojs.models import Job, Queue
from django_ojs.services import queues, reading, stats_queries
from django_ojs.store import selectors

MOST_SHOWN = 200
"""Queues on one page of the board: the depth of each is read."""


class Board(BoardList):
    """The queues of a page with their overviews, the worst first."""

    forms: SafeString

    def read(self, request: HttpRequest) -> None:
        """One page with the overviews of its queues, in order of trouble."""
        super().read(request)
        found = overviews([row.name for row in self.result_list], using=reading.database())
        for row in self.result_list:
            row.ojs_overview = found[row.name]
        self.arrange(board.COLUMNS, lambda row: row.ojs_overview.rank(row.name, row.paused))
        switches = self.model_admin.switches(request, self.result_list)
        selectable = bool(self.model_admin.get_actions(request))
        site = SiteLinks(self.model_admin.admin_site)
        self.board = board.rows(site, self.result_list, self.columns, switches, selectable=selectable)
        hidden = format_html(
            '<input type="hidden" name="csrfmiddlewaretoken" value="{}">'
            '<input type="hidden" name="_confirmed" value="1">{}',
            get_token(request),
            switch.field(),
        )
        self.forms = board.forms(switches, hidden)


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


@admin.register(Queue)
class QueueAdmin(DetailsAdmin):
    """The queues as a board, the worst first."""

    operations = QUEUE_OPERATIONS
    list_class = Board
    writes_rows = True
    keys = (("pk", False),)
    list_display = ("name",)
    list_filter = ("paused",)
    own_parameters = (PARAMETER,)
    list_per_page = MOST_SHOWN
    search_fields = ("name__startswith",)
    search_help_text = gettext_lazy("The beginning of a name.")

    def switches(self, request: HttpRequest, rows: Sequence[Any]) -> dict[str, Switch]:
        """What the user may do in place: pause a queue that runs, resume one that is paused."""
        mine = [item for item in self.operations if self.may(request, item)]
        to = partial(self.url_to, asked=request.GET.urlencode())
        urls = {item.name: links.of_rows(partial(to, item)) for item in mine}
        return {
            row.name: Switch(str(item.label), urls[item.name](row.pk))
            for row in rows
            for item in mine
            if item.allowed(row)
        }

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
        axis = axes.HOUR.axis(until)
        minutes = stats_queries.minute_stats(axis.begin, row.name, using=using)
        points = histogram.series(minutes, axis.begin, axis.step, until=until)
        return {
            "queue": row,
            "badges": board.badges(row, service_of(workers)),
            "paused_at": since(row.paused_at, now),
            "oldest": board.oldest(depth, now),
            "partly": State.AVAILABLE in depth.capped,
            "counts": [
                (
                    label,
                    board.counted(depth, state),
                    links.list_of(site, "job", state=state, queue=row.name),
                )
                for state, label in Job.States.choices
            ],
            "cap": charts.plain(cap),
            "chart": plots.throughput(axes.HOUR, axis, points),
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
