"""What falls due next, and when: the reads of the reaper and of the promotion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.models import Job, LeaseBeat
from django_ojs.store.columns import DUE, ColumnType, among
from django_ojs.store.dialect import cursor, dialect

_TABLE = Job._meta.db_table
_DEADLINE = (
    f"(SELECT deadline_at FROM {_TABLE} WHERE deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1)"
)
_SCHEDULED = ", ".join(
    f"(SELECT scheduled_at FROM {_TABLE} WHERE state = '{state}' AND {among(DUE)}"
    " AND scheduled_at IS NOT NULL ORDER BY scheduled_at LIMIT 1)"
    for state in DUE
)


def next_deadline(*, using: str) -> datetime | None:
    """The earliest ``deadline_at`` of all jobs: one probe of its index."""
    return _earliest(_DEADLINE, using)


def next_due(*, using: str) -> datetime | None:
    """When the next ``scheduled`` or ``retryable`` job is due: one probe per state, one statement."""
    return _earliest(_SCHEDULED, using)


def _earliest(firsts: str, using: str) -> datetime | None:
    with cursor(using) as cur:
        sent = clock.boottime()
        cur.execute(f"SELECT {firsts}, {_clock(using)}")
        *moments, time, steps = cur.fetchone()
        clock.carried(using, time, steps, sent)
        return _first(moments, using)


def _clock(using: str) -> str:
    """Expressions for the server's time, read with every probe so that a step is seen at once."""
    return f"{clock.server_time(using) or 'NULL'}, {clock.STEPS}"


def _first(moments: Sequence[Any], using: str) -> datetime | None:
    known = [moment for moment in moments if moment is not None]
    return min(dialect(using).decode(ColumnType.TIME, moment) for moment in known) if known else None


class NextDue(NamedTuple):
    """The earliest moments at which something falls due: a fixed deadline, a scheduled time."""

    deadline: datetime | None = None
    scheduled: datetime | None = None


class DueProbe:
    """Asks for the next_due many times a second: one statement, one probe per index and state.

    Keeps a cursor of the driver, since creating one costs more than the statement. For one thread.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._connection: Any = None
        self._cursor: Any = None

    def look(self, *, scheduled: bool = True) -> NextDue:
        """What is due first now; of what is ``scheduled`` only if that is asked for."""
        connection = connections[self._using]
        with connection.wrap_database_errors:
            connection.ensure_connection()
            if self._connection is not connection.connection:
                self._connection = connection.connection
                self._cursor = connection.create_cursor()
            sent = clock.boottime()
            asked = f"{_DEADLINE}, {_SCHEDULED}" if scheduled else _DEADLINE
            self._cursor.execute(f"SELECT {asked}, {_clock(self._using)}")
            deadline, *starts, time, steps = self._cursor.fetchone()
            clock.carried(self._using, time, steps, sent)
        return NextDue(_first([deadline], self._using), _first(starts, self._using))


class StallDeadline(NamedTuple):
    """A running job, when its heartbeat or visibility lease is overdue, and its last heartbeat."""

    id: UUID
    due: datetime
    heard_at: datetime


_AFTER = {
    "postgresql": "{at} + {ms} * interval '1 millisecond'",
    "mysql": "{at} + INTERVAL ({ms} * 1000) MICROSECOND",
    # In milliseconds, all that SQLite's functions know: up, never down, or a job would be looked at
    # a moment before it is overdue.
    "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', {at}, (({ms} + 1) / 1000.0) || ' seconds')",
}
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
    """The running jobs whose heartbeat timeout or visibility lease ends first: as ``domain.timeouts``
    says.

    One statement that reads the running jobs only, however large backlog and history are.
    """
    sql = dialect(using)
    form = _AFTER[sql.connection.vendor]
    # CASE and COALESCE: the smaller of two is NULL on some databases when one of them is.
    silent = (
        "CASE WHEN armed AND (heartbeat_explicit OR expires IS NULL)"
        f" THEN {form.format(at='heard', ms='heartbeat_timeout_ms')} END"
    )
    expires = (
        "CASE WHEN aside AND visibility_ms IS NOT NULL"
        f" THEN {form.format(at='heard', ms='visibility_ms')} ELSE lease_expires_at END"
    )
    with cursor(using) as cur:
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
    """The longest heartbeat timeout or visibility lease among running jobs; zero when nothing runs."""
    with cursor(using) as cur:
        cur.execute(
            "SELECT MAX(heartbeat_timeout_ms), MAX(lease_visibility_ms), MAX(visibility_timeout_ms)"
            f" FROM {_TABLE} WHERE state = '{State.ACTIVE}'"
        )
        return max(longest or 0 for longest in cur.fetchone())
