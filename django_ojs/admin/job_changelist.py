"""The change list of jobs: each tab in the order of its index, within what a search may read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from django_ojs.admin import job_list, search
from django_ojs.admin.cells import Column
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.charts import at_least
from django_ojs.services import reading
from django_ojs.services.incident_board import COUNTED
from django_ojs.store import keyset, selectors
from django_ojs.store.keyset import Keys

if TYPE_CHECKING:
    from django_ojs.admin.jobs import JobAdmin

START = "from"
"""The parameter with what the window of a search begins after."""


class JobChangeList(KeysetChangeList):
    """Each tab in the order of the index that serves it."""

    by_index = True
    keyset = KeysetChangeList.keyset | {START}
    uncounted = False
    model_admin: JobAdmin
    columns: Sequence[Column]
    selectable: bool
    rows: SafeString
    looked = ""
    """How far a search has looked, if not everywhere."""
    go_on = ""
    """The address of the same search further on."""

    def keys(self) -> Keys:
        return self.model_admin.tab(self.params).keys

    def get_results(self, request: HttpRequest) -> None:
        """One page, read by the index of the tab so that an empty search stays bounded."""
        index = self.model_admin.tab(self.params).index
        if search.parse(self.query).ids:
            # An index of their own has them: the count is worth its time.
            self.count_cap = COUNTED
        elif index is not None:
            self.queryset = selectors.by_index(self.queryset, index, using=reading.database())
        super().get_results(request)

    def read(self, request: HttpRequest) -> None:
        """One page, as rows of HTML. A search is complete only if its window covers the whole tab."""
        super().read(request)
        page = self.model_admin.listing(request, self.result_list)
        self.columns = self.model_admin.tab(self.params).layout.columns
        self.selectable = page.selectable
        self.rows = job_list.rows(self.result_list, self.columns, page)
        window = self.model_admin.looked_in(request)
        if window is None:
            return
        tab, start = self.model_admin.tab(self.params), self.model_admin.start(request)
        ends = self.next_after is None
        whole = ends and tab.is_whole(window, reading.database())
        self.uncounted = not (whole and self.prev_before is None and start is None)
        if not self.uncounted:
            return
        # A count would read the window again. One more than shown: there may be others.
        self.result_count = len(self.result_list) + 1
        self.full_result_count = self.result_count
        if start is not None:
            self.page_parameters = {START: request.GET[START]}
        if window.edge is not None:
            self.looked = self.model_admin.describe_window(request, window.edge)
            if ends and not whole:
                (position,) = keyset.encode([window.edge])
                self.go_on = self.get_query_string({START: position})

    def count(self, request: HttpRequest) -> int:
        """The count of the tab, without another statement."""
        if self.model_admin.looked_in(request) is not None:
            return self.list_per_page + 1
        shown = self.model_admin.counts(request)
        state = self.params.get("state")
        if not shown or self.params.get("lens") or self.query:
            return super().count(request)
        count = sum(shown.values()) if state is None else shown.get(str(state), 0)
        return int(min(count, selectors.COUNT_CAP + 1))

    @property
    def shown_count(self) -> str:
        return at_least(len(self.result_list)) if self.uncounted else super().shown_count


class QueueFilter(admin.SimpleListFilter):
    """By queue; the names come from the queue table, not from the jobs."""

    title = gettext_lazy("queue")
    parameter_name = "queue"
    template = "admin/django_ojs/filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The first hundred names and the chosen one: with none, Django drops the filter and shows
        the jobs of all queues.
        """
        names = [row.name for row in model_admin.queues(request)]
        chosen = self.value()
        if chosen and chosen not in names:
            names.append(chosen)
        return [(name, name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        name = self.value()
        if not name:
            return queryset
        if "\0" in name:
            return queryset.none()
        return queryset.filter(self.model_admin.window(request), queue=name)

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.model_admin = model_admin
