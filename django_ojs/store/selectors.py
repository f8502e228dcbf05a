"""Reads that lock nothing: for answers, for probes of what is due next, for screens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.job import JobRecord
from django_ojs.domain.states import State
from django_ojs.models import Job, Queue
from django_ojs.store.columns import DUE, JOB, Kind, among
from django_ojs.store.dialect import cursor, dialect, in_list

_TABLE = Job._meta.db_table
COUNT_CAP = 10_000


def jobs(ids: Iterable[UUID], *, using: str) -> dict[UUID, JobRecord]:
    """The jobs with these ids, by id; those that do not exist are missing."""
    wanted = list(set(ids))
    if not wanted:
        return {}
    sql = dialect(using)
    with cursor(using) as cur:
        sql.tune(cur)
        cur.execute(
            f"SELECT {sql.job_columns} FROM {_TABLE} j WHERE j.id IN {in_list(wanted)}",
            [sql.bind(Kind.UUID, job_id) for job_id in wanted],
        )
        return {job.id: job for job in map(sql.job, cur.fetchall())}


def next_deadline(*, using: str) -> datetime | None:
    """The earliest ``deadline_at`` of all jobs: one probe of its index."""
    return _earliest(["deadline_at IS NOT NULL"], "deadline_at", using)


def next_due(*, using: str) -> datetime | None:
    """When the next ``scheduled`` or ``retryable`` job is due: one probe per state, one statement."""
    where = [f"state = '{state}' AND {among(DUE)} AND scheduled_at IS NOT NULL" for state in DUE]
    return _earliest(where, "scheduled_at", using)


def _earliest(conditions: Sequence[str], column: str, using: str) -> datetime | None:
    sql = dialect(using)
    firsts = [
        f"(SELECT {column} FROM {_TABLE} WHERE {condition} ORDER BY {column} LIMIT 1)"
        for condition in conditions
    ]
    with cursor(using) as cur:
        cur.execute(f"SELECT {', '.join(firsts)}")
        row = cur.fetchone()
    return min((sql.decode(Kind.TIME, value) for value in row if value is not None), default=None)


class Watched(NamedTuple):
    """What the heartbeat scan needs to know of a running job."""

    id: UUID
    heartbeat_at: datetime
    heartbeat_timeout_ms: int
    heartbeat_armed: bool
    heartbeat_explicit: bool
    lease_expires_at: datetime | None


_WATCHED_KINDS = [JOB[column] for column in Watched._fields]


def running(*, using: str) -> list[Watched]:
    """Every active job: as many as the fleet has slots, whatever the backlog."""
    sql = dialect(using)
    with cursor(using) as cur:
        cur.execute(f"SELECT {', '.join(Watched._fields)} FROM {_TABLE} WHERE state = '{State.ACTIVE}'")
        return [Watched._make(map(sql.decode, _WATCHED_KINDS, row)) for row in cur.fetchall()]


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
    """Jobs per state, each counted up to ``cap`` and no further."""
    also = "" if queue is None else " AND queue = %s"
    statement = " UNION ALL ".join(
        f"SELECT '{state.value}', COUNT(*) FROM"
        f" (SELECT 1 FROM {_TABLE} WHERE state = '{state}'{also} LIMIT %s) c{index}"
        for index, state in enumerate(State)
    )
    parameters: list[Any] = []
    for _ in State:
        parameters += [*([] if queue is None else [queue]), cap]
    with cursor(using) as cur:
        cur.execute(statement, parameters)
        return {state: int(count) for state, count in cur.fetchall()}


def paused_queues(*, using: str) -> set[str]:
    """The names of all paused queues."""
    return set(Queue.objects.using(using).filter(paused=True).values_list("name", flat=True))
