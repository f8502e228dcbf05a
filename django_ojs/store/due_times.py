"""What falls due next, and when: read by the reaper and by promotion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.models import (
    Job,
    LeaseBeat,
    MaintenanceRun,
    RateLimit,
    RateLimitDue,
    Schedule,
    Workflow,
)
from django_ojs.store import sources
from django_ojs.store.columns import DUE, ColumnType, among
from django_ojs.store.contention import alone
from django_ojs.store.dialect import cursor, dialect, repeated

_HORIZON = timedelta(seconds=60)
_TABLE = Job._meta.db_table
_DEADLINE = (
    f"(SELECT deadline_at FROM {_TABLE} WHERE deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1)"
)
_WORKFLOW = (
    f"(SELECT deadline_at FROM {Workflow._meta.db_table} WHERE deadline_at IS NOT NULL"
    " ORDER BY deadline_at LIMIT 1)"
)
_SCHEDULED = ", ".join(
    f"(SELECT scheduled_at FROM {_TABLE} WHERE state = '{state}' AND {among(DUE)}"
    " AND scheduled_at IS NOT NULL ORDER BY scheduled_at LIMIT 1)"
    for state in DUE
)
_SCANNED = f"(SELECT last_run_at FROM {MaintenanceRun._meta.db_table} WHERE name = 'reap')"
_ADMISSION = (
    f"(SELECT due_at FROM {RateLimit._meta.db_table} WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1),"
    f" (SELECT due_at FROM {RateLimitDue._meta.db_table} ORDER BY id LIMIT 1)"
)
_SCHEDULE = (
    f"(SELECT due_at FROM {Schedule._meta.db_table} WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1)"
)


def next_deadline(*, using: str) -> datetime | None:
    """Return the earliest ``deadline_at`` of all jobs and workflows: one probe per index."""
    return _earliest(f"{_DEADLINE}, {_WORKFLOW}", using)


def next_due(*, using: str) -> datetime | None:
    """Return when the next ``scheduled`` or ``retryable`` job is due, by one statement."""
    return _earliest(_SCHEDULED, using)


def _earliest(firsts: str, using: str) -> datetime | None:
    # With the time, so that every probe detects a step of the clock at once.
    with repeated(using, anywhere=True) as cur:
        sent = clock.boottime()
        cur.execute(f"SELECT {firsts}, {clock.columns(using)}")
        *moments, time, steps = cur.fetchone()
        clock.carried(using, time, steps, sent)
        return _first(moments, using)


def _first(moments: Sequence[Any], using: str) -> datetime | None:
    known = [moment for moment in moments if moment is not None]
    return min(dialect(using).decode(ColumnType.TIME, moment) for moment in known) if known else None


def next_start(*, using: str) -> datetime | None:
    """Return when a job may become available, be admitted or be enqueued by a schedule: one
    statement.
    """
    return _earliest(f"{_SCHEDULED}, {_ADMISSION}, {_SCHEDULE}", using)


def next_tick(*, using: str) -> datetime | None:
    """Return when a schedule is due next, by one statement."""
    return _earliest(_SCHEDULE, using)


def next_admission(*, using: str) -> datetime | None:
    """Return when jobs may be admitted next under a rate limit, by one statement."""
    return _earliest(_ADMISSION, using)


class NextDue(NamedTuple):
    """When something falls due next: a deadline, or a moment before which there is none; a scheduled
    time, an opening of a rate limit, or the tick of a schedule.
    """

    deadline: datetime | None = None
    scheduled: datetime | None = None


class DueProbe:
    """Reads many times a second what falls due next, by one statement with a probe for each state.

    Keeps a cursor of the driver, since creating one costs more than the statement. Not thread-safe.
    For a while after two slow looks in turn it reads no deadlines that are over a minute ahead: if
    there are no others, it says that there is none within the minute (ADR 46).
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._slow = 0
        self._near_until = 0.0
        self._connection: Any = None
        self._cursor: Any = None
        self.scanned_at: datetime | None = None
        """When, at the last look, the last scan of any process was recorded."""

    def look(self, *, scheduled: bool = True) -> NextDue:
        """Read the next deadline and, if ``scheduled``, what else falls due."""
        return alone(self._using, partial(self._look, scheduled))

    def _look(self, scheduled: bool) -> NextDue:
        connection = connections[self._using]
        with connection.wrap_database_errors:
            connection.ensure_connection()
            if self._connection is not connection.connection:
                self._connection = connection.connection
                self._cursor = connection.create_cursor()
            sent = clock.boottime()
            near = clock.now(self._using) + _HORIZON if sent < self._near_until else None
            asked = f"{_DEADLINE if near is None else self._until(near)}, {_WORKFLOW}"
            if scheduled:
                asked += f", {_SCHEDULED}, {_ADMISSION}, {_SCHEDULE}"
            statement = f"SELECT {asked}, {_SCANNED}, {clock.columns(self._using)}"
            row = dialect(self._using).quick_row(self._connection, statement, again=near is None)
            if row is None:
                self._cursor.execute(statement)
                row = self._cursor.fetchone()
            job, workflow, *starts, scanned, time, steps = row
            clock.carried(self._using, time, steps, sent)
            if near is None:
                now = clock.boottime()
                self._slow = self._slow + 1 if now - sent > sources.SLOW else 0
                if self._slow > 1:
                    self._near_until = sources.rests_until(now, now - sent)
        self.scanned_at = _first([scanned], self._using)
        deadline = _first([job, workflow], self._using)
        if near is not None:
            # That there is none at all would say that nothing runs which could be silent.
            deadline = near if deadline is None else min(deadline, near)
        return NextDue(deadline, _first(starts, self._using))

    def _until(self, moment: datetime) -> str:
        """As ``_DEADLINE``, of those that are not later."""
        until = dialect(self._using).bind(ColumnType.TIME, moment)
        return _DEADLINE.replace(" IS NOT NULL", f" <= '{until}'")


