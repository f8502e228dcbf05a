"""The tabs of the job list: each in the order of an index, searched within a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.admin.charts import plain
from django_ojs.admin.job_list import LAYOUTS, TabLayout
from django_ojs.admin.limits import WINDOW, window_size
from django_ojs.admin.sorting import Reach, Sort
from django_ojs.domain.ids import made_at
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services.phrases import full_moment
from django_ojs.store import keyset, line, selectors
from django_ojs.store.keyset import Keys

TIMED_OUT = ("timeout", "stalled", "total_timeout", "enqueue_ttl_expired", "visibility_timeout")
LENSES = {"timed_out": gettext_lazy("Timed out"), "overdue": gettext_lazy("Overdue")}
"""Filters that are no state, with their labels. Each has rows or a condition of its own in
:class:`Tab`.
"""
MOST_IN_LINE = 1000
"""How many of the jobs that are next in line are listed in that order."""
_STATES = frozenset(str(state) for state in State)


@dataclass(frozen=True, slots=True)
class SearchWindow:
    """The rows that a search or an order is limited to, up to the edge."""

    rows: Q
    edge: Any


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab or filter preset of the job list, or the dead letter; ``sort`` is the name of an order,
    ``of_text`` whether a text is looked for in it.
    """

    state: str | None = None
    lens: str | None = None
    dead_letter: bool = False
    sort: str | None = None
    of_text: bool = False

    @property
    def layout(self) -> TabLayout:
        """Its orders, columns and actions."""
        if self.dead_letter:
            return LAYOUTS["dead_letter"]
        if self.lens == "overdue":
            return LAYOUTS["overdue"]
        return LAYOUTS[self.state if self.state in _STATES else ""]

    @property
    def order(self) -> Sort:
        """The order that was asked for, or the natural one where there is none of that name."""
        sorts = self.layout.sorts
        return next((sort for sort in sorts if sort.name == self.sort), sorts[0])

    @property
    def keys(self) -> Keys:
        """The columns of that order, and whether each is descending; the key is last."""
        return self.order.keys

    @property
    def path(self) -> Keys:
        """The columns by which windows follow one another: those of an index."""
        return self.keys if self.order.reach is Reach.TAB else self.layout.sorts[0].keys

    @property
    def index(self) -> str | None:
        """The name of that index; ``None`` where planners choose it unaided."""
        return self.layout.index

    @property
    def condition(self) -> Q:
        """The conditions without an index, applied to the rows of the window only."""
        found = Q()
        if self.lens == "timed_out":
            found &= Q(error__type__in=TIMED_OUT)
        if self.state in _STATES and (self.dead_letter or self.lens == "overdue"):
            found &= Q(state=self.state)
        return found

    def rows(self, rows: QuerySet[Any], using: str) -> QuerySet[Any]:
        """The rows of the index."""
        if self.unknown:
            return rows.none()
        if self.dead_letter:
            return selectors.dead_letters(rows)
        if self.lens == "overdue":
            return rows.filter(deadline_at__lt=clock.now(using))
        return selectors.in_state(rows, State(self.state)) if self.state else rows

    @property
    def unknown(self) -> bool:
        """Whether there is no such tab (a mistyped address); its list is empty."""
        return bool(
            (self.state and self.state not in _STATES) or (self.lens and self.lens not in LENSES)
        )

    def size(self, using: str) -> int:
        """How many rows a window has. The rows of one state lie among the others, so that each may be
        on a page of its own; a text is looked for in whole values.
        """
        scattered = bool(self.state or self.dead_letter or self.lens == "overdue")
        return window_size(using, slow=scattered or self.of_text)

    def edge(self, using: str, start: Any = None, *, size: int | None = None) -> Any:
        """The first column of the last row of a window; ``None`` for an empty window.

        A window is the first ``size`` rows of the index, or the first after ``start``; as many as
        :meth:`size` for one that is shown.
        """
        size = size or self.size(using)
        rows = self.rows(Job.objects.using(using), using)
        if self.index is not None:
            rows = selectors.by_index(rows, self.index, using=using)
        if start is not None:
            rows = rows.filter(keyset.beyond(self.path[:1], [start]))
        name, down = self.path[0]
        return selectors.last_of_first(rows, name, down=down, size=size, using=using)

    def up_to(self, edge: Any) -> Q:
        """The rows up to the edge, including others of the same moment: the index does not have the
        key, and sorting by it would take longer than reading a few rows more.
        """
        return keyset.beyond(self.path[:1], [edge], back=True, inclusive=True)

    def window(self, using: str, start: Any = None, queue: str = "") -> SearchWindow:
        """The first window, or the one after ``start``; in the order of the line its first jobs, or
        those of a queue.

        Conditions without an index are limited to its rows, so that a search without results reads no
        more than these.
        """
        if self.order.reach is Reach.LINE:
            last_first = self.order.descends
            ids = line.first(queue, MOST_IN_LINE, last_first=last_first, using=using)
            return SearchWindow(Q(pk__in=ids), None)
        last = None if self.unknown else self.edge(using, start)
        if start is None:
            return SearchWindow(Q() if last is None else self.up_to(last), last)
        rows = Q(pk=None) if last is None else self.up_to(last) & keyset.beyond(self.path[:1], [start])
        return SearchWindow(rows, last)

    def is_whole(self, window: SearchWindow, using: str) -> bool:
        """Whether there are no rows after the window. It asks for a whole window of them: for a single
        row a planner might prefer another index.
        """
        return window.edge is None or self.edge(using, window.edge) is None

    def windows(self, rows: QuerySet[Any], using: str) -> Iterator[QuerySet[Any]]:
        """All of these rows of the tab, window by window."""
        start, size = None, conf.current().admin.search_window or WINDOW
        while not self.unknown and (edge := self.edge(using, start, size=size)) is not None:
            part = rows.filter(self.up_to(edge))
            yield part if start is None else part.filter(keyset.beyond(self.path[:1], [start]))
            start = edge

    def describe(self, edge: Any, using: str, *, further: bool, searched: bool) -> str:
        """How far was looked or sorted, up to the edge of a window; ``further`` for one that is not the
        first.
        """
        size = plain(self.size(using))
        said = _among(self.path[0], further) % size
        if isinstance(edge, UUID):
            edge = made_at(edge)
        words = {"among": said, "moment": full_moment(edge)}
        if searched:
            return _("Looked among %(among)s, to %(moment)s.") % words
        return _("Sorted among %(among)s, to %(moment)s.") % words


def _among(key: tuple[str, bool], further: bool) -> str:
    """The jobs of a window that begins at one end of an index."""
    name, down = key
    if further:
        return _("the next %s jobs")
    if name in ("scheduled_at", "deadline_at"):
        return _("the %s jobs that are due last") if down else _("the %s jobs that are due first")
    return _("the newest %s jobs") if down else _("the oldest %s jobs")
