"""The one writer of ``Job.state``: decisions become guarded UPDATEs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

from django_ojs.clock import STEPS
from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.job import LARGE, JobRow, Transition
from django_ojs.domain.states import State
from django_ojs.models import Attempt, Job
from django_ojs.store.batches import fits
from django_ojs.store.candidates import Candidate
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.contention import LockLost
from django_ojs.store.dialect import cursor, dialect, repeated
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.sources import QUEUES, Lane, in_order

_TABLE = Job._meta.db_table
_ATTEMPTS = Attempt._meta.db_table
_ENDED = "job_id, lease_id, lease_seq, attempt, started_at, deadline_at"
_ENDED_ALIKE = "worker_id, principal, outcome, ended_at"
_PLAIN = (
    "j.hooks = 0 AND j.progress IS NULL AND j.lease_id IS NULL AND j.total_timeout_ms IS NULL"
    " AND j.visibility_timeout_ms IS NULL"
)
_OPEN = "NOT paused AND NOT limited"
_SAME_STEPS = f" AND COALESCE({STEPS}, 0) = %s"
_SMALL = 2048
"""Bytes of arguments as they are stored."""
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


def start_first(
    lane: Lane,
    limit: int,
    changes: Mapping[str, Any],
    *,
    each_bytes: int | None = None,
    beats: bool,
    now: datetime,
    steps: int,
    using: str,
) -> tuple[list[JobRow], int]:
    """Start an attempt of the first jobs of one range: the records as written, in order, and how many
    jobs were locked, of which some may not be plain; 0 if none was started.

    By one statement and without a transaction, only for a dialect that ``updates_what_it_locks``:
    ``changes`` (:func:`held_by`), and what depends on the row. Only plain jobs: without hooks, progress
    of an attempt before, total and visibility timeout. Others, those with more text than
    ``each_bytes``, and those that are overdue, are left as they are; so is everything while the queue
    is paused, limited or held by another transaction, or when other ``steps`` of the clock have been
    applied than ``now`` was computed with.
    """
    sql = dialect(using)
    picked, pins = lane.select(
        "j.id, 0 AS place, j.queue",
        f"{sql.limit}{sql.skip_locked}",
        sql,
        f" AND (SELECT COUNT(*) FROM {QUEUES} WHERE name = %s AND {_OPEN}) = 1{_SAME_STEPS}",
    )
    bound = [*pins, lane.queue, steps, limit]
    # By its key each, however many of them the statistics say that there are.
    keys = " AND j.id = ANY(ARRAY(SELECT id FROM locked))" + _within(each_bytes, sql)
    jobs, locked = _start((picked, bound), keys, changes, beats=beats, now=now, using=using)
    return sorted(jobs, key=in_order), locked


def _within(each_bytes: int | None, sql: Dialect) -> str:
    return "" if each_bytes is None else f" AND {sql.text_size(LARGE)} <= {each_bytes}"


def start_seen(
    found: Sequence[Candidate],
    limit: int,
    changes: Mapping[str, Any],
    *,
    ahead: bool,
    each_bytes: int | None = None,
    beats: bool,
    now: datetime,
    steps: int,
    using: str,
) -> tuple[list[JobRow], int]:
    """As :func:`start_first`, of jobs that a look has found, by their keys, in the order given.

    ``ahead`` if some are to wait for others: then those with one attempt only, or with more than two
    kilobytes of arguments, are left too. Those of queues with a rate limit are locked and left, so that
    the caller knows of them.
    """
    sql = dialect(using)
    rows = [(candidate.id, place, candidate.queue) for place, candidate in enumerate(found)]
    item, literals = sql.record_set([ColumnType.UUID, ColumnType.INT, ColumnType.TEXT], rows)
    picked = (
        f"SELECT j.id, v.c1 AS place, j.queue FROM {item} CROSS JOIN {_TABLE} j WHERE j.id = v.c0"
        f" AND j.queue = v.c2 AND {sql.in_state(State.AVAILABLE)} AND NOT j.held"
        f" AND NOT EXISTS (SELECT 1 FROM {QUEUES} WHERE name = j.queue AND paused){_SAME_STEPS}"
        f" ORDER BY v.c1 {sql.limit} FOR UPDATE OF j SKIP LOCKED"
    )
    bound = [*literals, steps, limit]
    more = f" AND j.max_attempts > 1 AND pg_column_size(j.args) < {_SMALL}" if ahead else ""
    more += _within(each_bytes, sql)
    return _start((picked, bound), more, changes, beats=beats, now=now, using=using)


def _start(
    given: tuple[str, Sequence[Any]],
    more: str,
    changes: Mapping[str, Any],
    *,
    beats: bool,
    now: datetime,
    using: str,
) -> tuple[list[JobRow], int]:
    """Start the plain ones of the jobs that a statement locks, each with its ``place`` and queue.

    Only of these jobs are the queues locked; jobs of those that are held, or no longer open, are left.
    Neither lock is waited for, so that their order cannot lead to a deadlock. Returns the records by
    place, and how many were locked.
    """
    sql = dialect(using)
    picked, bound = given
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
        ("locked", []),
        "j.id = locked.id",
        f"{sql.in_state(State.AVAILABLE)} AND {_PLAIN}"
        f" AND (j.deadline_at IS NULL OR j.deadline_at > {at}){more}",
        f"{sql.job_columns}, locked.place, (SELECT COUNT(*) FROM picked)",
    )
    statement = (
        f"WITH picked AS MATERIALIZED ({picked}),"
        f" open AS MATERIALIZED (SELECT name FROM {QUEUES}"
        f" WHERE name = ANY(ARRAY(SELECT queue FROM picked)) AND {_OPEN}{sql.share_unheld}),"
        " locked AS MATERIALIZED (SELECT id, place FROM picked WHERE queue IN (SELECT name FROM open))"
        f" {update}"
    )
    with repeated(using) as cur:
        sql.fast_loaders(cur)
        cur.execute(statement, [*bound, *parameters, now])
        rows = sorted(cur.fetchall(), key=itemgetter(-2))
    return sql.jobs([row[:-2] for row in rows]), rows[0][-1] if rows else 0


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
    sql = dialect(using)
    assert decision.attempt is not None
    update, parameters = _ending(
        decision, jobs, results, sql, "j.id, v.c1, j.lease_seq, j.attempt, j.started_at, v.c2"
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
    with repeated(using) as cur:
        cur.execute(statement, [*parameters, *alike, len(jobs)])
        some, written = cur.fetchone()
    return {job.id for job in jobs} if written == len(jobs) else set(some or ())


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
    same = sql.null_safe_equals
    return sql.update(
        _TABLE,
        (sets, parameters),
        (source, bound),
        "j.id = v.c0",
        f"{sql.in_state(decision.job.state)} AND j.lease_id {same} v.c1 AND j.deadline_at {same} v.c2"
        " AND j.progress IS NULL",
        returning,
    )


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
