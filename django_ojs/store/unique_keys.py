"""The rows of unique keys: locked in the order of the keys, before any job is."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.models import Job, UniqueKey
from django_ojs.store import locking
from django_ojs.store.columns import ColumnType, types
from django_ojs.store.dialect import cursor, dialect, in_list

_TABLE = UniqueKey._meta.db_table
_JOBS = Job._meta.db_table
_MOST = 500
"""The most keys of one statement."""
_COLUMNS = types(UniqueKey, ("key", "type", "holders", "used_at"))


def lock(keys: Mapping[str, str], now: datetime, *, using: str) -> dict[str, list[UUID]]:
    """Lock the rows of these keys, each with its job type, and make those that are missing; returns
    their holders.

    Whoever waits for a row sees what its holder committed, or fails: under REPEATABLE READ and
    SERIALIZABLE, PostgreSQL refuses to write a row that has changed since the transaction began.
    """
    holders: dict[str, list[UUID]] = {}
    ordered = sorted(keys)
    for start in range(0, len(ordered), _MOST):
        part = ordered[start : start + _MOST]
        _upsert([(key, keys[key], "[]", now) for key in part], {"used_at": "{new}"}, using)
        holders |= _held(part, using)
    return holders


def _held(keys: Sequence[str], using: str) -> dict[str, list[UUID]]:
    """The holders as they are now. The rows are locked: this read passes by the snapshot of MariaDB."""
    sql = dialect(using)
    name = sql.quote("key")
    with cursor(using) as cur:
        cur.execute(
            f"SELECT {name}, holders FROM {_TABLE}"
            f" WHERE {name} IN {in_list(keys)} ORDER BY {name}{sql.for_update}",
            keys,
        )
        return {key: [UUID(one) for one in json.loads(text)] for key, text in cur.fetchall()}


def write(rows: Iterable[tuple[str, str, Collection[UUID]]], now: datetime, *, using: str) -> None:
    """Store the holders of keys that this transaction has locked: (key, job type, ids)."""
    wanted = [
        (key, job_type, json.dumps([str(job_id) for job_id in ids]), now)
        for key, job_type, ids in sorted(rows)
    ]
    for start in range(0, len(wanted), _MOST):
        part = wanted[start : start + _MOST]
        _upsert(part, {"holders": "{new}", "used_at": "{new}"}, using)


def _upsert(rows: list[tuple[str, str, str, datetime]], sets: Mapping[str, str], using: str) -> None:
    sql = dialect(using)
    head, tail = sql.upsert(_TABLE, sql.quote("key"), sets)
    kinds = list(_COLUMNS.values())
    one = ", ".join(map(sql.placeholder, kinds))
    names = ", ".join(map(sql.quote, _COLUMNS))
    values = ", ".join([f"({one})"] * len(rows))
    bound = [sql.bind(kind, value) for row in rows for kind, value in zip(kinds, row, strict=True)]
    with cursor(using) as cur:
        cur.execute(f"{head} ({names}) VALUES {values}{tail}", bound)


def jobs(ids: Collection[UUID], *, to_change: bool, using: str) -> dict[UUID, JobRow]:
    """The holders of locked keys as they are now, without what may be large but ``meta`` and ``extra``.

    ``to_change``, their rows are locked too. Without, only MariaDB locks them, for reading: it would
    show them as they were when the transaction began. Elsewhere a job that became a holder since then
    has changed the row of its key, which cannot be locked any more.
    """
    if not ids:
        return {}
    if to_change:
        return locking.jobs(ids, using=using)
    sql = dialect(using)
    found: dict[UUID, JobRow] = {}
    ordered = sorted(ids)
    with cursor(using) as cur:
        sql.fast_loaders(cur)
        for start in range(0, len(ordered), _MOST):
            those, bound = sql.one_of("j.id", ordered[start : start + _MOST])
            cur.execute(
                f"SELECT {sql.job_columns} FROM {_JOBS} j"
                f" WHERE {those} ORDER BY j.id{sql.current_read}",
                bound,
            )
            found |= {job.id: job for job in sql.jobs(cur.fetchall())}
    return found


class Keyed(NamedTuple):
    """What makes a job unique: nothing of it ever changes."""

    key: str
    type: str
    policy: Mapping[str, Any] | None


def keys_of(ids: Collection[UUID], *, using: str) -> dict[UUID, Keyed]:
    """Those of the jobs that are unique; locks nothing."""
    rows = Job.objects.using(using).filter(pk__in=ids, unique_key__isnull=False)
    found = rows.values_list("pk", "unique_key", "type", "extra")
    return {pk: Keyed(str(key), job_type, extra.get("unique")) for pk, key, job_type, extra in found}


def holders(key: str, *, using: str) -> list[UUID]:
    """Who holds a key; locks nothing."""
    row = UniqueKey.objects.using(using).filter(pk=key).first()
    return [] if row is None else [UUID(one) for one in row.holders]


def unused_since(before: datetime, limit: int, *, using: str) -> list[str]:
    """Lock keys that were last used before a time, the longest unused first, passing over held ones."""
    sql = dialect(using)
    name = sql.quote("key")
    with cursor(using) as cur:
        cur.execute(
            f"SELECT {name} FROM {_TABLE} WHERE used_at < {sql.placeholder(ColumnType.TIME)}"
            f" ORDER BY used_at LIMIT %s{sql.skip_locked}",
            [sql.bind(ColumnType.TIME, before), limit],
        )
        return [key for (key,) in cur.fetchall()]


def forget(keys: Sequence[str], now: datetime, *, using: str) -> int:
    """Delete locked keys that no job holds any more; the others count as used. Returns how many."""
    held = _held(keys, using)
    everyone = {job_id for ids in held.values() for job_id in ids}
    there = locking.existing(everyone, using=using)
    rows = UniqueKey.objects.using(using)
    needed = [key for key, ids in held.items() if not there.isdisjoint(ids)]
    rows.filter(pk__in=needed).update(used_at=now)
    gone = [key for key in held if key not in set(needed)]
    rows.filter(pk__in=gone)._raw_delete(using)
    return len(gone)
