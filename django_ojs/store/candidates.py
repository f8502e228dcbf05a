"""Find the jobs that a worker would claim next: without locks, in exact claim order.

A look reads the front of one index and skips jobs that the worker does not serve, so that it costs the
same for one pair (queue, type) and for ten thousand. If the front is full of such jobs, the pairs with
work are read one by one, those with the earliest job first. Neither reads the backlog of others
(ADR 17).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.ids import stored_uuid
from django_ojs.store import pairs
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialect import dialect
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.sources import ORDER, ORDERED, PAUSED, QUEUES, SEEN, Lane, Sources

_SPARE = 8
"""Rows read in addition, since other workers may claim some."""
_WIDE = 400
_FOREIGN_FOR = 2.0
"""Seconds until a front that was full of others' jobs is read again."""
_NOTHING_FOR = 30.0
"""The same, if no job was found behind it."""
_MOST_LANES = 16
"""Ranges in one statement; of more, those that have a job are found first."""
_MOST_HEADS = 128
_DEPTH = 8
_MOST_ROWS = 4000


class Candidate(NamedTuple):
    """A job that may be claimed, with its queue and type when it was read."""

    id: UUID
    queue: str
    type: str
    most_attempts: int


class Look(NamedTuple):
    """The next jobs in claim order. ``cut_off`` if there may be more; ``pure`` if they are the front
    itself, read at once, and nothing in it is for others or paused.
    """

    found: list[Candidate]
    cut_off: bool
    pure: bool = False


def look(where: Sources, limit: int, *, whole: bool = False, using: str) -> Look:
    """Return the next jobs of ``where``: ``limit`` and some spare ones; sometimes fewer, but at least
    one if there is any.

    Skips no earlier job in claim order, but those that :class:`Resumed` says, unless the look is to be
    at the ``whole``. Notes in ``where`` if the front is not worth reading.
    """
    sql = dialect(using)
    want = width(where, limit)
    now = clock.boottime()
    if now >= where.foreign_until:
        place = where.resumed.place(now) if sql.skip_locked and not whole else None
        if place is not None:
            rest = _from(place, where, limit, want, sql)
            where.resumed.looked_on(clock.boottime() - now)
            if rest is not None:
                return rest
        # Do not read pair by pair because of a few jobs of others in front.
        for read in sorted({want, max(want, _WIDE)}):
            began = clock.boottime()
            front = _front(where, limit, read, sql)
            if front is not None:
                if len(where.lanes) == 1:
                    ended = clock.boottime()
                    where.resumed.looked(ended, ended - began)
                pure = front.pure and read == want
                return Look(front.found[:want], front.cut_off or len(front.found) > want, pure)
        where.foreign_until = now + _FOREIGN_FOR
    by_pairs = _by_pairs(where, limit, want, sql)
    if by_pairs.found:
        where.foreign_until = min(where.foreign_until, now + _FOREIGN_FOR)
    else:
        # Until then a look costs one statement, however many jobs of others are in front.
        where.foreign_until = now + _NOTHING_FOR
    return by_pairs


def width(where: Sources, limit: int) -> int:
    """How many jobs to look at for so many."""
    return max(limit, min(int(limit * where.crowding), _MOST_ROWS)) + _SPARE


