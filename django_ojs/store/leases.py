"""Writes that only the holder of a lease may make and that move no state: beats, progress.

Each is a compare-and-set on the lease and says which leases it still found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store.columns import JOB, Kind
from django_ojs.store.dialect import cursor, dialect, in_list

_TABLE = Job._meta.db_table


class Held(NamedTuple):
    """A lease as its holder names it."""

    job_id: UUID
    lease_id: UUID


class Kept(NamedTuple):
    """A lease that was found: until when the server waits for the attempt, by how much that was
    extended, and its visibility, if any: the one in force, and the one that the job itself asks for.
    """

    job_id: UUID
    lease_id: UUID
    deadline_at: datetime
    extended_ms: int
    lease_visibility_ms: int | None
    visibility_timeout_ms: int | None


# Unqualified: in RETURNING, SQLite knows neither the alias nor a qualified name.
_KEPT = ", ".join(("id", *Kept._fields[1:]))


def write(
    leases: Sequence[Held],
    shared: Mapping[str, Any],
    varying: Mapping[str, Sequence[Any]] = {},
    counted: Sequence[str] = (),
    *,
    using: str,
) -> list[Kept]:
    """Write columns of active jobs under these leases; returns the leases that still hold.

    ``shared`` columns get one value, ``varying`` ones a value per lease, ``counted`` ones grow by 1.
    One statement where the database can say what it wrote, otherwise two.
    """
    if not leases:
        return []
    if len(leases) == 1:
        shared = {**shared, **{column: values[0] for column, values in varying.items()}}
        varying = {}
    sql = dialect(using)
    source, bound, texts = sql.given(
        [Kind.UUID, Kind.UUID, *(JOB[column] for column in varying)],
        [(*lease, *values) for lease, *values in zip(leases, *varying.values(), strict=True)],
    )
    sets, parameters = [], []
    for column, value in shared.items():
        sets.append(f"{sql.quoted[column]} = {sql.placeholder(JOB[column])}")
        parameters.append(sql.bind(JOB[column], value))
    for column, text in zip(varying, texts[2:], strict=True):
        sets.append(f"{sql.quoted[column]} = {text}")
    sets += [f"{sql.quoted[column]} = j.{sql.quoted[column]} + 1" for column in counted]
    guards = f"{sql.in_state(State.ACTIVE)} AND j.lease_id = {texts[1]}"
    statement, bound = sql.update(
        _TABLE, (sets, parameters), (source, bound), f"j.id = {texts[0]}", guards, _KEPT
    )
    with cursor(using) as cur:
        sql.tune(cur)
        cur.execute(statement, bound)
        if sql.returning:
            return _kept(cur.fetchall(), using)
    return find(leases, using=using)


def find(leases: Sequence[Held], *, using: str) -> list[Kept]:
    """Those of the leases that hold, with their deadlines; one statement."""
    if not leases:
        return []
    sql = dialect(using)
    with cursor(using) as cur:
        sql.tune(cur)
        cur.execute(
            f"SELECT {_KEPT} FROM {_TABLE} j WHERE j.state = '{State.ACTIVE}'"
            f" AND j.id IN {in_list(leases)}",
            [sql.bind(Kind.UUID, lease.job_id) for lease in leases],
        )
        held = set(leases)
        return [kept for kept in _kept(cur.fetchall(), using) if Held(*kept[:2]) in held]


def _kept(rows: Sequence[Sequence[Any]], using: str) -> list[Kept]:
    decode = dialect(using).decode
    return [
        Kept(
            decode(Kind.UUID, job_id),
            decode(Kind.UUID, lease_id),
            decode(Kind.TIME, deadline_at),
            *limits,
        )
        for job_id, lease_id, deadline_at, *limits in rows
    ]
