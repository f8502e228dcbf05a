"""Reads that lock nothing: for answers, for probes of what is due next, for screens."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet
from django.db.models.sql.datastructures import BaseTable

from django_ojs.domain.job import LARGE, JobRecord
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job, Queue, Worker
from django_ojs.store import batches
from django_ojs.store.columns import DUE, ENDED, JOB, UNTIMED, ColumnType, among
from django_ojs.store.dialect import cursor, dialect, in_list

_TABLE = Job._meta.db_table
COUNT_CAP = 10_000
DEPTH_CAP = 1000
"""Where many queues are counted at once."""
AMONG_CAP = 5_000
"""Among how many of a state the jobs of a queue are looked for."""


def jobs(ids: Iterable[UUID], *, without: Collection[str] = (), using: str) -> dict[UUID, JobRecord]:
    """The jobs with these ids, by id; those that do not exist are missing.

    ``without`` are columns out of ``LARGE`` that are not read.
    """
    wanted = list(set(ids))
    if not wanted:
        return {}
    sql = dialect(using)
    with cursor(using) as cur:
        sql.fast_loaders(cur)
        cur.execute(
            f"SELECT {sql.columns_without(without)} FROM {_TABLE} j WHERE j.id IN {in_list(wanted)}",
            [sql.bind(ColumnType.UUID, job_id) for job_id in wanted],
        )
        return {job.id: job for job in sql.jobs(cur.fetchall())}


def text_sizes(ids: Sequence[UUID], columns: Iterable[str] = LARGE, *, using: str) -> dict[UUID, int]:
    """How much text these columns of the jobs hold: bytes, or characters."""
    if not ids:
        return {}
    sql = dialect(using)
    with cursor(using) as cur:
        cur.execute(
            f"SELECT j.id, {sql.text_size(columns)} FROM {_TABLE} j WHERE j.id IN {in_list(ids)}",
            [sql.bind(ColumnType.UUID, job_id) for job_id in ids],
        )
        return {sql.decode(ColumnType.UUID, job_id): found for job_id, found in cur.fetchall()}


def parts_that_fit(ids: Sequence[UUID], most_bytes: int, *, using: str) -> Iterator[list[UUID]]:
    """The jobs in parts that hold no more text than ``most_bytes``, or one job."""
    return batches.parts_that_fit(ids, partial(text_sizes, using=using), most_bytes)


def queues_with_work(*, using: str) -> list[str]:
    """The names of all queues with an available job: one index probe per queue."""
    names: list[str] = []
    with cursor(using) as cur:
        last = ""
        while True:
            cur.execute(
                f"SELECT queue FROM {_TABLE} WHERE state = '{State.AVAILABLE}' AND queue > %s"
                " ORDER BY queue LIMIT 1",
                [last],
            )
            row = cur.fetchone()
            if row is None:
                return names
            last = row[0]
            names.append(last)


def counts_by_state(*, queue: str | None = None, cap: int = COUNT_CAP, using: str) -> dict[str, int]:
    """Jobs per state, each counted up to ``cap`` and no further.

    Of a ``queue``, what ended or waits for its time is counted among the ``cap`` newest, or next, of
    all queues: no index knows the queue of those.
    """
    column = "id" if queue is None else "queue"
    statement = " UNION ALL ".join(
        f"SELECT '{state.value}', COUNT(*) FROM ({_of_state(state, column, using)}) c{index}"
        + ("" if queue is None else " WHERE queue = %s")
        for index, state in enumerate(State)
    )
    if queue is not None:
        # Here the index leads with the queue.
        statement = statement.replace(
            _of_state(State.AVAILABLE, column, using),
            f"SELECT queue FROM {_TABLE} WHERE state = '{State.AVAILABLE}' AND queue = %s"
            " ORDER BY queue LIMIT %s",
            1,
        )
    parameters: list[Any] = []
    for state in State:
        indexed = queue is not None and state is State.AVAILABLE
        parameters += [*([queue] if indexed else []), cap, *([] if queue is None else [queue])]
    with cursor(using) as cur:
        cur.execute(statement, parameters)
        return {state: int(count) for state, count in cur.fetchall()}


class Overview(NamedTuple):
    """How things stand as a whole."""

    counts: Mapping[str, int]
    """Jobs per state, up to the cap."""
    oldest: datetime | None
    """Since when the oldest of the counted available jobs, the first in claim order, has waited."""
    next_deadline: datetime | None
    live_workers: int


def standing(alive_since: datetime, *, using: str) -> Overview:
    """How things stand, in one statement; ``alive_since`` is when a live worker beat at the latest."""
    available = State.AVAILABLE
    waits = (
        f"SELECT enqueued_at FROM {_TABLE} WHERE {_in_state(available, using)}"
        " ORDER BY queue, priority DESC, enqueued_at, id LIMIT %s"
    )
    # In front: a column of a union has the type of its first row.
    parts = [f"SELECT '{available}', COUNT(*), MIN(enqueued_at) FROM ({waits}) w"]
    parts += [
        f"SELECT '{state}', COUNT(*), NULL FROM ({_of_state(state, 'id', using)}) c{index}"
        for index, state in enumerate(State)
        if state is not available
    ]
    parts.append(
        f"SELECT 'deadline', 0, MIN(deadline_at) FROM (SELECT deadline_at FROM {_TABLE}"
        " WHERE deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1) d"
    )
    parts.append(
        f"SELECT 'workers', COUNT(*), NULL FROM {Worker._meta.db_table}"
        f" WHERE heartbeat_at > %s AND phase <> '{Worker.Phase.STOPPED}'"
    )
    sql = dialect(using)
    parameters = [COUNT_CAP] * len(State) + [sql.bind(ColumnType.TIME, alive_since)]
    with cursor(using) as cur:
        cur.execute(" UNION ALL ".join(parts), parameters)
        rows = {name: (int(count), moment) for name, count, moment in cur.fetchall()}
    oldest, deadline = (
        None if moment is None else sql.decode(ColumnType.TIME, moment)
        for moment in (rows[available][1], rows["deadline"][1])
    )
    counts: dict[str, int] = {state: rows[state][0] for state in State}
    return Overview(counts, oldest, deadline, rows["workers"][0])


class QueueDepth(NamedTuple):
    """How much waits and runs in a queue. ``capped`` are the states that may have more than that."""

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
    """How full the queues are: one statement for all of them, of ranges of indexes.

    Available jobs are counted in claim order, ``cap`` of each queue. No index knows the queue of the
    others: they are looked for among the ``among`` of their state that run, are due first, or ended
    last.
    """
    if not queues:
        return {}
    others = [state for state in states if state is not State.AVAILABLE]
    parts = [
        f"SELECT '{state.value}', queue, COUNT(*), NULL"
        f" FROM ({_of_state(state, 'queue', using)}) c{index} GROUP BY queue"
        for index, state in enumerate(others)
    ]
    parameters: list[Any] = [among] * len(others)
    available = [
        f"SELECT '{State.AVAILABLE}', %s, COUNT(*), MIN(enqueued_at) FROM (SELECT queue, enqueued_at"
        f" FROM {_TABLE} WHERE state = '{State.AVAILABLE}' AND queue = %s"
        f" ORDER BY queue, priority DESC, enqueued_at, id LIMIT %s) q{index}"
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
            if state == State.AVAILABLE:
                oldest[queue] = None if moment is None else sql.decode(ColumnType.TIME, moment)
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
    """The jobs of a state up to a limit, in the order of the index of that state.

    Without an order a planner could read the table until it has found enough.
    """
    order = "worker_id"
    if state in TERMINAL:
        order = "finished_at DESC"
    elif state in DUE:
        order = "scheduled_at"
    elif state in UNTIMED:
        order = "id DESC"
    if column == "id":
        # Any will do; the one that the index holds is read without the row.
        column = order.partition(" ")[0]
    return f"SELECT {column} FROM {_TABLE} WHERE {_in_state(state, using)} ORDER BY {order} LIMIT %s"


def _in_state(state: State, using: str) -> str:
    """A state; on SQLite with the condition of the partial index that serves it, in literals: it proves
    no other.

    Not on the others: PostgreSQL, which proves it by itself, takes the two conditions for independent
    ones that few rows meet, and would rather read and sort them all than go along the index.
    """
    if connections[using].vendor != "sqlite":
        return f"{_TABLE}.state = '{state.value}'"
    group = next((states for states in (ENDED, DUE, UNTIMED) if state in states), ())
    return f"{_TABLE}.state = '{state.value}'" + (f" AND {among(group)}" if group else "")


def in_state(rows: QuerySet[Any], state: State) -> QuerySet[Any]:
    """The rows in a state, by the index of that state on every database."""
    return rows.extra(where=[_in_state(state, rows.db)])  # noqa: S610 - our own literals


class _Forced(BaseTable):
    """A table that is read by one of its indexes."""

    index = ""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The FROM clause with the index hint."""
        statement, parameters = super().as_sql(compiler, connection)
        return f"{statement} FORCE INDEX ({self.index})", parameters


