"""Reads without locks, for answers and screens."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet
from django.db.models.sql.datastructures import BaseTable

from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.states import TERMINAL, State
from django_ojs.engines import EngineFamily, family_of
from django_ojs.models import Job, Queue, RateLimitPlace, Schedule, Worker, Workflow
from django_ojs.store import batches
from django_ojs.store.columns import DUE, ENDED, JOB, UNTIMED, ColumnType, among
from django_ojs.store.dialect import cursor, dialect, in_list, repeated

_TABLE = Job._meta.db_table
_CLAIMABLE = f"state = '{State.AVAILABLE}' AND NOT held"
_HELD = "held"
_PLACES = RateLimitPlace._meta.db_table
_WAITING = RateLimitPlace.Status.WAITING.value
COUNT_CAP = 10_000
DEPTH_CAP = 1000
"""The cap when many queues are counted at once."""
AMONG_CAP = 5_000
"""How many jobs of a state are searched for those of a queue."""


def jobs(ids: Iterable[UUID], *, without: Collection[str] = (), using: str) -> dict[UUID, JobRow]:
    """Read the jobs with these ids, by id; missing ones are left out.

    ``without`` names columns of ``LARGE`` that are not read.
    """
    wanted = list(set(ids))
    if not wanted:
        return {}
    sql = dialect(using)
    those, bound = sql.one_of("j.id", wanted)
    with repeated(using, anywhere=True) as cur:
        sql.fast_loaders(cur)
        cur.execute(f"SELECT {sql.columns_without(without)} FROM {_TABLE} j WHERE {those}", bound)
        return {job.id: job for job in sql.jobs(cur.fetchall())}


def text_sizes(ids: Sequence[UUID], columns: Iterable[str] = LARGE, *, using: str) -> dict[UUID, int]:
    """Return the size of these text columns by job, in bytes or characters."""
    if not ids:
        return {}
    sql = dialect(using)
    those, bound = sql.one_of("j.id", ids)
    with cursor(using) as cur:
        cur.execute(f"SELECT j.id, {sql.text_size(columns)} FROM {_TABLE} j WHERE {those}", bound)
        return {sql.decode(ColumnType.UUID, job_id): found for job_id, found in cur.fetchall()}


def small_values(
    ids: Sequence[UUID], columns: Sequence[str], most: int, *, using: str
) -> dict[UUID, Sequence[Any]]:
    """JSON columns of jobs, parsed, by job; ``None`` for one with more text than ``most``."""
    if not ids:
        return {}
    sql = dialect(using)
    wanted = ", ".join(sql.if_small(name, most) for name in columns)
    those, bound = sql.one_of("j.id", ids)
    with cursor(using) as cur:
        cur.execute(f"SELECT j.id, {wanted} FROM {_TABLE} j WHERE {those}", bound)
        return {
            sql.decode(ColumnType.UUID, job_id): [
                None if text is None else json.loads(text) for text in row
            ]
            for job_id, *row in cur.fetchall()
        }


def parts_that_fit(ids: Sequence[UUID], most_bytes: int, *, using: str) -> Iterator[list[UUID]]:
    """Split the jobs into parts of at most ``most_bytes`` of text, or of one job."""
    return batches.parts_that_fit(ids, partial(text_sizes, using=using), most_bytes)


def queues_with_work(*, using: str) -> list[str]:
    """Return the names of all queues with a job that can be claimed, by one index probe for each."""
    names: list[str] = []
    with cursor(using) as cur:
        last = ""
        while True:
            cur.execute(
                f"SELECT queue FROM {_TABLE} WHERE {_CLAIMABLE} AND queue > %s ORDER BY queue LIMIT 1",
                [last],
            )
            row = cur.fetchone()
            if row is None:
                return names
            last = row[0]
            names.append(last)


def counts_by_state(*, using: str) -> dict[str, int]:
    """Count the jobs by state, each up to ``COUNT_CAP``."""
    statement = " UNION ALL ".join(
        f"SELECT '{state.value}', COUNT(*) FROM ({_of_state(state, 'id', using)}) c{index}"
        for index, state in enumerate(State)
    )
    with cursor(using) as cur:
        cur.execute(statement, [COUNT_CAP] * len(State))
        return {state: int(count) for state, count in cur.fetchall()}


def capped(rows: QuerySet[Any]) -> int:
    """How many rows there are, counted up to ``COUNT_CAP`` and no further."""
    return rows.order_by().values("pk")[:COUNT_CAP].count()


class Overview(NamedTuple):
    """The state of all jobs and workers."""

    counts: Mapping[str, int]
    """Jobs per state, up to the cap."""
    oldest: datetime | None
    """Since when the oldest of the counted available jobs has waited."""
    next_deadline: datetime | None
    live_workers: int
    slots: int
    """Of the live workers that say how many they have."""
    workflows: int
    """Those that run and are in no other, up to the cap."""
    late_schedules: int


def standing(alive_since: datetime, late_before: datetime, *, using: str) -> Overview:
    """Read the overview, in one statement; live workers have sent a beat since ``alive_since``, late
    schedules were due ``late_before``.
    """
    available = State.AVAILABLE
    waits = (
        f"SELECT enqueued_at FROM {_TABLE} WHERE {_CLAIMABLE}"
        " ORDER BY queue, priority DESC, enqueued_at, id LIMIT %s"
    )
    held = f"SELECT enqueued_at FROM {_PLACES} WHERE status = {_WAITING} LIMIT %s"
    # In front: a column of a union has the type of its first row.
    parts = [
        f"SELECT '{available}', COUNT(*), MIN(enqueued_at) FROM ({waits}) w",
        f"SELECT '{_HELD}', COUNT(*), MIN(enqueued_at) FROM ({held}) h",
    ]
    parts += [
        f"SELECT '{state}', COUNT(*), NULL FROM ({_of_state(state, 'id', using)}) c{index}"
        for index, state in enumerate(State)
        if state is not available
    ]
    parts.append(
        f"SELECT 'deadline', 0, MIN(deadline_at) FROM (SELECT deadline_at FROM {_TABLE}"
        " WHERE deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1) d"
    )
    parts += [
        f"SELECT '{name}', {number}, NULL FROM {Worker._meta.db_table}"
        f" WHERE heartbeat_at > %s AND phase <> '{Worker.Phase.STOPPED}'"
        for name, number in (("workers", "COUNT(*)"), ("slots", "COALESCE(SUM(concurrency), 0)"))
    ]
    parts.append(
        f"SELECT 'workflows', COUNT(*), NULL FROM (SELECT id FROM {Workflow._meta.db_table}"
        f" WHERE state = '{Workflow.States.RUNNING}' AND parent_id IS NULL LIMIT %s) f"
    )
    parts.append(f"SELECT 'late', COUNT(*), NULL FROM {Schedule._meta.db_table} WHERE due_at < %s")
    sql = dialect(using)
    since, late = (sql.bind(ColumnType.TIME, moment) for moment in (alive_since, late_before))
    parameters = [*[COUNT_CAP] * (len(State) + 1), since, since, COUNT_CAP, late]
    with cursor(using) as cur:
        cur.execute(" UNION ALL ".join(parts), parameters)
        rows = {name: (int(count), moment) for name, count, moment in cur.fetchall()}
    claimable, waiting, deadline = (
        None if moment is None else sql.decode(ColumnType.TIME, moment)
        for moment in (rows[available][1], rows[_HELD][1], rows["deadline"][1])
    )
    oldest = min(filter(None, (claimable, waiting)), default=None)
    counts: dict[str, int] = {state: rows[state][0] for state in State}
    counts[available] = min(COUNT_CAP, counts[available] + rows[_HELD][0])
    others = (rows[name][0] for name in ("workers", "slots", "workflows", "late"))
    return Overview(counts, oldest, deadline, *others)


class QueueDepth(NamedTuple):
    """Jobs of a queue by state. States in ``capped`` may have more."""

    counts: Mapping[str, int]
    capped: frozenset[str]
    oldest: datetime | None
    """Since when the oldest of the counted available jobs has waited."""


_STANDING = (State.ACTIVE, State.SCHEDULED, State.RETRYABLE, State.PENDING)
ALL_STATES = tuple(State)


def depths(
    queues: Sequence[str],
    *,
    cap: int = DEPTH_CAP,
    among: int = AMONG_CAP,
    states: Sequence[State] = _STANDING,
    using: str,
) -> dict[str, QueueDepth]:
    """Count the jobs of queues, by one statement over ranges of indexes.

    Available jobs are counted up to ``cap`` in each queue, and those of them that are held up to
    ``among`` in all. No index has the queue of other jobs: they
    are searched for among the ``among`` jobs of their state that run, are due first or ended last.
    """
    if not queues:
        return {}
    others = [state for state in states if state is not State.AVAILABLE]
    parts = [
        f"SELECT '{state.value}', queue, COUNT(*), NULL"
        f" FROM ({_of_state(state, 'queue', using)}) c{index} GROUP BY queue"
        for index, state in enumerate(others)
    ]
    parts.append(
        f"SELECT '{_HELD}', queue, COUNT(*), MIN(enqueued_at) FROM (SELECT queue, enqueued_at"
        f" FROM {_PLACES} WHERE status = {_WAITING} AND queue IN {in_list(queues)} LIMIT %s) h"
        " GROUP BY queue"
    )
    parameters: list[Any] = [*[among] * len(others), *queues, among]
    available = [
        f"SELECT '{State.AVAILABLE}', %s, COUNT(*), MIN(enqueued_at) FROM (SELECT queue, enqueued_at"
        f" FROM {_TABLE} WHERE {_CLAIMABLE} AND queue = %s"
        f" ORDER BY priority DESC, enqueued_at, id LIMIT %s) q{index}"
        for index in range(len(queues))
    ]
    # In front: a column of a union has the type of its first row.
    parameters = [value for queue in queues for value in (queue, queue, cap)] + parameters
    found: dict[str, dict[str, int]] = {queue: dict.fromkeys(others, 0) for queue in queues}
    totals = dict.fromkeys(map(str, others), 0)
    oldest: dict[str, datetime | None] = {}
    sql = dialect(using)
    with cursor(using) as cur:
        cur.execute(" UNION ALL ".join(available + parts), parameters)
        for state, queue, count, moment in cur.fetchall():
            since = None if moment is None else sql.decode(ColumnType.TIME, moment)
            if state == State.AVAILABLE:
                oldest[queue] = since
            elif state == _HELD:
                # Available too, but in no index of claims.
                oldest[queue] = min(filter(None, (oldest[queue], since)), default=None)
                found[queue][State.AVAILABLE] += int(count)
                continue
            else:
                totals[state] += int(count)
            if queue in found:
                found[queue][state] = int(count)
    full = {state for state in others if totals[state] >= among}
    return {
        queue: QueueDepth(
            {State(state): count for state, count in counts.items()},
            frozenset(full | ({State.AVAILABLE} if counts[State.AVAILABLE] >= cap else set())),
            oldest[queue],
        )
        for queue, counts in found.items()
    }


def _of_state(state: State, column: str, using: str) -> str:
    """Select jobs of a state up to a limit, in the order of the index of that state.

    Without the order a planner could read the table until it has found enough.
    """
    order = "worker_id"
    if state in TERMINAL:
        order = "finished_at DESC"
    elif state in DUE:
        order = "scheduled_at"
    elif state in UNTIMED:
        order = "id DESC"
    if column == "id":
        # Any column will do: one that the index has is read without the row.
        column = order.partition(" ")[0]
    return f"SELECT {column} FROM {_TABLE} WHERE {_in_state(state, using)} ORDER BY {order} LIMIT %s"


def _in_state(state: State, using: str) -> str:
    """The condition for a state; on SQLite with the literal condition of its partial index, without
    which SQLite does not use the index.

    Not elsewhere: PostgreSQL would take the two conditions for independent ones that few rows meet,
    and would read and sort these instead of following the index.
    """
    if family_of(connections[using]) is not EngineFamily.SQLITE:
        return f"{_TABLE}.state = '{state.value}'"
    group = next((states for states in (ENDED, DUE, UNTIMED) if state in states), ())
    return f"{_TABLE}.state = '{state.value}'" + (f" AND {among(group)}" if group else "")


def in_state(rows: QuerySet[Any], state: State) -> QuerySet[Any]:
    """Filter rows by a state, so that every database uses the index of that state."""
    return rows.extra(where=[_in_state(state, rows.db)])  # noqa: S610 - our own literals


def waiting_for_a_time(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Filter rows by being ``scheduled`` or ``retryable``, in the words of the index of these."""
    return rows.extra(where=[among(DUE, f"{_TABLE}.")])  # noqa: S610 - our own literals


