"""What stands under the key of a rate limit, read at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_ojs.domain.rate_limit import MAX_STARTS, Window
from django_ojs.models import Queue, RateLimitDue, RateLimitPlace, RateLimitStart
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialect import cursor, dialect, repeated

_Status = RateLimitPlace.Status
_TAKEN = (_Status.ADMITTED, _Status.RUNNING, _Status.ENDING)
_PLACES = RateLimitPlace._meta.db_table
_DUES = RateLimitDue._meta.db_table
_QUEUES = Queue._meta.db_table
_STARTS = RateLimitStart._meta.db_table


class KeyRows(NamedTuple):
    """The rows of a key as one statement has seen them.

    ``dues`` are the ids of its due admissions, ``taken`` counts the places that are taken by their
    status, ``first_end`` is when the first of those that end is given up. ``waits`` is whether a job
    waits, one of a paused queue too; ``paused`` are the queues that are.
    """

    dues: Sequence[int]
    taken: Mapping[int, int]
    first_end: datetime | None
    waits: bool
    paused: Sequence[str]


def read(key: str, *, using: str) -> KeyRows:
    """Read what stands under a key; counted from rows, exact while the row of the key is locked."""
    sql = dialect(using)
    name, taken = sql.quote("key"), ", ".join(str(status.value) for status in _TAKEN)
    with repeated(using, anywhere=True) as cur:
        cur.execute(
            f"SELECT 'due', id, 1, NULL, NULL FROM {_DUES} WHERE {name} = %s"
            f" UNION ALL SELECT 'taken', status, COUNT(*), MIN(until), NULL FROM {_PLACES}"
            f" WHERE {name} = %s AND status IN ({taken}) GROUP BY status"
            f" UNION ALL SELECT * FROM (SELECT 'waits', status, 1, until, NULL FROM {_PLACES}"
            f" WHERE {name} = %s AND status = {_Status.WAITING.value} LIMIT 1) AS one"
            f" UNION ALL SELECT 'paused', 0, 1, NULL, name FROM {_QUEUES} WHERE paused",
            [key, key, key],
        )
        rows = cur.fetchall()
    ends = [sql.decode(ColumnType.TIME, end) for *_, end, _ in rows if end is not None]
    return KeyRows(
        [number for kind, number, *_ in rows if kind == "due"],
        {number: count for kind, number, count, *_ in rows if kind == "taken"},
        min(ends, default=None),
        any(kind == "waits" for kind, *_ in rows),
        [queue for kind, *_, queue in rows if kind == "paused"],
    )


class Crowd(NamedTuple):
    """How many jobs wait for a place under a key, how many were let in, how many places run or end."""

    waiting: int
    admitted: int
    running: int


def crowds(keys: Sequence[str], *, waiting: int, taken: int, using: str) -> dict[str, Crowd]:
    """Count what waits under each key, up to ``waiting``, and what has a place, up to ``taken``, by
    one statement over ranges of an index.
    """
    if not keys:
        return {}
    name = dialect(using).quote("key")
    asked = (
        (f"{_Status.WAITING.value}", waiting),
        (f"{_Status.ADMITTED.value}", taken),
        (f"{_Status.RUNNING.value}, {_Status.ENDING.value}", taken),
    )
    counted = ", ".join(
        f"(SELECT COUNT(*) FROM (SELECT id FROM {_PLACES} WHERE {name} = %s AND status IN ({those})"
        f" LIMIT {cap}) s)"
        for those, cap in asked
    )
    statement = " UNION ALL ".join(f"SELECT {place}, {counted}" for place in range(len(keys)))
    with cursor(using) as cur:
        cur.execute(statement, [key for one in keys for key in (one,) * len(asked)])
        return {keys[place]: Crowd(*counts) for place, *counts in cur.fetchall()}


class WindowStarts(NamedTuple):
    """The starts of a key within a window: their number, up to ``MAX_STARTS``, and the oldest.

    ``filling`` is when the newest of them that fill the window begin, ``taking`` the same for what is
    left of the window beside the jobs that were let in; ``None`` while there are fewer.
    """

    number: int
    oldest: datetime | None
    filling: datetime | None
    taking: datetime | None


def started(
    asked: Sequence[tuple[str, Window, int]], now: datetime, *, using: str
) -> list[WindowStarts]:
    """Read the starts of each key within its window, for so many jobs that were let in, by one
    statement over ranges of an index.
    """
    if not asked:
        return []
    sql = dialect(using)
    within = f"FROM {_STARTS} WHERE {sql.quote('key')} = %s AND started_at > %s"
    selects: list[str] = []
    parameters: list[Any] = []
    for place, (key, window, admitted) in enumerate(asked):
        fill = max(1, window.limit)
        take = max(1, window.limit - admitted)
        newest = f"(SELECT started_at {within} ORDER BY started_at DESC LIMIT 1 OFFSET"
        selects.append(
            f"SELECT {place}, (SELECT COUNT(*) FROM (SELECT id {within} LIMIT {MAX_STARTS}) s),"
            f" (SELECT started_at {within} ORDER BY started_at LIMIT 1),"
            f" {newest} {fill - 1}), {newest} {take - 1})"
        )
        parameters += [key, sql.bind(ColumnType.TIME, now - window.period)] * 4
    found: dict[int, WindowStarts] = {}
    with cursor(using) as cur:
        cur.execute(" UNION ALL ".join(selects), parameters)
        for place, count, *moments in cur.fetchall():
            times = (None if one is None else sql.decode(ColumnType.TIME, one) for one in moments)
            found[place] = WindowStarts(count, *times)
    return [found[place] for place in range(len(asked))]
