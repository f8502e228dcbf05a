"""New rows: jobs, ended attempts, events. One statement for a thousand of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django_ojs.domain.job import JobRecord
from django_ojs.models import Attempt, Event, Job, Queue
from django_ojs.signals import Event as EventRecord
from django_ojs.store.columns import ATTEMPT, EVENT, JOB, JOB_COLUMNS, Kind
from django_ojs.store.dialect import cursor, dialect

CHANNEL = "django_ojs"
"""The PostgreSQL channel on which commits wake workers."""

STRIDE = 1000
"""Rows per statement."""

_JOBS = Job._meta.db_table
_ATTEMPT_COLUMNS = tuple(ATTEMPT)
_EVENT_COLUMNS = tuple(EVENT)


def jobs(
    records: Sequence[JobRecord],
    *,
    may_exist: bool = False,
    wake: Sequence[str] = (),
    using: str,
) -> None:
    """Insert jobs; with ``may_exist``, ids that are taken are left as they are.

    ``wake``, at most one payload, reaches listening workers with the commit, by the same statement.
    """
    for start in range(0, len(records), STRIDE):
        part = records[start : start + STRIDE]
        insert(_JOBS, JOB_COLUMNS, JOB, part, using=using, may_exist=may_exist, wake=wake)
        wake = ()


def attempts(rows: Sequence[Sequence[Any]], *, using: str) -> None:
    """Insert ended attempts, in the order of the columns of ``columns.ATTEMPT``."""
    insert(Attempt._meta.db_table, _ATTEMPT_COLUMNS, ATTEMPT, rows, using=using)


def events(records: Sequence[EventRecord], *, using: str) -> None:
    """Append events to the outbox."""
    rows = [
        (
            event.id,
            (None if (job_id := event.data.get("job_id")) is None else UUID(job_id)),
            event.kind,
            event.data.get("job_type"),
            event.data.get("queue"),
            event.time,
            json.dumps(event.data),
        )
        for event in records
    ]
    for start in range(0, len(rows), STRIDE):
        part = rows[start : start + STRIDE]
        insert(Event._meta.db_table, _EVENT_COLUMNS, EVENT, part, using=using)


def queues(names: Sequence[str], *, using: str) -> None:
    """Make sure that these queues have a row."""
    rows = [(name, "", False) for name in names]
    insert(
        Queue._meta.db_table,
        ("name", "reason", "paused"),
        {"name": Kind.TEXT, "reason": Kind.TEXT, "paused": Kind.BOOL},
        rows,
        using=using,
        may_exist=True,
        key="name",
    )


def insert(
    table: str,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    rows: Sequence[Sequence[Any]],
    *,
    using: str,
    may_exist: bool = False,
    key: str = "id",
    wake: Sequence[str] = (),
) -> None:
    """Insert rows by one statement; one row as plain parameters, more as a record set."""
    if not rows:
        return
    sql = dialect(using)
    quote = sql.connection.ops.quote_name
    kind_list = [kinds[column] for column in columns]
    parameters: list[Any]
    if len(rows) == 1:
        places = ", ".join(sql.placeholder(kind) for kind in kind_list)
        source = f"VALUES ({places})"
        parameters = [sql.bind(kind, value) for kind, value in zip(kind_list, rows[0], strict=True)]
    else:
        item, parameters = sql.record_set(kind_list, rows)
        values = ", ".join(sql.value(index, kind) for index, kind in enumerate(kind_list))
        # WHERE true: without it SQLite reads ON CONFLICT as the start of a join condition.
        source = f"SELECT {values} FROM {item} WHERE true"
    head, tail = sql.insert_ignoring if may_exist else ("INSERT INTO", "")
    tail = tail.format(table=table, key=key)
    names = ", ".join(map(quote, columns))
    statement = f"{head} {table} ({names}) {source}{tail}"
    if wake and sql.notifies:
        statement = f"WITH added AS ({statement}) SELECT pg_notify(%s, %s)"
        parameters += [CHANNEL, wake[0]]
    with cursor(using) as cur:
        cur.execute(statement, parameters)


def notify(payloads: Sequence[str], *, using: str) -> None:
    """Wake listening workers when the transaction commits, where the database can."""
    if not dialect(using).notifies:
        return
    with cursor(using) as cur:
        for payload in payloads:
            cur.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])
