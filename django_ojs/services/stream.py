"""The events as one stream that loses nothing: every reader sees the same order.

The ids of events are made before their transactions commit, so a reader that remembers the last id
would miss the events of a transaction that was open for long. The first reader after the commit
gives each event its place instead, under a lock, and readers remember places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet, TextField
from django.db.models.functions import Cast, Length

from django_ojs import conf
from django_ojs.models import Event, EventStream
from django_ojs.store import sequencing
from django_ojs.store.batches import parts_that_fit
from django_ojs.store.contention import in_transaction

T = TypeVar("T", bound=Model)
MOST_BYTES = 8 << 20
"""Of text in the data of the events that are read together."""
BATCH = 1000
MOST_BATCHES = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events: of these kinds (``job.*`` for a family), queues, job; ``None`` is any.

    ``within`` are the queues, or prefixes that end in ``*``, that the reader may see; ``omitted`` are
    kinds that the reader has from elsewhere; ``since`` is the moment where a reader begins.
    """

    kinds: Collection[str] | None = None
    queues: Collection[str] | None = None
    job_id: UUID | None = None
    within: Collection[str] | None = None
    omitted: Collection[str] = ()
    since: datetime | None = None

    @property
    def narrowed(self) -> bool:
        """Whether it is about some queues only."""
        return self.queues is not None or self.within is not None

    def of_queues(self, rows: QuerySet[T]) -> QuerySet[T]:
        """Those of the rows that are of its queues."""
        if self.queues is not None:
            rows = rows.filter(queue__in=list(self.queues))
        if self.within is not None:
            rows = rows.filter(any_of("queue", self.within))
        return rows


def read(
    wanted: Wanted,
    *,
    after: int,
    limit: int,
    until: int | None = None,
    settled: bool = False,
    using: str | None = None,
) -> tuple[list[Event], bool]:
    """Up to ``limit`` events behind the place ``after``, in order, as many as fit ``MOST_BYTES``; and
    whether there are more, as far as the place ``until``.

    ``settled`` is for those who have just asked for the :func:`newest`.
    """
    using = using or conf.current().database
    if not settled:
        settle(using=using)
    rows = _matching(wanted, using).filter(seq__gt=after).order_by("seq")
    if until is not None:
        rows = rows.filter(seq__lte=until)
    known = list(rows.defer("data")[: limit + 1])
    found, seen = filled(known[:limit], using=using)
    return found, seen < len(known)


def filled(events: Sequence[Event], *, using: str) -> tuple[list[Event], int]:
    """The first of the events, as many as fit ``MOST_BYTES``, or one; and how many of them that are.

    They come without their data, which is read here, or are not stored. What was deleted meanwhile is
    left out.
    """
    keys = [event.pk for event in events if event.get_deferred_fields()]
    rows = Event.objects.using(using).filter(pk__in=keys)
    sized = rows.annotate(size=Length(Cast("data", TextField()))).values_list("pk", "size")

    def sizes(some: Sequence[UUID]) -> dict[UUID, int]:
        return dict(sized.filter(pk__in=some))

    part = next(parts_that_fit([event.pk for event in events], sizes, MOST_BYTES), [])
    data = dict(rows.filter(pk__in=part).values_list("pk", "data"))
    found = []
    for event in events[: len(part)]:
        if event.get_deferred_fields():
            if event.pk not in data:
                continue
            event.data = data[event.pk]
        found.append(event)
    return found, len(part)


def place_of(event_id: UUID, *, using: str | None = None) -> int | None:
    """The place of an event, ``None`` if it does not exist (any more)."""
    using = using or conf.current().database
    settle(using=using)
    return Event.objects.using(using).filter(pk=event_id).values_list("seq", flat=True).first()


def place_before(event_id: UUID, *, using: str | None = None) -> int:
    """The place behind which every event with this id or a later one is: ids are made in the
    order of time, and places are given in almost that order.
    """
    using = using or conf.current().database
    settle(using=using)
    later = Event.objects.using(using).filter(pk__gte=event_id)
    first = later.order_by("pk").values_list("seq", flat=True)[:BATCH]
    places = [place for place in first if place is not None]
    return min(places) - 1 if places else newest(using=using)


def newest(*, using: str | None = None) -> int:
    """The place of the last event, 0 without events."""
    using = using or conf.current().database
    settle(using=using)
    last = EventStream.objects.using(using).values_list("last", flat=True).first()
    return last or 0


def settle(*, using: str) -> int:
    """Give committed events their places, the oldest first; returns how many.

    Waits for another reader that is doing the same.
    """
    done = 0
    for _ in range(MOST_BATCHES):
        if not sequencing.unplaced(1, using=using):
            break
        done += _settle(using=using)
    return done


@in_transaction
def _settle(*, using: str = "") -> int:
    stream, _ = EventStream.objects.using(using).select_for_update().get_or_create(pk=1)
    fresh = sequencing.unplaced(BATCH, using=using)
    if not fresh:
        return 0
    stream.refresh_from_db(using=using)
    sequencing.place(fresh, stream.last + 1, using=using)
    stream.last += len(fresh)
    stream.save(using=using)
    return len(fresh)


def _matching(wanted: Wanted, using: str) -> QuerySet[Event]:
    rows = wanted.of_queues(Event.objects.using(using).all())
    if wanted.job_id is not None:
        rows = rows.filter(job_id=wanted.job_id)
    if wanted.kinds is not None:
        rows = rows.filter(any_of("kind", wanted.kinds))
    if wanted.omitted:
        rows = rows.exclude(kind__in=list(wanted.omitted))
    return rows


def any_of(column: str, patterns: Collection[str]) -> Q:
    """The rows whose column is one of the names, or begins like a pattern that ends in ``*``."""
    exact: Sequence[str] = [pattern for pattern in patterns if not pattern.endswith("*")]
    found = Q(**{f"{column}__in": exact})
    for pattern in patterns:
        if pattern.endswith("*"):
            found |= Q(**{f"{column}__startswith": pattern[:-1]})
    return found
