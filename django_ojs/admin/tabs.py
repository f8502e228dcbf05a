"""The parts that the job list is read in: each in the order of an index, searched in a window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from django_ojs import clock, conf
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.store import keyset, selectors

TIMED_OUT = ("timeout", "stalled", "total_timeout", "enqueue_ttl_expired", "visibility_timeout")
Keys = tuple[tuple[str, bool], ...]
LENSES = frozenset({"timed_out", "overdue"})
_BY_ID: Keys = (("pk", True),)
_BY_END: Keys = (("finished_at", True), ("pk", True))
_BY_DEADLINE: Keys = (("deadline_at", False), ("pk", False))
_BY_TIME: Keys = (("scheduled_at", False), ("pk", False))
_ORDER: Mapping[str, Keys] = {
    **{str(state): _BY_END for state in TERMINAL},
    **{str(state): _BY_TIME for state in (State.SCHEDULED, State.RETRYABLE)},
}
_STATES = frozenset(str(state) for state in State)


@dataclass(frozen=True, slots=True)
class SearchWindow:
    """The rows that a list is searched in, up to the edge."""

    rows: Q
    edge: Any


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab or lens of the list, or the dead letter."""

    state: str | None = None
    lens: str | None = None
    dead_letter: bool = False

    @property
    def keys(self) -> Keys:
        """The columns of an index that it is ordered by, and whether downwards; the last is the key."""
        if self.dead_letter:
            return _BY_END
        if self.lens == "overdue":
            return _BY_DEADLINE
        return _ORDER.get(self.state or "", _BY_ID)

    @property
    def index(self) -> str | None:
        """The index of these columns; ``None`` where planners find it by themselves."""
        if self.dead_letter:
            return "ojs_job_dead"
        if self.lens == "overdue":
            return None
        return {_BY_END: "ojs_job_finished", _BY_TIME: "ojs_job_due"}.get(self.keys)

    @property
    def condition(self) -> Q:
        """What no index knows of it: to be asked of the rows of the window only."""
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
            return selectors.in_state(rows, State.DISCARDED).filter(dead_letter=True)
        if self.lens == "overdue":
            return rows.filter(deadline_at__lt=clock.now(using))
        return selectors.in_state(rows, State(self.state)) if self.state else rows

    @property
    def unknown(self) -> bool:
        """Whether there is no such tab: somebody typed its name. Such a list is empty."""
        return bool(
            (self.state and self.state not in _STATES) or (self.lens and self.lens not in LENSES)
        )

    def edge(self, using: str, start: Any = None) -> Any:
        """The first column of the last row of a window: of the first rows of the index in its order,
        or of the first beyond ``start``, as many as ``OJS["ADMIN"]["SEARCH_WINDOW"]``; ``None`` when
        there are none.
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
        """The rows up to the edge, and those of the same moment: the indexes do not know the key, and
        to sort by it would take longer than to read a few rows more.
        """
        return keyset.beyond(self.keys[:1], [edge], back=True, inclusive=True)

    def window(self, using: str) -> SearchWindow:
        """The first window.

        Conditions that no index serves are asked of its rows only, so that a search that finds nothing
        reads no more than them.
        """
        last = None if self.unknown else self.edge(using)
        return SearchWindow(Q() if last is None else self.up_to(last), last)

    def is_whole(self, window: SearchWindow, using: str) -> bool:
        """Whether there are no rows behind the window. Asked for as many as are in one: of a single row
        a planner could think that it is found sooner in another index.
        """
        return window.edge is None or self.edge(using, window.edge) is None

    def windows(self, rows: QuerySet[Any], using: str) -> Iterator[QuerySet[Any]]:
        """All of these rows of the tab, window by window."""
        start = None
        while not self.unknown and (edge := self.edge(using, start)) is not None:
            part = rows.filter(self.up_to(edge))
            yield part if start is None else part.filter(keyset.beyond(self.keys[:1], [start]))
            start = edge
