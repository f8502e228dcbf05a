"""The tabs of the job list: each in the order of an index, searched within a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy

from django_ojs import clock, conf
from django_ojs.admin.job_list import LAYOUTS, TabLayout
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store import keyset, selectors
from django_ojs.store.keyset import Keys

TIMED_OUT = ("timeout", "stalled", "total_timeout", "enqueue_ttl_expired", "visibility_timeout")
LENSES = {"timed_out": gettext_lazy("Timed out"), "overdue": gettext_lazy("Overdue")}
"""Filters that are no state, with their labels. Each has rows or a condition of its own in
:class:`Tab`.
"""
_STATES = frozenset(str(state) for state in State)


@dataclass(frozen=True, slots=True)
class SearchWindow:
    """The rows that a search is limited to, up to the edge."""

    rows: Q
    edge: Any


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab or filter preset of the job list, or the dead letter."""

    state: str | None = None
    lens: str | None = None
    dead_letter: bool = False

    @property
    def layout(self) -> TabLayout:
        """Its order, columns and actions."""
        if self.dead_letter:
            return LAYOUTS["dead_letter"]
        if self.lens == "overdue":
            return LAYOUTS["overdue"]
        return LAYOUTS[self.state if self.state in _STATES else ""]

    @property
    def keys(self) -> Keys:
        """The columns of the index that orders it, and whether each is descending; the key is last."""
        return self.layout.keys

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

    def edge(self, using: str, start: Any = None) -> Any:
        """The first column of the last row of a window; ``None`` for an empty window.

        A window is the first ``OJS["ADMIN"]["SEARCH_WINDOW"]`` rows of the index, or the first after
        ``start``.
        """
        size = conf.current().admin.search_window
        rows = self.rows(Job.objects.using(using), using)
        if self.index is not None:
            rows = selectors.by_index(rows, self.index, using=using)
        if start is not None:
            rows = rows.filter(keyset.beyond(self.keys[:1], [start]))
        name, down = self.keys[0]
        return selectors.last_of_first(rows, name, down=down, size=size, using=using)

    def up_to(self, edge: Any) -> Q:
        """The rows up to the edge, including others of the same moment: the index does not have the
        key, and sorting by it would take longer than reading a few rows more.
        """
        return keyset.beyond(self.keys[:1], [edge], back=True, inclusive=True)

    def window(self, using: str, start: Any = None) -> SearchWindow:
        """The first window, or the one after ``start``.

        Conditions without an index are limited to its rows, so that a search without results reads no
        more than these.
        """
        last = None if self.unknown else self.edge(using, start)
        if start is None:
            return SearchWindow(Q() if last is None else self.up_to(last), last)
        rows = Q(pk=None) if last is None else self.up_to(last) & keyset.beyond(self.keys[:1], [start])
        return SearchWindow(rows, last)

    def is_whole(self, window: SearchWindow, using: str) -> bool:
        """Whether there are no rows after the window. It asks for a whole window of them: for a single
        row a planner might prefer another index.
        """
        return window.edge is None or self.edge(using, window.edge) is None

    def windows(self, rows: QuerySet[Any], using: str) -> Iterator[QuerySet[Any]]:
        """All of these rows of the tab, window by window."""
        start = None
        while not self.unknown and (edge := self.edge(using, start)) is not None:
            part = rows.filter(self.up_to(edge))
            yield part if start is None else part.filter(keyset.beyond(self.keys[:1], [start]))
            start = edge
