"""New rows: jobs, ended attempts, events. One statement for a thousand of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import Attempt, Event, Job, Queue
from django_ojs.signals import EventRecord
from django_ojs.store.batches import fits
from django_ojs.store.columns import ATTEMPT, EVENT, JOB, JOB_COLUMNS, ColumnType, types
from django_ojs.store.dialect import cursor, dialect
from django_ojs.store.dialects.base import Dialect

CHANNEL = "django_ojs"
"""The PostgreSQL channel on which commits wake workers."""

STRIDE = 1000
"""The most rows of one statement."""

_TERMS = tuple(
    JOB_COLUMNS.index(name)
    for name in (
        "max_attempts",
        "timeout_ms",
        "grace_period_ms",
        "heartbeat_timeout_ms",
        "total_timeout_ms",
        "enqueue_ttl_ms",
        "attempt_ttl_ms",
        "visibility_timeout_ms",
    )
)
"""Columns whose numbers come from settings and declarations, so that there are few of them."""
_COMMON = {text: f"'{text}'" for text in ("", "[]", "{}", *(state.value for state in State))}
_REMEMBERED = 500
_JOBS = Job._meta.db_table
_ATTEMPT_COLUMNS = tuple(ATTEMPT)
_EVENT_COLUMNS = tuple(EVENT)
_QUEUE = types(Queue, ("name", "reason", "paused"))


def jobs(
    records: Sequence[JobRow],
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
        insert(_JOBS, JOB_COLUMNS, JOB, part, using=using, may_exist=may_exist, wake=wake, few=_TERMS)
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
    table, rows = Queue._meta.db_table, [(name, "", False) for name in names]
    insert(table, tuple(_QUEUE), _QUEUE, rows, using=using, may_exist=True, key="name")


def insert(
    table: str,
    columns: Sequence[str],
    kinds: Mapping[str, ColumnType],
    rows: Sequence[Sequence[Any]],
    *,
    using: str,
    may_exist: bool = False,
    key: str = "id",
    wake: Sequence[str] = (),
    few: Sequence[int] = (),
) -> None:
    """Insert rows, all or none: what they share is written once, what differs as a record set.

    By one statement, or as many as their bytes need. ``few`` are the places of columns that hold few
    different numbers: they are written into the statement.

    The first column always counts as different. A column that is null in every row is left out, so
    none that may be null can have another default in the database.
    """
    if not rows:
        return
    sql, first, item = dialect(using), rows[0], ""
    last: list[Any] = []
    texts = list(map(_spelled, first))
    for index in few:
        if texts[index] is not None:
            texts[index] = str(first[index])
    if len(rows) > 1:
        cells = list(zip(*rows, strict=True))
        varying = [
            index
            for index, column in enumerate(cells)
            if not index or column.count(first[index]) != len(column)
        ]
        chosen = [kinds[columns[index]] for index in varying]
        if not fits(chosen, [cells[index] for index in varying], using):
            half = len(rows) // 2
            halves = ((rows[:half], wake), (rows[half:], ()))
            with transaction.atomic(using=using):
                for part, woken in halves:
                    insert(
                        table,
                        columns,
                        kinds,
                        part,
                        using=using,
                        may_exist=may_exist,
                        key=key,
                        wake=woken,
                        few=few,
                    )
            return
        differing = list(zip(*(cells[index] for index in varying), strict=True))
        item, last = sql.record_set(chosen, differing)
        for place, (index, kind) in enumerate(zip(varying, chosen, strict=True)):
            texts[index] = sql.value(place, kind)
    if wake and sql.notifies:
        last.append(wake[0])
    shape = (table, tuple(texts), item, may_exist, len(last))
    known = sql.statements.get(shape)
    if known is None:
        head, tail = sql.insert_ignoring if may_exist else ("INSERT INTO", "")
        tail = tail.format(table=table, key=key)
        statement = _statement(sql, f"{head} {table}", columns, texts, item, tail)
        if wake and sql.notifies:
            statement = _ringing(statement, once=bool(item))
        places = [index for index, text in enumerate(texts) if text == "%s"]
        known = statement, [(index, sql.writer(kinds[columns[index]])) for index in places]
        if len(sql.statements) >= _REMEMBERED:
            sql.statements.clear()
        sql.statements[shape] = known
    statement, asked = known
    parameters = [first[index] if write is None else write(first[index]) for index, write in asked]
    with sql.repeated(new_rows=True) as cur:
        cur.execute(statement, parameters + last)


def _spelled(value: Any) -> str | None:
    """A value in the text of a statement; null is left out, what is not common is a parameter.

    To a driver each parameter costs more than such a text, and a new job has twenty of them.
    """
    if value is None:
        return None
    kind = value.__class__
    if kind is str:
        return _COMMON.get(value, "%s")
    if kind is bool:
        return "true" if value else "false"
    return "0" if kind is int and not value else "%s"


def _statement(
    sql: Dialect,
    head: str,
    columns: Sequence[str],
    texts: Sequence[str | None],
    item: str,
    tail: str,
) -> str:
    given = [(sql.quote(name), text) for name, text in zip(columns, texts, strict=True) if text]
    names = ", ".join(name for name, _ in given)
    values = ", ".join(text for _, text in given)
    # WHERE true: without it SQLite reads ON CONFLICT as the start of a join condition.
    source = f"SELECT {values} FROM {item} WHERE true" if item else f"VALUES ({values})"
    return f"{head} ({names}) {source}{tail}"


def _ringing(statement: str, *, once: bool) -> str:
    """RETURNING is cheaper to plan, but rings for each row."""
    ring = f"pg_notify('{CHANNEL}', %s)"
    if once:
        return f"WITH added AS ({statement}) SELECT {ring}"
    return f"{statement} RETURNING {ring}"


def notify(payloads: Sequence[str], *, using: str) -> None:
    """Wake listening workers when the transaction commits, where the database can."""
    if not payloads or not dialect(using).notifies:
        return
    with cursor(using) as cur:
        for payload in payloads:
            cur.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])
