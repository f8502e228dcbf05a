"""The change list of jobs: each tab in an order of its own, within what a search may read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin import job_list, search, sorting
from django_ojs.admin.cells import Column, Heading
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.sorting import Reach, Sort
from django_ojs.admin.tabs import MOST_IN_LINE, SearchWindow, Tab
from django_ojs.services import reading
from django_ojs.services.incident_board import COUNTED
from django_ojs.store import keyset, selectors
from django_ojs.store.keyset import Keys

if TYPE_CHECKING:
    from django_ojs.admin.jobs import JobAdmin

START = "from"
"""The parameter with what the window of a search begins after."""


class JobChangeList(KeysetChangeList):
    """Each tab in the order of the index that serves it, or in another one within a window."""

    by_index = True
    keyset = KeysetChangeList.keyset | {START}
    other_keys = sorting.SPANS
    uncounted = False
    model_admin: JobAdmin
    headings: Sequence[Heading]
    selectable: bool
    rows: SafeString
    looked = ""
    """How far a search has looked, or the list is sorted, if not everywhere."""
    go_on = ""
    """The address of the same list further on."""
    as_text = ""
    """The address of a search that found nothing, with its words looked for as text."""

    @property
    def tab(self) -> Tab:
        """The tab that is shown."""
        return self.model_admin.tab(self.params)

    def keys(self) -> Keys:
        return self.tab.keys

    def get_results(self, request: HttpRequest) -> None:
        """One page, read by the index of the tab so that an empty search stays bounded."""
        index = self.tab.index
        if search.parse(self.query).ids:
            # An index of their own has them: the count is worth its time.
            self.count_cap = COUNTED
        elif index is not None:
            self.queryset = selectors.by_index(self.queryset, index, using=reading.database())
        super().get_results(request)

    def read(self, request: HttpRequest) -> None:
        """One page, as rows of HTML."""
        super().read(request)
        tab = self.tab
        self.newest_first = tab.keys[0] in (("pk", True), ("finished_at", True))
        page = self.model_admin.listing(request, self.result_list)
        self.headings = [self._heading(column, tab) for column in tab.layout.columns]
        self.selectable = page.selectable
        self.rows = job_list.rows(self.result_list, tab.layout.columns, page)
        if not self.result_list and (words := search.as_text(self.query)):
            self.as_text = self.get_query_string({SEARCH_VAR: words})
        window = self.model_admin.looked_in(request)
        if window is None:
            return
        if tab.order.reach is Reach.LINE:
            said = _("At most %s jobs of the line are shown, and none that a rate limit holds.")
            self.looked = said % plain(MOST_IN_LINE)
        else:
            self._describe(request, tab, window)

    def _describe(self, request: HttpRequest, tab: Tab, window: SearchWindow) -> None:
        """How far the list reaches. A search is complete only if its window covers the whole tab, and
        an order is one of the whole tab only then.
        """
        start, ends = self.model_admin.start(request), self.next_after is None
        searched = self._is_narrowed(tab)
        whole = (ends or not searched) and tab.is_whole(window, reading.database())
        if searched:
            self.uncounted = not (whole and self.prev_before is None and start is None)
        if not self.uncounted and whole and start is None:
            return
        # A count of what a search finds would read the window again. One more than shown: there may be
        # others.
        self.result_count = len(self.result_list) + 1 if self.uncounted else self.count(request)
        self.full_result_count = self.result_count
        if start is not None:
            self.page_parameters = {START: request.GET[START]}
        if window.edge is not None:
            self.looked = tab.describe(
                window.edge, reading.database(), further=start is not None, searched=searched
            )
            if (ends or not searched) and not whole:
                (position,) = keyset.encode([window.edge])
                self.go_on = self.get_query_string({START: position})

    def _is_narrowed(self, tab: Tab) -> bool:
        """Whether there is a condition that no index serves."""
        return bool(self.query.strip() or self.params.get("queue") or tab.condition)

    def count(self, request: HttpRequest) -> int:
        """The count of the tab, without another statement."""
        tab = self.tab
        if tab.order.reach is Reach.LINE:
            return super().count(request)
        if self.model_admin.looked_in(request) is not None and self._is_narrowed(tab):
            return self.list_per_page + 1
        shown = self.model_admin.counts(request)
        state = self.params.get("state")
        if not shown or self.params.get("lens") or self.query:
            return super().count(request)
        counts = list(shown.values()) if state is None else [shown.get(str(state), 0)]
        cap = selectors.COUNT_CAP
        # A count that has reached the cap may be one of more.
        return cap + 1 if max(counts) >= cap else min(sum(counts), cap + 1)

    @property
    def shown_count(self) -> str:
        return at_least(len(self.result_list)) if self.uncounted else super().shown_count

    def sorted_url(self, sort: Sort) -> str:
        """The address of the list in this order, from its first page."""
        if sort is self.tab.layout.sorts[0]:
            return str(self.get_query_string(remove=[sorting.PARAMETER]))
        return str(self.get_query_string({sorting.PARAMETER: sort.name}))

    def _heading(self, column: Column, tab: Tab) -> Heading:
        ways = [sort for sort in tab.layout.sorts if sort.heading == column.name]
        if len(ways) < 2:
            return Heading(column)
        if tab.order not in ways:
            return Heading(column, self.sorted_url(ways[0]))
        other = ways[1 - ways.index(tab.order)]
        way = "descending" if tab.order.descends else "ascending"
        return Heading(column, self.sorted_url(other), way)


class SortFilter(admin.SimpleListFilter):
    """The orders of the tab; no filter, but chosen and kept like one."""

    title = gettext_lazy("sorted")
    parameter_name = sorting.PARAMETER
    template = "admin/django_ojs/filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(sort.name, sort.label) for sort in model_admin.tab(request.GET).layout.sorts]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset

    def choices(self, changelist: Any) -> Any:
        """The natural order is that of the list without the parameter."""
        tab = changelist.tab
        for sort in tab.layout.sorts:
            url = changelist.sorted_url(sort)
            yield {"selected": sort is tab.order, "query_string": url, "display": sort.label}


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
