"""Lock what is claimed, and nothing else.

Where the database has SKIP LOCKED, rows that another claim holds are passed over; SQLite has one
writer at a time instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.states import State
from django_ojs.store import selectors
from django_ojs.store.batches import parts
from django_ojs.store.candidates import Candidate
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialect import cursor, dialect, in_list
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.dialects.mysql import MySQL
from django_ojs.store.sources import PAUSED, QUEUES, TABLE, Lane, Sources

_MORE = 4


class QueueStates(NamedTuple):
    """Those of the queues that are paused, that have a rate limit, and whose row is held."""

    paused: frozenset[str]
    limited: frozenset[str]
    held: frozenset[str] = frozenset()


def shared(names: Sequence[str], *, using: str) -> QueueStates:
    """The states of the queues, held so that a pause waits for the claim under way.

    After ``pause`` has returned, no job of the queue is claimed any more.
    """
    return _states(_queues(names, dialect(using).for_share, using))


def shared_unless_held(names: Sequence[str], *, using: str) -> QueueStates:
    """As :func:`shared` without waiting, also for the queues whose row another transaction holds."""
    sql = dialect(using)
    if not sql.share_unheld:
        return shared(names, using=using)
    known = _queues(names, sql.share_unheld, using)
    unknown = set(names) - {name for name, _, _ in known}
    # A queue without a row is not paused.
    held = frozenset(name for name, _, _ in _queues(sorted(unknown), "", using))
    return _states(known)._replace(held=held)


def _states(rows: Sequence[tuple[str, bool, bool]]) -> QueueStates:
    return QueueStates(
        frozenset(name for name, is_paused, _ in rows if is_paused),
        frozenset(name for name, _, is_limited in rows if is_limited),
    )


def _queues(names: Sequence[str], lock: str, using: str) -> Sequence[tuple[str, bool, bool]]:
    if not names:
        return []
    sent = clock.boottime()
    with cursor(using) as cur:
        cur.execute(
            f"SELECT name, paused, limited, {clock.columns(using)} FROM {QUEUES}"
            f" WHERE name IN {in_list(names)}{lock}",
            list(names),
        )
        rows = cur.fetchall()
    if rows:
        # Spares every claim a statement that asks for the time.
        *_, time, steps = rows[-1]
        clock.carried(using, time, steps, sent)
    return [row[:3] for row in rows]


def first(lane: Lane, limit: int, *, most_bytes: int | None = None, using: str) -> list[JobRow]:
    """Lock the first ``limit`` unlocked jobs of one range.

    Returns those of them that together hold no more text than ``most_bytes``, or the first.
    """
    sql = dialect(using)
    read = _Reading(sql, most_bytes if limit > 1 else None)
    text, pins = lane.select(read.columns, f"{sql.limit}{sql.skip_locked}", sql)
    with cursor(using) as cur:
        sql.fast_loaders(cur)
        cur.execute(text, [*pins, limit])
        read.add(cur.fetchall())
    return read.jobs()


def front(where: Sources, limit: int, *, using: str) -> list[JobRow] | None:
    """The first jobs of the one range that holds those of this worker and others; ``None`` if one of
    them is for others, or its queue is paused: then look first, since records may be large.

    For a database with one writer at a time, which need not lock them one by one, while the backlog
    ``flows``.
    """
    sql = dialect(using)
    text, pins = where.lanes[0].select(f"{sql.job_columns}, j.queue IN {PAUSED}", sql.limit, sql)
    with cursor(using) as cur:
        cur.execute(text, [*pins, limit])
        rows = cur.fetchall()
    jobs = sql.jobs([row[:-1] for row in rows])
    serves = cache(where.serves)
    if any(row[-1] for row in rows) or not all(serves(job.queue, job.type) for job in jobs):
        return None
    return jobs


def these(
    found: Sequence[Candidate], limit: int, *, most_bytes: int | None = None, using: str
) -> list[JobRow]:
    """Lock the first ``limit`` of these jobs that are still available and not locked.

    By primary key, and no more than ``limit`` at a time: what a database locks and then leaves out
    of the answer stays locked. ``most_bytes`` is as in :func:`first`.
    """
    sql = dialect(using)
    places = {candidate.id: place for place, candidate in enumerate(found)}
    join, order = f"CROSS JOIN {TABLE} j WHERE", "ORDER BY v.c1 "
    if isinstance(sql, MySQL):
        # In the order given, and without a sort, which would lock every row first.
        join, order = f"STRAIGHT_JOIN {TABLE} j{sql.by_index('PRIMARY')} WHERE", ""
    read = _Reading(sql, most_bytes if limit > 1 else None)
    start, size = 0, limit
    while start < len(found) and len(read) < limit:
        part = list(places.items())[start : start + size]
        start, size = start + size, size * _MORE
        item, bound = sql.record_set([ColumnType.UUID, ColumnType.INT], part)
        with cursor(using) as cur:
            sql.fast_loaders(cur)
            cur.execute(
                f"SELECT {read.columns} FROM {item} {join} j.id = v.c0"
                f" AND {sql.in_state(State.AVAILABLE)} AND NOT j.held {order}LIMIT %s{sql.skip_locked}",
                [*bound, limit - len(read)],
            )
            read.add(cur.fetchall(), places)
    return read.jobs()


class _Reading:
    """Jobs that are being locked: whole, or where their text is bounded only their sizes at first."""

    def __init__(self, sql: Dialect, most_bytes: int | None) -> None:
        self._sql = sql
        self._most_bytes = most_bytes
        self._jobs: list[JobRow] = []
        self._sizes: dict[UUID, int] = {}
        self.columns = sql.job_columns
        if most_bytes is not None:
            self.columns = f"j.id, {sql.text_size(LARGE)}"

    def __len__(self) -> int:
        return len(self._jobs) + len(self._sizes)

    def add(self, rows: Sequence[Sequence[Any]], places: Mapping[UUID, int] | None = None) -> None:
        """Rows of ``columns``, in order, or to be put in the order of ``places``."""
        if self._most_bytes is not None:
            found = {self._sql.decode(ColumnType.UUID, job_id): size for job_id, size in rows}
            order = found if places is None else sorted(found, key=places.__getitem__)
            self._sizes.update({job_id: found[job_id] for job_id in order})
            return
        jobs = self._sql.jobs(rows)
        self._jobs += jobs if places is None else sorted(jobs, key=lambda job: places[job.id])

    def jobs(self) -> list[JobRow]:
        """Those that fit, in order."""
        if (most := self._most_bytes) is None:
            return self._jobs
        fitting = next(parts(self._sizes, self._sizes.__getitem__, lambda held: held <= most), [])
        found = selectors.jobs(fitting, using=self._sql.connection.alias)
        return [found[job_id] for job_id in fitting]