def dead_letters(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Filter rows by being in the dead letter. Nothing is said of other states, unlike in
    :func:`in_state`: SQLite would then read all discarded jobs instead of the index of these.
    """
    state = f"{_TABLE}.state = '{State.DISCARDED.value}'"
    return rows.extra(where=[state]).filter(dead_letter=True)  # noqa: S610 - our own literals


class _Forced(BaseTable):
    """A table with an index hint."""

    index = ""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The FROM clause with the index hint."""
        statement, parameters = super().as_sql(compiler, connection)
        return f"{statement} FORCE INDEX ({self.index})", parameters


def by_index(rows: QuerySet[Any], index: str, *, using: str) -> QuerySet[Any]:
    """Read rows by this index on MariaDB and MySQL, which would take another one and sort."""
    if family_of(connections[using]) is not EngineFamily.MYSQL:
        return rows
    hinted = rows.all()
    alias = hinted.query.get_initial_alias()
    table = _Forced(_TABLE, alias)
    table.index = index
    hinted.query.alias_map[alias] = table
    return hinted


def last_of_first(rows: QuerySet[Any], name: str, *, down: bool, size: int, using: str) -> Any:
    """Return the column ``name`` of the last of the first ``size`` rows in its order.

    Reads one range of an index. ``None`` if there is no row.
    """
    column = "id" if name == "pk" else name
    ways = (f"-{column}", column) if down else (column, f"-{column}")
    first = rows.order_by(ways[0]).values_list(column)[:size]
    statement, parameters = first.query.get_compiler(using).as_sql()
    last = f"SELECT {column} FROM ({statement}) w ORDER BY {column}{'' if down else ' DESC'} LIMIT 1"
    if family_of(connections[using]) is EngineFamily.SQLITE:
        # It would take each of them out for the last one. If there are fewer, it is the last of all.
        parts = (rows.order_by(ways[0])[size - 1 : size], rows.order_by(ways[1])[:1])
        made = [part.values_list(column).query.get_compiler(using).as_sql() for part in parts]
        last = f"SELECT COALESCE({', '.join(f'({sql})' for sql, _parameters in made)})"
        parameters = tuple(value for _sql, those in made for value in those)
    with cursor(using) as cur:
        cur.execute(last, parameters)
        row = cur.fetchone()
    return None if row is None or row[0] is None else dialect(using).decode(JOB[column], row[0])


def newest_before(job_id: UUID, size: int, *, using: str) -> UUID:
    """Return the id of the oldest of the ``size`` jobs made before one, or the id itself if it is the
    first. Reads a range of the primary key.
    """
    rows = Job.objects.using(using).filter(pk__lt=job_id)
    found = last_of_first(rows, "pk", down=True, size=size, using=using)
    return job_id if found is None else UUID(str(found))


class Ended(NamedTuple):
    """What the figures of a queue need of a job that ended."""

    state: str
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime
    dead_letter: bool


def ended_since(queue: str, since: datetime, *, using: str) -> list[Ended]:
    """The jobs of a queue among the newest ``COUNT_CAP`` that completed, and that were discarded, since
    a time: two ranges of one index, however long the history.
    """
    found: list[Ended] = []
    for state in (State.COMPLETED, State.DISCARDED):
        rows = (
            in_state(Job.objects.using(using), state)
            .filter(finished_at__gt=since)
            .order_by("-finished_at")
            .values_list(*Ended._fields, "queue")[:COUNT_CAP]
        )
        found += [Ended(*row[:-1]) for row in rows if row[-1] == queue]
    return found


def paused_queues(*, using: str) -> set[str]:
    """The names of all paused queues."""
    return set(Queue.objects.using(using).filter(paused=True).values_list("name", flat=True))
