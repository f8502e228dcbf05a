"""Writes by the holder of a lease that change no state: heartbeats, progress.

Each is a compare-and-set on the lease and returns the leases that still hold. Locked rows are passed
over, so that no heartbeat waits for them; theirs is written to a row of its own
(:class:`~django_ojs.models.LeaseBeat`), which the holder of a lease alone writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F

from django_ojs.domain.leases import Lease, RenewedLease
from django_ojs.domain.states import State
from django_ojs.models import Job, LeaseBeat
from django_ojs.store.batches import fits
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.dialect import cursor, dialect, in_list, repeated

_TABLE = Job._meta.db_table
_BEATS = LeaseBeat._meta.db_table


_COLUMNS = ("id", *RenewedLease._fields[1:-1])
_KEPT = ", ".join(f"j.{column}" for column in _COLUMNS)
_KINDS = [JOB[column] for column in _COLUMNS]


def write(
    leases: Sequence[Lease],
    shared: Mapping[str, Any],
    varying: Mapping[str, Sequence[Any]] = {},
    counted: Sequence[str] = (),
    *,
    using: str,
) -> list[RenewedLease]:
    """Write columns of active jobs under these leases; returns those that were written.

    ``shared`` columns get one value, ``varying`` ones a value per lease, ``counted`` ones grow by 1;
    ``heartbeat_at`` never moves backwards. Rows that others hold are left out. One statement with
    UPDATE ... RETURNING, otherwise two.
    """
    if not leases:
        return []
    kinds = [JOB[column] for column in varying]
    if len(leases) > 1 and not fits(kinds, list(varying.values()), using):
        half = len(leases) // 2
        return [
            kept
            for part in (slice(half), slice(half, None))
            for kept in write(
                leases[part],
                shared,
                {name: values[part] for name, values in varying.items()},
                counted,
                using=using,
            )
        ]
    free: list[RenewedLease] = []
    if not dialect(using).returning:
        free = find(leases, pass_over=True, using=using)
        found = {Lease(kept.job_id, kept.lease_id) for kept in free}
        chosen = [index for index, lease in enumerate(leases) if lease in found]
        leases = [leases[index] for index in chosen]
        varying = {name: [values[index] for index in chosen] for name, values in varying.items()}
        if not leases:
            return []
    if len(leases) == 1:
        shared = {**shared, **{column: values[0] for column, values in varying.items()}}
        varying = {}
    sql = dialect(using)
    source, bound, texts = sql.row_source(
        [ColumnType.UUID, ColumnType.UUID, *(JOB[column] for column in varying)],
        [(*lease, *values) for lease, *values in zip(leases, *varying.values(), strict=True)],
    )
    sets, parameters = [], []
    for column, value in shared.items():
        name, text = sql.quoted[column], sql.placeholder(JOB[column])
        if column == "heartbeat_at":
            text = f"{sql.greatest}(j.{name}, {text})"
        sets.append(f"{name} = {text}")
        parameters.append(sql.bind(JOB[column], value))
    for column, text in zip(varying, texts[2:], strict=True):
        sets.append(f"{sql.quoted[column]} = {text}")
    sets += [f"{sql.quoted[column]} = j.{sql.quoted[column]} + 1" for column in counted]
    guards = f"{sql.in_state(State.ACTIVE)} AND j.lease_id = {texts[1]}"
    on = f"j.id = {texts[0]}"
    with repeated(using) as cur:
        sql.fast_loaders(cur)
        if sql.returning:
            keys = [lease.job_id for lease in leases]
            statement, bound = sql.update_free(
                _TABLE, (sets, parameters), (source, bound), keys, on, guards, sql.returned(_KEPT)
            )
            cur.execute(statement, bound)
            return _kept(cur.fetchall(), using)
        statement, bound = sql.update(_TABLE, (sets, parameters), (source, bound), on, guards)
        cur.execute(statement, bound)
    return free


def find(leases: Sequence[Lease], *, pass_over: bool = False, using: str) -> list[RenewedLease]:
    """Those of the leases that hold, with their deadlines; one statement.

    With ``pass_over`` they are locked, and those that others hold are left out.
    """
    if not leases:
        return []
    sql = dialect(using)
    lock = sql.skip_locked if pass_over else ""
    those, bound = sql.one_of("j.id", [lease.job_id for lease in leases])
    with cursor(using) as cur:
        sql.fast_loaders(cur)
        cur.execute(
            f"SELECT {_KEPT} FROM {_TABLE} j WHERE j.state = '{State.ACTIVE}' AND {those}{lock}", bound
        )
        held = set(leases)
        return [kept for kept in _kept(cur.fetchall(), using) if Lease(*kept[:2]) in held]


def _kept(rows: Sequence[Sequence[Any]], using: str) -> list[RenewedLease]:
    return list(starmap(RenewedLease, dialect(using).decoded_rows(_KINDS, rows)))


class Beat(NamedTuple):
    """A beat that could not be written on its job's row."""

    lease_id: UUID
    job_id: UUID
    heartbeat_at: datetime
    visibility_ms: int | None


def put_aside(beats: Sequence[Beat], *, using: str) -> None:
    """Store heartbeats of leases whose row is locked; the latest of each lease stays. One statement."""
    if not beats:
        return
    sql = dialect(using)
    rows = [
        (
            sql.bind(ColumnType.UUID, beat.lease_id),
            sql.bind(ColumnType.UUID, beat.job_id),
            sql.bind(ColumnType.TIME, beat.heartbeat_at),
            beat.visibility_ms,
        )
        for beat in sorted(beats)
    ]
    values = ", ".join(in_list(row) for row in rows)
    head, tail = sql.upsert(
        _BEATS,
        "lease_id",
        {
            "heartbeat_at": "{greatest}({old}, {new})",
            "visibility_ms": "{new}",
        },
    )
    with cursor(using) as cur:
        cur.execute(
            f"{head} (lease_id, job_id, heartbeat_at, visibility_ms) VALUES {values}{tail}",
            [value for row in rows for value in row],
        )


def beats(leases: Sequence[UUID], *, using: str) -> dict[UUID, Beat]:
    """The beats that were put aside for these leases."""
    if not leases:
        return {}
    sql = dialect(using)
    those, bound = sql.one_of("lease_id", leases)
    with cursor(using) as cur:
        cur.execute(
            f"SELECT lease_id, job_id, heartbeat_at, visibility_ms FROM {_BEATS} WHERE {those}", bound
        )
        found = [
            Beat(
                sql.decode(ColumnType.UUID, lease_id),
                sql.decode(ColumnType.UUID, job_id),
                sql.decode(ColumnType.TIME, at),
                ms,
            )
            for lease_id, job_id, at, ms in cur.fetchall()
        ]
    return {beat.lease_id: beat for beat in found}


def move_beats(step: timedelta, *, using: str) -> None:
    """Move the stored heartbeats by a step of the server's clock."""
    LeaseBeat.objects.using(using).update(heartbeat_at=F("heartbeat_at") + step)


def forget_beats(*, using: str) -> int:
    """Delete what was put aside for leases that have ended; returns how many."""
    with cursor(using) as cur:
        cur.execute(
            f"DELETE FROM {_BEATS} WHERE NOT EXISTS (SELECT 1 FROM {_TABLE} j"
            f" WHERE j.id = {_BEATS}.job_id AND j.lease_id = {_BEATS}.lease_id)"
        )
        return int(cur.rowcount)
