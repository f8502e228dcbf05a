"""Which available jobs a worker may take: the one read that must not wait and must not scan.

The candidates of every (queue, type) pair come from the index of that pair, in claim order, so that
a backlog of foreign types is never read (decision L10). Where the database has SKIP LOCKED, rows
that another claim holds are passed over; SQLite has one writer at a time instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_ojs.domain.job import JobRecord
from django_ojs.domain.states import State
from django_ojs.models import Job, Queue
from django_ojs.store.columns import Kind
from django_ojs.store.dialect import cursor, dialect, in_list

_TABLE = Job._meta.db_table
_QUEUES = Queue._meta.db_table
_AVAILABLE = f"j.state = '{State.AVAILABLE.value}'"
_ORDER = "priority DESC, {p}enqueued_at, {p}id"


class Source(NamedTuple):
    """A queue, or one type of it, and its place in the order of service (lower is earlier)."""

    queue: str
    type: str | None
    rank: int


def paused(names: Sequence[str], *, using: str) -> set[str]:
    """Those of the queues that are paused, held so that a pause waits for the claim under way.

    After ``pause`` has returned, no job of the queue is claimed any more.
    """
    if not names:
        return set()
    sql = dialect(using)
    with cursor(using) as cur:
        cur.execute(
            f"SELECT name, paused FROM {_QUEUES} WHERE name IN {in_list(names)}{sql.for_share}",
            list(names),
        )
        return {name for name, is_paused in cur.fetchall() if is_paused}


def sources_with_work(sources: Sequence[Source], *, using: str) -> list[Source]:
    """Those of the sources that have an available job: one index probe each, one statement."""
    if not sources:
        return []
    sql = dialect(using)
    typed = sources[0].type is not None
    match = " AND j.type = v.c1" if typed else ""
    item, bound = sql.record_set(
        [Kind.TEXT, Kind.TEXT, Kind.INT],
        [(source.queue, source.type, index) for index, source in enumerate(sources)],
    )
    with cursor(using) as cur:
        # A scalar subquery with a LIMIT: MariaDB would turn EXISTS into a join over all of them.
        # In claim order: otherwise PostgreSQL takes the first match of a sequential scan for cheap.
        cur.execute(
            f"SELECT v.c2, (SELECT 1 FROM {_TABLE} j WHERE {_AVAILABLE} AND j.queue = v.c0"
            f"{match} ORDER BY j.{_ORDER.format(p='j.')} LIMIT 1) FROM {item}",
            bound,
        )
        return [sources[index] for index, found in sorted(cur.fetchall()) if found]


def candidates(sources: Sequence[Source], limit: int, *, using: str) -> list[JobRecord]:
    """Lock up to ``limit`` available jobs: by rank, priority, time of becoming available, key."""
    if not sources or limit < 1:
        return []
    sql = dialect(using)
    rank = ", {rank} AS ojs_rank" if len(sources) > 1 else ""
    branches: list[str] = []
    parameters: list[str | int] = []
    for source in sources:
        match = "" if source.type is None else " AND j.type = %s"
        branches.append(
            f"SELECT {sql.job_columns}{rank.format(rank=source.rank)} FROM {_TABLE} j"
            f" WHERE {_AVAILABLE} AND j.queue = %s{match}"
            f" ORDER BY j.{_ORDER.format(p='j.')} LIMIT %s{sql.skip_locked}"
        )
        parameters += [source.queue, *([] if source.type is None else [source.type]), limit]
    statement = branches[0]
    if len(branches) > 1:
        ranked = " UNION ALL ".join(f"SELECT * FROM ({one}) b{n}" for n, one in enumerate(branches))
        order = f"ojs_rank, {_ORDER.format(p='')}"
        columns = ", ".join(sql.quoted.values())
        statement = f"SELECT {columns} FROM ({ranked}) ranked ORDER BY {order} LIMIT %s"
        parameters.append(limit)
    with cursor(using) as cur:
        sql.tune(cur)
        cur.execute(statement, parameters)
        return sql.jobs(cur.fetchall())
