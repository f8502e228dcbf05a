"""Reads that lock the rows that they return, and those that find what to lock.

The order in which a transaction locks rows, so that no two wait for each other: the row of one
schedule, unique keys (``store/unique_keys.py``) in their order, then jobs by id, then outermost
workflows by id (nothing inside them is changed without them), then new rows. Queue rows are shared
before the jobs that a claim takes. An admission locks the row of one rate limit, then jobs that
nobody holds; one within a transaction that has locked jobs waits for neither. A report that blocks a
key waits for the key after the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from django_ojs.domain.errors import no_job
from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.states import State
from django_ojs.models import Job, Workflow
from django_ojs.store import selectors
from django_ojs.store.columns import DUE, ENDED, ColumnType, among
from django_ojs.store.dialect import cursor, dialect

_TABLE = Job._meta.db_table
_MOST = 1000
"""The most ids of one statement."""

_UNREAD = LARGE.keys() - {"errors"}
"""Columns that no timeout, promotion or recovery depends on."""


def jobs(
    ids: Iterable[UUID], *, using: str, skip_locked: bool = False, brief: bool = False
) -> dict[UUID, JobRow]:
    """Lock the jobs with these ids, in the order of their ids so that two batches cannot deadlock.

    With ``skip_locked``, rows that another transaction holds are left out. With ``brief``, large
    columns that no timeout depends on are not read: arguments, results and the like are empty.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    sql = dialect(using)
    columns = sql.columns_without(_UNREAD if brief else ())
    lock = sql.skip_locked if skip_locked and sql.skip_locked else sql.for_update
    those, bound = sql.one_of("j.id", wanted)
    with cursor(using) as cur:
        sql.fast_loaders(cur)
        cur.execute(f"SELECT {columns} FROM {_TABLE} j WHERE {those} ORDER BY j.id{lock}", bound)
        return {job.id: job for job in sql.jobs(cur.fetchall())}


def job(job_id: UUID, *, using: str) -> JobRow:
    """Lock one job. Raises :class:`NotFound`."""
    found = jobs([job_id], using=using).get(job_id)
    if found is None:
        raise no_job(job_id)
    return found


def existing(ids: Iterable[UUID], *, using: str) -> set[UUID]:
    """The ids that have a job; locks nothing."""
    wanted = list(ids)
    if not wanted:
        return set()
    return set(Job.objects.using(using).filter(pk__in=wanted).values_list("pk", flat=True))


def promotable(now: datetime, limit: int, *, using: str) -> list[UUID]:
    """``scheduled`` and ``retryable`` jobs that are due, the longest due first; not locked.

    Of each state by itself, in the order of its index: of both together all that is due would be read
    and sorted, for every batch of a backlog.
    """
    sql = dialect(using)
    each = " UNION ALL ".join(
        f"SELECT * FROM (SELECT j.id, j.scheduled_at FROM {_TABLE} j WHERE j.state = '{state}'"
        f" AND {among(DUE, 'j.')} AND j.scheduled_at <= %s ORDER BY j.scheduled_at LIMIT %s) AS {state}"
        for state in DUE
    )
    with cursor(using) as cur:
        cur.execute(
            f"SELECT id FROM ({each}) AS due ORDER BY scheduled_at LIMIT %s",
            [*([sql.bind(ColumnType.TIME, now), limit] * len(DUE)), limit],
        )
        return [sql.decode(ColumnType.UUID, job_id) for (job_id,) in cur.fetchall()]


def past_deadline(now: datetime, limit: int, *, using: str) -> list[UUID]:
    """Jobs whose ``deadline_at`` has passed, the longest due first; not locked."""
    sql = dialect(using)
    with cursor(using) as cur:
        cur.execute(
            f"SELECT j.id FROM {_TABLE} j WHERE j.deadline_at <= %s ORDER BY j.deadline_at LIMIT %s",
            [sql.bind(ColumnType.TIME, now), limit],
        )
        return [sql.decode(ColumnType.UUID, job_id) for (job_id,) in cur.fetchall()]


def running_past_deadline(now: datetime, *, using: str) -> list[UUID]:
    """Running jobs whose ``deadline_at`` has passed, the longest due first; not locked."""
    due = [
        (deadline_at, job_id)
        for deadline_at, job_id in _running(using)
        if deadline_at is not None and deadline_at <= now
    ]
    return [job_id for _, job_id in sorted(due)]