class StallDeadline(NamedTuple):
    """A running job, when its heartbeat or visibility lease is overdue, and its last heartbeat."""

    id: UUID
    due: datetime
    heard_at: datetime


_ACTIVE = (
    "SELECT j.id, j.deadline_at, j.lease_expires_at, j.heartbeat_timeout_ms, j.heartbeat_explicit,"
    " (j.heartbeat_armed OR b.lease_id IS NOT NULL) AS armed,"
    " b.heartbeat_at > j.heartbeat_at AS aside,"
    " COALESCE(j.visibility_timeout_ms, b.visibility_ms, j.lease_visibility_ms) AS visibility_ms,"
    " CASE WHEN b.heartbeat_at > j.heartbeat_at THEN b.heartbeat_at ELSE j.heartbeat_at END AS heard"
    f" FROM {_TABLE} j LEFT JOIN {LeaseBeat._meta.db_table} b ON b.lease_id = j.lease_id"
    f" WHERE j.state = '{State.ACTIVE}'"
)


def next_stall_deadlines(limit: int, *, using: str) -> list[StallDeadline]:
    """Return the running jobs whose heartbeat timeout or visibility lease ends first.

    By the rules of ``domain.timeouts``. One statement, which reads running jobs only.
    """
    sql = dialect(using)
    # CASE and COALESCE, since LEAST of a value and NULL is NULL on some databases.
    silent = (
        "CASE WHEN armed AND (heartbeat_explicit OR expires IS NULL)"
        f" THEN {sql.later.format(at='heard', ms='heartbeat_timeout_ms')} END"
    )
    expires = (
        "CASE WHEN aside AND visibility_ms IS NOT NULL"
        f" THEN {sql.later.format(at='heard', ms='visibility_ms')} ELSE lease_expires_at END"
    )
    with repeated(using) as cur:
        cur.execute(
            "SELECT id, heard, CASE WHEN expires <= silent THEN expires"
            " ELSE COALESCE(silent, expires) END AS due"
            f" FROM (SELECT id, heard, expires, {silent} AS silent"
            f" FROM (SELECT a.*, {expires} AS expires FROM ({_ACTIVE}) a) x) w"
            " WHERE silent IS NOT NULL OR expires IS NOT NULL ORDER BY due LIMIT %s",
            [limit],
        )
        return [
            StallDeadline(
                sql.decode(ColumnType.UUID, job_id),
                sql.decode(ColumnType.TIME, due),
                sql.decode(ColumnType.TIME, heard),
            )
            for job_id, heard, due in cur.fetchall()
        ]


def longest_lease_ms(*, using: str) -> int:
    """Return the longest heartbeat timeout or visibility lease of running jobs; 0 if none runs."""
    with cursor(using) as cur:
        cur.execute(
            "SELECT MAX(heartbeat_timeout_ms), MAX(lease_visibility_ms), MAX(visibility_timeout_ms)"
            f" FROM {_TABLE} WHERE state = '{State.ACTIVE}'"
        )
        return max(longest or 0 for longest in cur.fetchone())
