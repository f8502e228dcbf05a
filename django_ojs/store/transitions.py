"""The one writer of ``Job.state``: decisions become guarded UPDATEs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.job import JobRow, Transition
from django_ojs.models import Attempt, Job
from django_ojs.store.batches import fits
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.contention import LockLost
from django_ojs.store.dialect import cursor, dialect
from django_ojs.store.dialects.base import Dialect

_TABLE = Job._meta.db_table
_ATTEMPTS = Attempt._meta.db_table
_ENDED = "job_id, lease_id, lease_seq, attempt, started_at, deadline_at"
_ENDED_ALIKE = "worker_id, principal, outcome, ended_at"
_Shape = tuple[str, str, tuple[str, ...]]


def apply(transitions: Sequence[Transition], *, seen: Sequence[str] = (), using: str) -> None:
    """Write the decisions: one statement per shape of change, a handful per batch.

    Each write holds only while its job is in the state, and under the lease, that the decision was
    made on, and the columns ``seen`` are as they were. Raises :class:`LockLost` if one is not, so that
    the transaction is rolled back and run again; for callers without locks, who say what they have
    ``seen``, :class:`LeaseLost`: they are to lock the rows and decide again.
    """
    shapes: dict[_Shape, list[Transition]] = defaultdict(list)
    for transition in transitions:
        shapes[transition.job.state, str(transition.target), tuple(transition.changes)].append(
            transition
        )
    for shape, group in shapes.items():
        _write(group, shape, ("id", "lease_id", *seen), using)


def _write(group: Sequence[Transition], shape: _Shape, known: Sequence[str], using: str) -> None:
    state, target, columns = shape
    sql = dialect(using)
    fields = [[getattr(transition.job, column) for transition in group] for column in known]
    shared: dict[str, Any] = {"state": target}
    varying: list[str] = []
    for column in columns:
        values = [transition.changes[column] for transition in group]
        # One value for every row needs no place in the record set.
        if values.count(values[0]) == len(values):
            shared[column] = values[0]
        else:
            varying.append(column)
            fields.append(values)
    kinds = [JOB[column] for column in (*known, *varying)]
    if len(group) > 1 and not fits(kinds, fields, using):
        half = len(group) // 2
        _write(group[:half], shape, known, using)
        _write(group[half:], shape, known, using)
        return
    source, bound, texts = sql.row_source(kinds, list(zip(*fields, strict=True)))
    sets, parameters = _constants(sql, shared)
    for column, text in zip(varying, texts[len(known) :], strict=True):
        sets.append(f"{sql.quoted[column]} = {text}")
    guards = [sql.in_state(state)]
    for column, text in zip(known[1:], texts[1:], strict=False):
        guards.append(f"j.{sql.quoted[column]} {sql.null_safe_equals} {text}")
    statement, bound = sql.update(
        _TABLE, (sets, parameters), (source, bound), f"j.id = {texts[0]}", " AND ".join(guards)
    )
    with cursor(using) as cur:
        cur.execute(statement, bound)
        written = cur.rowcount
    if written != len(group):
        text = f"{len(group) - written} of {len(group)} jobs were no longer {state} as decided"
        raise LeaseLost(text) if known[2:] else LockLost(text)


def end_alike(
    decision: Transition,
    jobs: Sequence[JobRow],
    results: Sequence[str | None],
    *,
    now: datetime,
    using: str,
) -> set[UUID]:
    """Write the decision that an attempt has succeeded for all of these jobs, with their attempt rows.

    It was made on one of them, and would be the same for the others but for ``results``, JSON text.
    Returns the ids of those that were as their records say: in that state, under that lease, by that
    deadline and without progress; the others are left as they are. One statement, and no transaction
    around it: only for a dialect that ``inserts_what_it_updates``.
    """
    sql, job = dialect(using), decision.job
    assert decision.attempt is not None
    kinds = [ColumnType.UUID, ColumnType.UUID, ColumnType.TIME]
    rows: list[tuple[Any, ...]]
    changes = dict(decision.changes)
    if any(results):
        kinds.append(ColumnType.JSON)
        rows = [
            (job.id, job.lease_id, job.deadline_at, result)
            for job, result in zip(jobs, results, strict=True)
        ]
        del changes["result"]
    else:
        rows = [(job.id, job.lease_id, job.deadline_at) for job in jobs]
    source, bound = sql.record_set(kinds, rows)
    sets, parameters = _constants(sql, {"state": str(decision.target), **changes})
    if any(results):
        sets.append(f"{sql.quoted['result']} = {sql.value(3, ColumnType.JSON)}")
    same = sql.null_safe_equals
    update, parameters = sql.update(
        _TABLE,
        (sets, parameters),
        (source, bound),
        "j.id = v.c0",
        f"{sql.in_state(job.state)} AND j.lease_id {same} v.c1 AND j.deadline_at {same} v.c2"
        " AND j.progress IS NULL",
        "j.id, v.c1, j.lease_seq, j.attempt, j.started_at, v.c2",
    )
    statement = (
        f"WITH ended ({_ENDED}) AS ({update}) INSERT INTO {_ATTEMPTS} ({_ENDED}, {_ENDED_ALIKE})"
        f" SELECT {_ENDED}, %s, %s, %s, %s FROM ended RETURNING job_id"
    )
    alike = [job.worker_id, job.lease_principal, decision.attempt.outcome, now]
    with cursor(using) as cur:
        cur.execute(statement, [*parameters, *alike])
        return {job_id for (job_id,) in cur.fetchall()}


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