def _running(using: str) -> list[tuple[datetime | None, UUID]]:
    """``deadline_at`` and id of the running jobs.

    Without a deadline or an order in the statement, which lead planners to an index that has all jobs,
    or all that are overdue.
    """
    sql = dialect(using)
    with cursor(using) as cur:
        cur.execute(f"SELECT j.deadline_at, j.id FROM {_TABLE} j WHERE j.state = '{State.ACTIVE}'")
        return [
            (sql.decode(ColumnType.TIME, deadline_at), sql.decode(ColumnType.UUID, job_id))
            for deadline_at, job_id in cur.fetchall()
        ]


def finished_before(
    state: State,
    before: datetime,
    limit: int,
    *,
    since: datetime | None = None,
    dead_letter: bool | None = None,
    using: str,
) -> list[tuple[UUID, datetime]]:
    """Lock jobs that ended in ``state`` before a time, not earlier than ``since``, the oldest first;
    returns their ids and when they ended.

    Jobs of a workflow are kept as long as the workflow is.
    """
    sql = dialect(using)
    more, parameters = "", [sql.bind(ColumnType.TIME, before)]
    if since is not None:
        more += " AND j.finished_at >= %s"
        parameters.append(sql.bind(ColumnType.TIME, since))
    if dead_letter is not None:
        more += " AND j.dead_letter = %s"
        parameters.append(dead_letter)
    with cursor(using) as cur:
        cur.execute(
            f"SELECT j.id, j.finished_at FROM {_TABLE} j WHERE j.state = '{state}'"
            f" AND {among(ENDED, 'j.')} AND j.finished_at < %s{more} AND {_in_no_workflow('j')}"
            f" ORDER BY j.finished_at LIMIT %s{sql.skip_locked}",
            [*parameters, limit],
        )
        return [
            (sql.decode(ColumnType.UUID, job_id), sql.decode(ColumnType.TIME, finished_at))
            for job_id, finished_at in cur.fetchall()
        ]


def end_of_window(
    state: State, before: datetime, size: int, *, since: datetime | None = None, using: str
) -> datetime | None:
    """When a window of the jobs that ended in ``state``, ``since`` a time and ``before`` another, ends
    if it has ``size`` jobs; ``None`` if they are not more than that.

    Reads so many entries of one index, and no rows. A window has all that ended at its first moment,
    and none that ended at its last.
    """
    times = (
        _finished(state, before, using).order_by("finished_at").values_list("finished_at", flat=True)
    )
    there = times if since is None else times.filter(finished_at__gte=since)
    end = next(iter(there[size : size + 1]), None)
    if end is not None and end == since:
        return times.filter(finished_at__gt=since).first()
    return end


def count_finished_before(
    state: State, before: datetime, most: int, *, dead_letter: bool | None = None, using: str
) -> tuple[int, datetime | None]:
    """How many jobs :func:`finished_before` would find, and when the first of them ended.

    Only among the ``most`` that ended first or last: of the others, any number may be kept.
    """
    rows = _finished(state, before, using).values("id", "finished_at", "dead_letter", "workflow_id")
    windows = [
        rows.order_by(way)[: most // 2].query.get_compiler(using).as_sql()
        for way in ("finished_at", "-finished_at")
    ]
    both = " UNION ".join(f"SELECT * FROM ({text}) w{n}" for n, (text, _) in enumerate(windows))
    parameters = [value for _, bound in windows for value in bound]
    more = ""
    if dead_letter is not None:
        more = " AND dead_letter = %s"
        parameters.append(dead_letter)
    with cursor(using) as cur:
        cur.execute(
            f"SELECT COUNT(*), MIN(finished_at) FROM ({both}) old WHERE {_in_no_workflow('old')}{more}",
            parameters,
        )
        count, first = cur.fetchone()
        return count, dialect(using).decode(ColumnType.TIME, first)


def _in_no_workflow(row: str) -> str:
    workflows = Workflow._meta.db_table
    return (
        f"({row}.workflow_id IS NULL"
        f" OR NOT EXISTS (SELECT 1 FROM {workflows} w WHERE w.id = {row}.workflow_id))"
    )


def _finished(state: State, before: datetime, using: str) -> QuerySet[Job]:
    return selectors.in_state(Job.objects.using(using), state).filter(finished_at__lt=before)


def active(before: datetime | None, *, using: str) -> list[JobRow]:
    """Lock the running jobs, or those with a ``deadline_at`` before a time, skipping locked ones.

    They are looked for without locks: MariaDB locks every index entry that it reads on the way, which
    would block waiting jobs too.
    """
    ids = sorted(
        job_id
        for deadline_at, job_id in _running(using)
        if before is None or (deadline_at is not None and deadline_at < before)
    )
    found: list[JobRow] = []
    for start in range(0, len(ids), _MOST):
        part = ids[start : start + _MOST]
        found += jobs(part, skip_locked=True, brief=True, using=using).values()
    return [job for job in found if job.state == State.ACTIVE]
