"""Lock what is claimed, and nothing else.

Where the database has SKIP LOCKED, rows that another claim holds are passed over; SQLite has one
writer at a time instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_ojs.domain.job import JobRecord
from django_ojs.domain.states import State
from django_ojs.store.candidates import Candidate
from django_ojs.store.columns import Kind
from django_ojs.store.dialect import cursor, dialect, in_list
from django_ojs.store.dialects.mysql import MySQL
from django_ojs.store.sources import QUEUES, TABLE, Lane

_MORE = 4


def paused(names: Sequence[str], *, using: str) -> set[str]:
    """Those of the queues that are paused, held so that a pause waits for the claim under way.

    After ``pause`` has returned, no job of the queue is claimed any more.
    """
    sql = dialect(using)
    return {name for name, is_paused in _queues(names, sql.for_share, using) if is_paused}


def paused_or_held(names: Sequence[str], *, using: str) -> tuple[set[str], set[str]]:
    """As :func:`paused`, and waits for nobody: second, the queues whose row somebody else holds."""
    sql = dialect(using)
    if not sql.share_unheld:
        return paused(names, using=using), set()
    known = dict(_queues(names, sql.share_unheld, using))
    unknown = [name for name in names if name not in known]
    # A queue of which there is no row at all is as good as one that is not paused.
    held = {name for name, _ in _queues(unknown, "", using)}
    return {name for name, is_paused in known.items() if is_paused}, held


def _queues(names: Sequence[str], lock: str, using: str) -> list[tuple[str, bool]]:
    if not names:
        return []
    with cursor(using) as cur:
        cur.execute(
            f"SELECT name, paused FROM {QUEUES} WHERE name IN {in_list(names)}{lock}", list(names)
        )
        return [(name, bool(is_paused)) for name, is_paused in cur.fetchall()]


def first(lane: Lane, limit: int, *, using: str) -> list[JobRecord]:
    """Lock the first ``limit`` jobs of one range that nobody else holds."""
    sql = dialect(using)
    text, pins = lane.select(sql.job_columns, f"{sql.limit}{sql.skip_locked}", sql)
    with cursor(using) as cur:
        sql.tune(cur)
        cur.execute(text, [*pins, limit])
        return sql.jobs(cur.fetchall())


def these(found: Sequence[Candidate], limit: int, *, using: str) -> list[JobRecord]:
    """Lock the first ``limit`` of these jobs that are still available and nobody else holds.

    By primary key, and no more than ``limit`` at a time: what a database locks and then leaves out
    of the answer stays locked.
    """
    sql = dialect(using)
    places = {candidate.id: place for place, candidate in enumerate(found)}
    join, order = f"CROSS JOIN {TABLE} j WHERE", "ORDER BY v.c1 "
    if isinstance(sql, MySQL):
        # In the order given, and without a sort, which would lock every row first.
        join, order = f"STRAIGHT_JOIN {TABLE} j{sql.by_index('PRIMARY')} WHERE", ""
    taken: list[JobRecord] = []
    start, size = 0, limit
    while start < len(found) and len(taken) < limit:
        part = list(places.items())[start : start + size]
        start, size = start + size, size * _MORE
        item, bound = sql.record_set([Kind.UUID, Kind.INT], part)
        with cursor(using) as cur:
            sql.tune(cur)
            cur.execute(
                f"SELECT {sql.job_columns} FROM {item} {join} j.id = v.c0"
                f" AND {sql.in_state(State.AVAILABLE)} {order}LIMIT %s{sql.skip_locked}",
                [*bound, limit - len(taken)],
            )
            taken += sql.jobs(cur.fetchall())
    return sorted(taken, key=lambda job: places[job.id])
