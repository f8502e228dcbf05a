"""Statements about pairs (queue, type): the first job of each pair, and the first jobs of some pairs.

Their cost grows with the number of pairs that have work, not with the number of jobs. MariaDB cannot
skip between values of an index: there every served type is probed in every queue with work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from django_ojs.domain.reserved import OWN_PREFIX, OWN_QUEUE
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialect import in_list
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.dialects.mysql import MySQL
from django_ojs.store.dialects.postgresql import Postgres
from django_ojs.store.sources import (
    CLAIMABLE,
    ORDER,
    ORDERED,
    PAUSED,
    QUEUES,
    SEEN,
    TABLE,
    Lane,
    Sources,
)

_BY_TYPE = "ojs_job_claim_type"


class Pair(Protocol):
    """Anything with a queue and a type."""

    @property
    def queue(self) -> str:
        """Its name."""

    @property
    def type(self) -> str:
        """Its name."""


def rows(where: Sources, chosen: Sequence[Pair], depth: int, sql: Dialect) -> tuple[str, list[Any]]:
    """Select the first ``depth`` jobs of each of these pairs, in claim order."""
    if isinstance(sql, Postgres):
        places = [(pair.queue, pair.type, where.rank(pair.queue)) for pair in chosen]
        item, bound = sql.record_set([ColumnType.TEXT, ColumnType.TEXT, ColumnType.INT], places)
        return (
            f"SELECT {SEEN} FROM {item} CROSS JOIN LATERAL (SELECT {ORDERED}, v.c2 AS r FROM {TABLE} j"
            f" WHERE {CLAIMABLE} AND (j.queue, j.type) >= (v.c0, v.c1)"
            f" ORDER BY j.queue, j.type, {ORDER} {sql.limit}) j"
            f" WHERE j.queue = v.c0 AND j.type = v.c1 ORDER BY j.r, {ORDER}",
            [*bound, depth],
        )
    branches, parameters = [], list[Any]()
    for number, pair in enumerate(chosen):
        columns = f"{ORDERED}, {where.rank(pair.queue)} AS r"
        text, pins = Lane(pair.queue, pair.type).select(columns, sql.limit, sql)
        branches.append(f"SELECT * FROM ({text}) b{number}")
        parameters += [*pins, depth]
    every = " UNION ALL ".join(branches)
    return f"SELECT {SEEN} FROM ({every}) j ORDER BY j.r, {ORDER}", parameters


def heads(where: Sources, most: int, sql: Dialect) -> tuple[str, list[Any]]:
    """Select the first job of each pair that is served and not paused: the first ``most`` of them."""
    served, names = sql.record_set([ColumnType.TEXT], [(name,) for name in sorted(where.types or ())])
    write = _skipping
    if isinstance(sql, Postgres):
        write = _skipping_laterally
    elif isinstance(sql, MySQL):
        write = _probing
    excluded = [*where.excluded]
    is_open = f"q.name NOT IN {PAUSED}"
    if excluded:
        is_open += f" AND q.name NOT IN {in_list(excluded)}"
    queues, bound = _EVERY, list[Any]()
    if where.queues is not None:
        ranks = [(name, where.rank(name)) for name in where.queues]
        item, bound = sql.record_set([ColumnType.TEXT, ColumnType.INT], ranks)
        queues = f"SELECT v.c0 AS name, v.c1 AS r FROM {item}"
    text, order = write(queues, is_open, served, sql)
    return f"{text} ORDER BY {order} LIMIT %s", [*bound, *excluded, *names, most]


_EVERY = ""
"""Instead of a statement that names queues: all queues with a job."""
_OWN = f"(SUBSTR({{type}}, 1, {len(OWN_PREFIX)}) = '{OWN_PREFIX}') = ({{queue}} = '{OWN_QUEUE}')"
"""Our own types are in our own queue only, and that queue has no others."""
_OWN_JOB = _OWN.format(type="j.type", queue="j.queue")


_AFTER_NAME = " AND (j.queue, j.type) > (q.name, '')"


def _skipping_laterally(queues: str, is_open: str, served: str, sql: Dialect) -> tuple[str, str]:
    """PostgreSQL: compare rows, and filter by the queue afterwards. With an equation the planner, which
    expects one row when it has no statistics, would take any index with the queue, and sort.
    """

    def first(condition: str) -> str:
        return (
            f"LATERAL (SELECT {ORDERED} FROM {TABLE} j WHERE {CLAIMABLE}{condition}"
            f" ORDER BY j.queue, j.type, {ORDER} LIMIT 1) j"
        )

    queues = queues or (
        f"SELECT j.queue, 0 FROM {first('')} UNION ALL SELECT j.queue, 0 FROM q"
        f" CROSS JOIN {first(' AND j.queue > q.name')}"
    )
    return (
        f"WITH RECURSIVE q(name, r) AS ({queues}), p AS (SELECT q.r, j.*"
        f" FROM q CROSS JOIN {first(_AFTER_NAME)}"
        f" WHERE j.queue = q.name AND {is_open} UNION ALL SELECT p.r, j.* FROM p"
        f" CROSS JOIN {first(' AND (j.queue, j.type) > (p.queue, p.type)')} WHERE j.queue = p.queue)"
        f" SELECT {SEEN} FROM p j WHERE j.type IN (SELECT v.c0 FROM {served}) AND {_OWN_JOB}"
    ), f"j.r, {ORDER}"


def _skipping(queues: str, is_open: str, served: str, sql: Dialect) -> tuple[str, str]:
    """SQLite: by row number, since a recursion takes only one value from a subquery."""

    def first(what: str, condition: str, order: str) -> str:
        return (
            f"(SELECT j.{what} FROM {TABLE} j{sql.by_index(_BY_TYPE)} WHERE {CLAIMABLE}{condition}"
            f" ORDER BY {order}, {ORDER} LIMIT 1)"
        )

    def once(alias: str) -> str:
        # With an equation SQLite would first read the whole table, to build a filter.
        return f" ON {alias}.rowid BETWEEN p.row AND p.row"

    by_queue = "j.queue, j.type"
    queues = queues or (
        f"SELECT {first('queue', '', by_queue)}, 0 UNION ALL"
        f" SELECT {first('queue', ' AND j.queue > q.name', by_queue)}, 0 FROM q"
        " WHERE q.name IS NOT NULL"
    )
    following = first("rowid", " AND j.queue = b.queue AND j.type > b.type", "j.type")
    return (
        f"WITH RECURSIVE q(name, r) AS ({queues}), p(row, r) AS ("
        f"SELECT {first('rowid', ' AND j.queue = q.name', 'j.type')}, q.r FROM q WHERE {is_open}"
        f" UNION ALL SELECT {following}, p.r FROM p CROSS JOIN {TABLE} b{once('b')})"
        f" SELECT {SEEN} FROM p CROSS JOIN {TABLE} j{once('j')}"
        f" WHERE j.type IN (SELECT v.c0 FROM {served}) AND {_OWN_JOB}"
    ), f"p.r, {ORDER}"


def _probing(queues: str, is_open: str, served: str, sql: Dialect) -> tuple[str, str]:
    """MariaDB: probe the served types in the queues that have a job.

    By scalar subqueries with LIMIT, since MariaDB would turn EXISTS into a join over all jobs.
    """
    queues = queues or f"SELECT name, 0 AS r FROM {QUEUES}"
    busy, first = (
        f"(SELECT {what} FROM {TABLE} j{sql.by_index(index)} WHERE {CLAIMABLE} AND j.queue = q.name"
        f"{condition} ORDER BY {ORDER} LIMIT 1)"
        for what, index, condition in (
            ("1", "ojs_job_claim", ""),
            ("j.id", _BY_TYPE, " AND j.type = v.c0"),
        )
    )
    return (
        f"SELECT {SEEN} FROM (SELECT q.r, {first} AS head FROM (SELECT q.name, q.r"
        f" FROM ({queues}) q WHERE {busy} = 1 AND {is_open}) q"
        f" STRAIGHT_JOIN {served} ON {_OWN.format(type='v.c0', queue='q.name')}) p"
        f" STRAIGHT_JOIN {TABLE} j{sql.by_index('PRIMARY')} ON j.id = p.head"
    ), f"p.r, {ORDER}"
