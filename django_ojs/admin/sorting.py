"""The orders in which the job list can be read.

An order that an index has is one of the whole tab. By any other column only the rows of a window are
sorted: as many as a search looks at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from django.db.models import Case, DurationField, ExpressionWrapper, F, Field, Q, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy

from django_ojs.domain.states import State
from django_ojs.store.keyset import Keys

PARAMETER = "sort"
"""The parameter of a list with the name of its order."""


class Reach(Enum):
    """Which rows of a tab are sorted."""

    TAB = auto()
    """All, by an index."""
    WINDOW = auto()
    """The first ones in the natural order of the tab, as many as a search looks at."""
    LINE = auto()
    """Those that are claimed first, or last."""


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of a tab.

    ``name`` is its name in addresses, with a minus for the descending one. ``keys`` are as
    :meth:`KeysetChangeList.keys`; ``value`` is the first of them where that is no column. The heading
    of the column ``heading``, if any, is a link to it.
    """

    name: str
    label: Any
    keys: Keys
    reach: Reach = Reach.TAB
    heading: str = ""
    value: Any = None

    @property
    def descends(self) -> bool:
        return self.name.startswith("-")


def _ways(
    name: str, keys: Keys, first: Any, last: Any, heading: str = "", **more: Any
) -> tuple[Sort, Sort]:
    """An order and its reverse, with words for what each begins with. ``name`` is that of the first."""
    turned = tuple((column, not down) for column, down in keys)
    other = name.removeprefix("-") if name.startswith("-") else f"-{name}"
    return (
        Sort(name, first, keys, heading=heading, **more),
        Sort(other, last, turned, heading=heading, **more),
    )


def _by(column: str, heading: str, most: Any, least: Any) -> tuple[Sort, Sort]:
    """By a number, the largest first, within a window."""
    keys: Keys = ((column, True), ("pk", True))
    return _ways(f"-{heading}", keys, most, least, heading, reach=Reach.WINDOW)


def _named(column: str, heading: str, first: Any, last: Any) -> tuple[Sort, Sort]:
    """By a name, within a window."""
    keys: Keys = ((column, False), ("pk", True))
    return _ways(column, keys, first, last, heading, reach=Reach.WINDOW)


def _span(
    name: str, start: str, end: str, most: Any, least: Any, unless: Q | None = None
) -> tuple[Sort, Sort]:
    """By the time between two columns, the longest first, within a window. It counts as none where it
    is not known: where a column is empty, and ``unless`` holds.
    """
    none = Value(timedelta(0), output_field=DurationField())
    between = ExpressionWrapper(F(end) - F(start), output_field=DurationField())
    value: Any = Coalesce(between, none, output_field=DurationField())
    if unless is not None:
        value = Case(When(unless, then=none), default=value, output_field=DurationField())
    keys: Keys = ((f"ojs_{name}", True), ("pk", True))
    return _ways(f"-{name}", keys, most, least, name, reach=Reach.WINDOW, value=value)


_NEWEST, _OLDEST = gettext_lazy("newest first"), gettext_lazy("oldest first")
_BY_ID: Keys = (("pk", True),)
_BY_END: Keys = (("finished_at", True), ("pk", True))
_CREATED = _ways("-created", _BY_ID, _NEWEST, _OLDEST)
_NEWEST_ONLY = _CREATED[:1]
"""The other way round a planner reads the primary key, past all that was made before."""
_ENDED = _ways("-ended", _BY_END, _NEWEST, _OLDEST, "when")
_DUE = _ways(
    "due",
    (("scheduled_at", False), ("pk", False)),
    gettext_lazy("due first"),
    gettext_lazy("due last"),
    "when",
)
_OVERDUE = _ways(
    "deadline",
    (("deadline_at", False), ("pk", False)),
    gettext_lazy("longest overdue first"),
    gettext_lazy("shortest overdue first"),
)
_LINE = _ways(
    "line",
    (("priority", True), ("enqueued_at", False), ("pk", False)),
    gettext_lazy("next in line first"),
    gettext_lazy("last in line first"),
    "when",
    reach=Reach.LINE,
)
_DEADLINE = _ways(
    "deadline",
    (("deadline_at", False), ("pk", False)),
    gettext_lazy("nearest deadline first"),
    gettext_lazy("farthest deadline first"),
    reach=Reach.WINDOW,
)
_STARTED = _ways(
    "started",
    (("started_at", False), ("pk", False)),
    gettext_lazy("longest running first"),
    gettext_lazy("shortest running first"),
    "budget",
    reach=Reach.WINDOW,
)
_ATTEMPTS = _by(
    "attempt", "attempts", gettext_lazy("most attempts first"), gettext_lazy("fewest attempts first")
)
_TYPE = _named("type", "job", gettext_lazy("type, A to Z"), gettext_lazy("type, Z to A"))
_QUEUE = _named("queue", "queue", gettext_lazy("queue, A to Z"), gettext_lazy("queue, Z to A"))
_DURATION = _span(
    "duration",
    "started_at",
    "finished_at",
    gettext_lazy("longest duration first"),
    gettext_lazy("shortest duration first"),
    # As for ran_for.
    unless=Q(enqueued_at__gt=F("started_at")) | Q(scheduled_at__gt=F("started_at")),
)
_WAITED = _span(
    "waited",
    "enqueued_at",
    "started_at",
    gettext_lazy("longest wait first"),
    gettext_lazy("shortest wait first"),
)
SPANS: Mapping[str, Field[Any, Any]] = {
    "ojs_duration": DurationField(),
    "ojs_waited": DurationField(),
}
"""The fields of the keys that are no columns."""
_COMMON = (*_ATTEMPTS, *_TYPE, *_QUEUE)
_AFTERWARDS = (*_ENDED, *_DURATION, *_COMMON)
SORTS: Mapping[str, Sequence[Sort]] = {
    "": (*_CREATED, *_COMMON),
    State.SCHEDULED: (*_DUE, *_COMMON),
    State.PENDING: (*_NEWEST_ONLY, *_COMMON),
    State.AVAILABLE: (*_NEWEST_ONLY, *_LINE, *_COMMON),
    State.ACTIVE: (*_CREATED, *_STARTED, *_DEADLINE, *_COMMON),
    State.RETRYABLE: (*_DUE, *_COMMON),
    State.COMPLETED: (*_AFTERWARDS, *_WAITED),
    State.CANCELLED: _AFTERWARDS,
    State.DISCARDED: _AFTERWARDS,
    "overdue": (*_OVERDUE, *_TYPE, *_QUEUE),
    "dead_letter": _AFTERWARDS,
}
"""By state, by filter where it has orders of its own, and of the dead letter; the natural one first."""
