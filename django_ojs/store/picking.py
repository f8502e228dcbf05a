"""Which jobs one statement locks in order to start them, in the order of service (ADR 43, 48, 57).

Each locks jobs that others do not hold, and none while other ``steps`` of the clock have been applied
than the caller's time was computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_ojs.clock import STEPS
from django_ojs.domain.job import LARGE
from django_ojs.domain.reserved import OWN_PREFIX, OWN_QUEUE
from django_ojs.domain.states import State
from django_ojs.store.candidates import Candidate
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.sources import ORDER, PAUSED, QUEUES, TABLE, Lane, Sources

OPEN = "NOT paused AND NOT limited"
"""Queues whose jobs may be started by one statement."""
_SAME_STEPS = f"COALESCE({STEPS}, 0) = %s"
_SMALL = 2048
"""Bytes of arguments as they are stored."""


class PickLimits(NamedTuple):
    """How many jobs to lock at most. Not started are those with more text than ``each_bytes`` and, if
    some are claimed ``ahead`` to wait for others, those with one attempt only or with more than two
    kilobytes of arguments.
    """

    limit: int
    ahead: bool = False
    each_bytes: int | None = None

    def only(self, sql: Dialect) -> str:
        """The conditions on those that may start."""
        more = f" AND j.max_attempts > 1 AND pg_column_size(j.args) < {_SMALL}" if self.ahead else ""
        if self.each_bytes is not None:
            more += f" AND {sql.text_size(LARGE)} <= {self.each_bytes}"
        return more


class Picked(NamedTuple):
    """``tables`` are for a WITH: the last is ``picked``, the place and queue of each job that was
    locked. ``only`` are conditions on those that may start, and ``looked_at`` is the number of jobs
    among which they were picked, if that is known in the statement only.
    """

    tables: str
    bound: list[Any]
    only: str
    looked_at: str = "0"


def first(lane: Lane, limits: PickLimits, *, steps: int, sql: Dialect) -> Picked:
    """The first jobs of one range; none while its queue is paused or limited."""
    text, pins = lane.select(
        f"j.{sql.place} AS at, j.queue",
        f"{sql.limit}{sql.skip_locked}",
        sql,
        f" AND (SELECT COUNT(*) FROM {QUEUES} WHERE name = %s AND {OPEN}) = 1 AND {_SAME_STEPS}",
    )
    bound = [*pins, lane.queue, steps, limits.limit]
    return Picked(f"picked AS MATERIALIZED ({text})", bound, limits.only(sql))


def seen(found: Sequence[Candidate], limits: PickLimits, *, steps: int, sql: Dialect) -> Picked:
    """Those that a look has found, by their keys, in the order given.

    Those of queues with a rate limit are locked too, so that the caller knows of them, and not started.
    """
    rows = [(candidate.id, place, candidate.queue) for place, candidate in enumerate(found)]
    item, literals = sql.record_set([ColumnType.UUID, ColumnType.INT, ColumnType.TEXT], rows)
    text = (
        f"SELECT j.{sql.place} AS at, j.queue FROM {item} CROSS JOIN {TABLE} j WHERE j.id = v.c0"
        f" AND j.queue = v.c2 AND {_free(sql)}"
        f" AND NOT EXISTS (SELECT 1 FROM {QUEUES} WHERE name = j.queue AND paused)"
        f" ORDER BY v.c1 {sql.limit} FOR UPDATE OF j SKIP LOCKED"
    )
    bound = [*literals, steps, limits.limit]
    return Picked(f"picked AS MATERIALIZED ({text})", bound, limits.only(sql))


def served(where: Sources, width: int, limits: PickLimits, *, steps: int, sql: Dialect) -> Picked:
    """As :func:`seen`, without a look before: among the first ``width`` jobs of the one range that
    holds those of this worker and others.

    None if they are to wait for others and one of them has one attempt only: such jobs have the first
    places among those that can begin, which this does not know of.
    """
    (lane,) = where.lanes
    columns = f"j.{sql.place} AS at, j.queue, j.type, j.max_attempts"
    front, pins = lane.select(columns, sql.limit, sql)
    among, names = condition(where, "s")
    again, _ = condition(where, "j")
    once = " AND NOT EXISTS (SELECT 1 FROM served WHERE max_attempts <= 1)" if limits.ahead else ""
    # What it serves is asked twice, since a job may be moved until it is locked.
    text = (
        f"SELECT j.{sql.place} AS at, j.queue FROM {TABLE} j"
        f" WHERE {sql.at_places('SELECT at FROM served')} AND {_free(sql)} AND {again}{once}"
        f" ORDER BY {ORDER} {sql.limit} FOR UPDATE OF j SKIP LOCKED"
    )
    return Picked(
        f"served AS MATERIALIZED (SELECT s.at, s.max_attempts FROM ({front}) s"
        f" WHERE {among} AND s.queue NOT IN {PAUSED}),"
        f" picked AS MATERIALIZED ({text})",
        [*pins, width, *names, steps, *names, limits.limit],
        limits.only(sql),
        "(SELECT COUNT(*) FROM served)",
    )


def _free(sql: Dialect) -> str:
    return f"{sql.in_state(State.AVAILABLE)} AND NOT j.held AND {_SAME_STEPS}"


def condition(where: Sources, row: str) -> tuple[str, list[Any]]:
    """What :meth:`Sources.serves` says of a row by this name, and the parameters."""
    conditions = [f"{row}.type IN (SELECT unnest(%s::text[]))"]
    bound: list[Any] = [sorted(where.types or ())]
    if where.queues is not None:
        conditions.append(f"{row}.queue IN (SELECT unnest(%s::text[]))")
        bound.append(list(where.queues))
    elif where.excluded:
        conditions.append(f"{row}.queue NOT IN (SELECT unnest(%s::text[]))")
        bound.append(sorted(where.excluded))
    own = f"left({row}.type, {len(OWN_PREFIX)}) = '{OWN_PREFIX}'"
    conditions.append(f"({own}) = ({row}.queue = '{OWN_QUEUE}')")
    return " AND ".join(conditions), bound