def _front(where: Sources, limit: int, want: int, sql: Dialect) -> Look | None:
    """Read the first rows of all ranges; ``None`` if too few of them are for this worker."""
    lanes = where.lanes
    if len(lanes) > _MOST_LANES:
        lanes = _lanes_with_work(lanes, sql)
    found: list[Candidate] = []
    pure = True
    for start in range(0, len(lanes), _MOST_LANES):
        part = lanes[start : start + _MOST_LANES]
        rows = _first_of(part, want, sql)
        found += _served(rows, where)
        pure = pure and len(lanes) == 1 and len(found) == len(rows)
        if len(rows) == want:
            return None if len(found) < max(1, limit // 2) else Look(found, True, pure)
        if len(found) >= want:
            return Look(found, True)
    return Look(found, False, pure)


def _from(
    place: tuple[int, datetime], where: Sources, limit: int, want: int, sql: Dialect
) -> Look | None:
    """Read the first rows of the one range but for those of this place's priority that are before it;
    ``None`` if too few of them are for this worker.
    """
    priority, enqueued_at = place
    (lane,) = where.lanes
    same, times = sql.ranged("j.priority")
    since = [*[priority] * times, sql.bind(ColumnType.TIME, enqueued_at)]
    found: list[Candidate] = []
    rows: Sequence[tuple[Any, ...]] = []
    for condition, bound in (
        (" AND j.priority > %s", [priority]),
        (f" AND {same} AND j.enqueued_at >= %s", since),
        (" AND j.priority < %s", [priority]),
    ):
        rows = _first_of([lane], want, sql, condition, bound)
        found += _served(rows, where)
        if len(rows) == want:
            return None if len(found) < max(1, limit // 2) else Look(found[:want], True)
    return Look(found[:want], len(found) > want)


def _served(rows: Sequence[tuple[Any, ...]], where: Sources) -> list[Candidate]:
    serves = cache(where.serves)
    return [
        Candidate(stored_uuid(row[0]), row[1], row[2], row[3])
        for row in rows
        if not row[4] and serves(row[1], row[2])
    ]


def _first_of(
    lanes: Sequence[Lane],
    want: int,
    sql: Dialect,
    condition: str = "",
    given: Sequence[Any] = (),
) -> Sequence[tuple[Any, ...]]:
    """Read the first rows of these ranges, by rank, and whether their queue is paused; of the one range
    only those that meet a ``condition``.

    The range of a paused queue is empty; in the range of all queues its rows are marked.
    """
    paused = f"j.queue IN {PAUSED}"
    branches, bound = [], list[Any]()
    for rank, lane in enumerate(lanes):
        open_only, names = "", []
        if lane.queue is not None:
            # Evaluated once, before a row is read.
            open_only = f" AND (SELECT COUNT(*) FROM {QUEUES} WHERE name = %s AND paused) = 0"
            names = [lane.queue]
        columns = f"{SEEN}, {paused if lane.queue is None else '0'} AS p"
        if len(lanes) > 1:
            columns = columns.replace(SEEN, ORDERED) + f", {rank} AS r"
        text, pins = lane.select(columns, sql.limit, sql, open_only + condition)
        branches.append(text)
        bound += [*pins, *names, *given, want]
    statement = branches[0]
    if len(branches) > 1:
        every = " UNION ALL ".join(f"SELECT * FROM ({one}) b{n}" for n, one in enumerate(branches))
        statement = f"SELECT {SEEN}, j.p FROM ({every}) j ORDER BY j.r, {ORDER} LIMIT %s"
        bound.append(want)
    return _rows(statement, bound, sql)


def _lanes_with_work(lanes: Sequence[Lane], sql: Dialect) -> list[Lane]:
    """Return the ranges that have a job, by one statement with a probe for each."""
    kept = []
    for start in range(0, len(lanes), _MOST_HEADS):
        part = lanes[start : start + _MOST_HEADS]
        probes, bound = [], list[Any]()
        for lane in part:
            text, pins = lane.select("1", sql.limit, sql)
            probes.append(f"({text})")
            bound += [*pins, 1]
        ((*found,),) = _rows(f"SELECT {', '.join(probes)}", bound, sql)
        kept += [lane for lane, one in zip(part, found, strict=True) if one]
    return kept


# Pair by pair.


def _by_pairs(where: Sources, limit: int, want: int, sql: Dialect) -> Look:
    """Return the next jobs, read from the pairs with the earliest first jobs."""
    most = min(want, _MOST_HEADS)
    heads = _candidates(_rows(*pairs.heads(where, most, sql), sql))
    best = Look([], bool(heads))
    for depth in (_DEPTH, want):
        # With fewer pairs the walk must stop earlier.
        chosen = heads[: max(1, _MOST_ROWS // depth)]
        if not chosen or len(best.found) >= limit or not best.cut_off:
            break
        rows = _candidates(_rows(*pairs.rows(where, chosen, depth, sql), sql))
        exact = _walk(rows, chosen, depth, every=len(chosen) < most and len(chosen) == len(heads))
        best = max(exact, best, key=lambda one: len(one.found))
    return Look(best.found[:want], best.cut_off)


def _walk(rows: Sequence[Candidate], heads: Sequence[Candidate], depth: int, *, every: bool) -> Look:
    """Return the rows up to where an unread job may come before the next one.

    That is after the last row of a pair that may have more; and, unless these are ``every`` pair with
    work, after the last of their first jobs that still exists.
    """
    if not every:
        there = {row.id for row in rows}
        still = [head.id for head in heads if head.id in there]
        if not still:
            return Look([], True)
    read: Counter[tuple[str, str]] = Counter()
    for place, row in enumerate(rows, 1):
        pair = (row.queue, row.type)
        read[pair] += 1
        if read[pair] >= depth or (not every and row.id == still[-1]):
            return Look(list(rows[:place]), True)
    return Look(list(rows), False)


def _candidates(rows: Sequence[tuple[Any, ...]]) -> list[Candidate]:
    return [Candidate(stored_uuid(row[0]), row[1], row[2], row[3]) for row in rows]


def _rows(statement: str, parameters: Sequence[Any], sql: Dialect) -> Sequence[tuple[Any, ...]]:
    with sql.repeated() as cur:
        cur.execute(statement, parameters)
        found: Sequence[tuple[Any, ...]] = cur.fetchall()
        return found