def by_index(rows: QuerySet[Any], index: str, *, using: str) -> QuerySet[Any]:
    """The rows by this index, where planners take any other that begins with the state and sort.

    MariaDB and MySQL do; the others are left to their planners.
    """
    if connections[using].vendor != "mysql":
        return rows
    hinted = rows.all()
    alias = hinted.query.get_initial_alias()
    table = _Forced(_TABLE, alias)
    table.index = index
    hinted.query.alias_map[alias] = table
    return hinted


def last_of_first(rows: QuerySet[Any], name: str, *, down: bool, size: int, using: str) -> Any:
    """The column ``name`` of the last of the first ``size`` rows in its order: one range of an index.

    ``None`` when there is no row.
    """
    column = "id" if name == "pk" else name
    first = rows.order_by(f"-{column}" if down else column).values_list(column)[:size]
    statement, parameters = first.query.get_compiler(using).as_sql()
    with cursor(using) as cur:
        cur.execute(
            f"SELECT {column} FROM ({statement}) w ORDER BY {column}{'' if down else ' DESC'} LIMIT 1",
            parameters,
        )
        row = cur.fetchone()
    return None if row is None else dialect(using).decode(JOB[column], row[0])


def newest_before(job_id: UUID, size: int, *, using: str) -> UUID:
    """The id of the oldest of the ``size`` jobs made before one: a range of the primary key.

    The id itself when it is the first.
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


def ended_since(queue: str, since: datetime, *, cap: int = COUNT_CAP, using: str) -> list[Ended]:
    """The jobs of a queue among the newest ``cap`` that completed, and that were discarded, since
    a time: two ranges of one index, however long the history.
    """
    found: list[Ended] = []
    for state in (State.COMPLETED, State.DISCARDED):
        rows = (
            Job.objects.using(using)
            .filter(state=state, finished_at__gt=since)
            .order_by("-finished_at")
            .values_list(*Ended._fields, "queue")[:cap]
        )
        found += [Ended(*row[:-1]) for row in rows if row[-1] == queue]
    return found


def paused_queues(*, using: str) -> set[str]:
    """The names of all paused queues."""
    return set(Queue.objects.using(using).filter(paused=True).values_list("name", flat=True))
