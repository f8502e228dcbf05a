"""The one writer of ``Job.state``: decisions become guarded UPDATEs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.states import State
from django_ojs.models import Attempt, Job
from django_ojs.store.batches import fits
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.contention import LockLost
from django_ojs.store.dialect import cursor, dialect, repeated
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.picking import OPEN, Picked
from django_ojs.store.sources import QUEUES

_TABLE = Job._meta.db_table
_ATTEMPTS = Attempt._meta.db_table
_ENDED = "job_id, lease_id, lease_seq, attempt, started_at, deadline_at"
_ENDED_ALIKE = "worker_id, principal, outcome, ended_at"
_PLAIN = (
    "j.hooks = 0 AND j.progress IS NULL AND j.lease_id IS NULL AND j.total_timeout_ms IS NULL"
    " AND j.visibility_timeout_ms IS NULL"
)
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
    missing = len(group) - _written(statement, bound, using)
    if missing:
        raise (LeaseLost if known[2:] else LockLost)(_no_longer(missing, group, state))


def start_alike(
    decision: Transition, jobs: Sequence[JobRow], leases: Sequence[UUID], *, using: str
) -> None:
    """Write the decision that an attempt starts for all of these jobs, each under a lease of its own.

    It was made on one of them, and would be the same for the others but for the lease. For jobs that
    are locked and have no lease; raises :class:`LockLost` as :func:`apply` does.
    """
    sql = dialect(using)
    ids = [(job.id, lease) for job, lease in zip(jobs, leases, strict=True)]
    source, bound = sql.record_set([ColumnType.UUID, ColumnType.UUID], ids)
    changes = {name: value for name, value in decision.changes.items() if name != "lease_id"}
    sets, parameters = _constants(sql, {"state": str(decision.target), **changes})
    sets.append(f"{sql.quoted['lease_id']} = {sql.value(1, ColumnType.UUID)}")
    statement, bound = sql.update(
        _TABLE,
        (sets, parameters),
        (source, bound),
        f"j.id = {sql.value(0, ColumnType.UUID)}",
        f"{sql.in_state(decision.job.state)} AND j.lease_id IS NULL",
    )
    missing = len(jobs) - _written(statement, bound, using)
    if missing:
        raise LockLost(_no_longer(missing, jobs, decision.job.state))


class Started(NamedTuple):
    """The records as written; of so many jobs that were locked, of which some may not be plain, and
    that many that were ``looked_at`` in the statement. Both are 0 if none was started.
    """

    jobs: list[JobRow]
    locked: int
    looked_at: int


def start_picked(
    picked: Picked, changes: Mapping[str, Any], *, beats: bool, now: datetime, using: str
) -> Started:
    """Start an attempt of those that are plain of the jobs that a statement locks, in no order.

    By one statement and without a transaction, only for a dialect that ``updates_what_it_locks``:
    ``changes`` (:func:`held_by`), and what depends on the row. Plain is without hooks, progress of an
    attempt before, total and visibility timeout. Others, and those that are overdue, are left as they
    are.

    Only of the jobs picked are the queues locked; jobs of those that are held, or no longer open, are
    left. Neither lock is waited for, so that their order cannot lead to a deadlock.
    """
    sql = dialect(using)
    sets, parameters = _constants(sql, {"state": State.ACTIVE.value, **changes})
    at = sql.placeholder(ColumnType.TIME)
    ms = f"(j.{sql.quoted['timeout_ms']} + j.{sql.quoted['grace_period_ms']})"
    sets += [
        "attempt = j.attempt + 1",
        "lease_seq = j.lease_seq + 1",
        "lease_id = gen_random_uuid()",
        f"heartbeat_armed = {'TRUE' if beats else 'j.heartbeat_explicit'}",
        f"deadline_at = {sql.later.format(at=at, ms=ms)}",
    ]
    update, parameters = sql.update(
        _TABLE,
        (sets, [*parameters, now]),
        ("", []),
        sql.at_places("SELECT at FROM picked WHERE queue IN (SELECT name FROM open)"),
        f"{sql.in_state(State.AVAILABLE)} AND {_PLAIN}"
        f" AND (j.deadline_at IS NULL OR j.deadline_at > {at}){picked.only}",
        f"{sql.job_columns}, (SELECT COUNT(*) FROM picked), {picked.looked_at}",
    )
    statement = (
        f"WITH {picked.tables}, open AS MATERIALIZED (SELECT name FROM {QUEUES}"
        f" WHERE name = ANY(ARRAY(SELECT queue FROM picked)) AND {OPEN}{sql.share_unheld}) {update}"
    )
    with repeated(using) as cur:
        sql.fast_loaders(cur)
        cur.execute(statement, [*picked.bound, *parameters, now])
        rows = cur.fetchall()
    if not rows:
        return Started([], 0, 0)
    return Started(sql.jobs([row[:-2] for row in rows]), *rows[0][-2:])


def end_alike(
    decision: Transition,
    jobs: Sequence[JobRow],
    results: Sequence[str | None],
    *,
    pass_over: bool = False,
    now: datetime,
    using: str,
) -> list[JobRow]:
    """Write the decision that an attempt has succeeded for all of these jobs, with their attempt rows.

    It was made on one of them, and would be the same for the others but for ``results``, JSON text.
    Returns those that were as their records say: in that state, under that lease, by that
    deadline and without progress; the others are left as they are, with ``pass_over`` also those that
    another transaction holds. One statement, and no transaction around it: only for a dialect that
    ``inserts_what_it_updates``.
    """
    sql = dialect(using)
    assert decision.attempt is not None
    update, parameters = _ending(
        decision,
        jobs,
        results,
        sql,
        "j.id, v.c1, j.lease_seq, j.attempt, j.started_at, v.c2",
        pass_over=pass_over,
    )
    # Their ids are read only if some are missing: usually all of them are written.
    statement = (
        f"WITH ended ({_ENDED}) AS ({update}), kept AS ("
        f"INSERT INTO {_ATTEMPTS} ({_ENDED}, {_ENDED_ALIKE})"
        f" SELECT {_ENDED}, %s, %s, %s, %s FROM ended RETURNING job_id)"
        " SELECT CASE WHEN COUNT(*) < %s THEN ARRAY_AGG(job_id) END, COUNT(*) FROM kept"
    )
    job = decision.job
    alike = [job.worker_id, job.lease_principal, decision.attempt.outcome, now]
    with repeated(using, anywhere=True) as cur:
        cur.execute(statement, [*parameters, *alike, len(jobs)])
        some, written = cur.fetchone()
    if written == len(jobs):
        return list(jobs)
    ids = set(some or ())
    return [job for job in jobs if job.id in ids]


def end_all_alike(
    decision: Transition, jobs: Sequence[JobRow], results: Sequence[str | None], *, using: str
) -> None:
    """The same in a transaction and without the attempt rows, for all of the jobs: raises
    :class:`LeaseLost` if one is not as its record says.
    """
    sql = dialect(using)
    if len(jobs) > 1 and not fits([ColumnType.JSON], [results], using):
        half = len(jobs) // 2
        for part in (slice(half), slice(half, None)):
            end_all_alike(decision, jobs[part], results[part], using=using)
        return
    missing = len(jobs) - _written(*_ending(decision, jobs, results, sql), using)
    if missing:
        raise LeaseLost(_no_longer(missing, jobs, decision.job.state))


def _ending(
    decision: Transition,
    jobs: Sequence[JobRow],
    results: Sequence[str | None],
    sql: Dialect,
    returning: str = "",
    *,
    pass_over: bool = False,
) -> tuple[str, list[Any]]:
    """The guarded UPDATE for :func:`end_alike`, and its parameters."""
    kinds = [ColumnType.UUID, ColumnType.UUID, ColumnType.TIME]
    columns: list[Iterable[Any]] = [
        [getattr(job, name) for job in jobs] for name in ("id", "lease_id", "deadline_at")
    ]
    changes = dict(decision.changes)
    if any(results):
        kinds.append(ColumnType.JSON)
        columns.append(results)
        del changes["result"]
    source, bound = sql.record_set(kinds, list(zip(*columns, strict=True)))
    sets, parameters = _constants(sql, {"state": str(decision.target), **changes})
    if any(results):
        sets.append(f"{sql.quoted['result']} = {sql.value(3, ColumnType.JSON)}")
    same, changed = sql.null_safe_equals, (sets, parameters)
    guards = (
        f"{sql.in_state(decision.job.state)} AND j.lease_id {same} v.c1 AND j.deadline_at {same} v.c2"
        " AND j.progress IS NULL"
    )
    if pass_over:
        keys = [job.id for job in jobs]
        return sql.update_free(_TABLE, changed, (source, bound), keys, "j.id = v.c0", guards, returning)
    return sql.update(_TABLE, changed, (source, bound), "j.id = v.c0", guards, returning)


def _written(statement: str, parameters: Sequence[Any], using: str) -> int:
    with cursor(using) as cur:
        cur.execute(statement, parameters)
        return int(cur.rowcount)


def _no_longer(missing: int, jobs: Sized, state: str) -> str:
    return f"{missing} of {len(jobs)} jobs were no longer {state} as decided"


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
