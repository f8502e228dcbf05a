"""The one writer of ``Job.state``: decisions become guarded UPDATEs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.job import Transition
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store.columns import JOB, Kind
from django_ojs.store.dialect import Dialect, cursor, dialect

_TABLE = Job._meta.db_table
_Shape = tuple[State, State, bool, tuple[str, ...]]


def apply(transitions: Sequence[Transition], *, using: str) -> None:
    """Write the decisions: one statement per shape of change, a handful per batch.

    Each write holds only while its job is in the state, and under the lease, that the decision was
    made on. Raises :class:`LeaseLost` if one is not, so that the transaction is rolled back: the
    callers have locked the rows, so this means that a lock was not held.
    """
    shapes: dict[_Shape, list[Transition]] = defaultdict(list)
    for move in transitions:
        fenced = move.job.lease_id is not None
        shapes[move.source, move.target, fenced, tuple(move.changes)].append(move)
    for (source, target, fenced, columns), group in shapes.items():
        _write(group, source, target, fenced, columns, using)


def _write(
    group: Sequence[Transition],
    source: State,
    target: State,
    fenced: bool,
    columns: tuple[str, ...],
    using: str,
) -> None:
    sql = dialect(using)
    shared = _shared(group, columns)
    varying = [column for column in columns if column not in shared]
    sets, parameters = _constants(sql, {"state": target.value, **shared})
    kinds = [Kind.UUID, Kind.UUID, *(JOB[column] for column in varying)]
    rows = [
        (move.job.id, move.job.lease_id, *(move.changes[column] for column in varying))
        for move in group
    ]
    item, parameter = sql.record_set(kinds, rows)
    for index, column in enumerate(varying, start=2):
        sets.append(f"{sql.quoted[column]} = {sql.value(index, JOB[column])}")
    where = f"j.state = '{source}'" + (
        " AND j.lease_id = v.c1" if fenced else " AND j.lease_id IS NULL"
    )
    statement = sql.update(_TABLE, sets, item, "j.id = v.c0", where)
    bound = [*parameters, parameter] if sql.returning else [parameter, *parameters]
    with cursor(using) as cur:
        cur.execute(statement, bound)
        written = cur.rowcount
    if written != len(group):
        raise LeaseLost(
            f"{len(group) - written} of {len(group)} jobs were no longer {source} as decided"
        )


def _shared(group: Sequence[Transition], columns: Sequence[str]) -> Mapping[str, Any]:
    """The columns that get the same value in every row: they need no place in the record set."""
    first = group[0].changes
    if len(group) == 1:
        return first
    return {
        column: first[column]
        for column in columns
        if all(move.changes[column] == first[column] for move in group)
    }


def _constants(sql: Dialect, values: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    sets, parameters = [], []
    for column, value in values.items():
        kind = JOB[column]
        if value is None:
            sets.append(f"{sql.quoted[column]} = NULL")
        else:
            sets.append(f"{sql.quoted[column]} = {sql.placeholder(kind)}")
            parameters.append(sql.bind(kind, value))
    return sets, parameters
