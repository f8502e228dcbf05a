"""Where a claimer may take jobs from, and the ranges of the claim indexes that hold them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_ojs.boottime import boottime
from django_ojs.domain.job import JobRow
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import State
from django_ojs.models import Job, Queue
from django_ojs.store.dialects.base import Dialect

SLOW = 0.01
"""Seconds from which on a look at the front of an index may have read many dead entries."""
FASTER = 0.5
"""The part of its time that a look behind the dead entries takes at most."""
RESTS = 20
"""So many times as long as such a look took none is made again, and no longer than ``LONGEST_REST``."""
LONGEST_REST = 5.0
"""In seconds: a look may also have taken long because the server stood still."""
_MOST_CROWDED = 16.0
"""The most that ``crowding`` may stay at: rows looked at, as a multiple of the limit."""
_CALMER = 0.98
_TO_SPARE = 1.25
_LEAST_SPARE = 64
_FLOWS_FOR = 0.25
"""Seconds for which jobs are claimed without a look: how slow looks are must be seen in time."""
_MOST_NAMED = 64
"""The most types, or queues, that are named in a statement."""
TABLE = Job._meta.db_table
QUEUES = Queue._meta.db_table
PAUSED = f"(SELECT name FROM {QUEUES} WHERE paused)"
CLAIMABLE = f"j.state = '{State.AVAILABLE.value}' AND NOT j.held"
"""In the words of the partial indexes, since SQLite proves no more than that."""
ORDER = "j.priority DESC, j.enqueued_at, j.id"
"""In which order jobs are served, within a rank."""
REVERSED = "j.priority, j.enqueued_at DESC, j.id DESC"
SEEN = "j.id, j.queue, j.type, j.max_attempts"
"""What a look reads. ``max_attempts`` is in no index: for what a smaller index holds, PostgreSQL
without statistics would read all of that one and sort. Times are left out: their decoding costs.
"""
ORDERED = f"{SEEN}, j.priority, j.enqueued_at"
"""The same where rows are yet to be brought into the order of service."""


class Lane(NamedTuple):
    """The available jobs of one type in one queue, of a queue (no type), or all (no queue); without
    those that are held for a rate limit.

    Each is one range of one index, in the order of service.
    """

    queue: str | None = None
    type: str | None = None

    def select(
        self,
        columns: str,
        tail: str,
        sql: Dialect,
        condition: str = "",
        *,
        last_first: bool = False,
    ) -> tuple[str, list[str]]:
        """``SELECT columns`` in the order of service, or against it; ``tail`` begins with the limit."""
        pins = [pin for pin in (("j.queue", self.queue), ("j.type", self.type)) if pin[1]]
        index = ("ojs_job_claim_any", "ojs_job_claim", "ojs_job_claim_type")[len(pins)]
        where, bound = [CLAIMABLE], list[str]()
        order, first = (REVERSED, " DESC") if last_first else (ORDER, "")
        for place, (column, name) in enumerate(pins, 1):
            text, times = (f"{column} = %s", 1) if place < len(pins) else sql.ranged(column)
            where.append(text)
            bound += [str(name)] * times
            if times > 1:
                order = f"{column}{first}, {order}"
        return (
            f"SELECT {columns} FROM {TABLE} j{sql.by_index(index)}"
            f" WHERE {' AND '.join(where)}{condition} ORDER BY {order} {tail}",
            bound,
        )


def in_order(job: JobRow) -> tuple[int, datetime | None, int]:
    """By what records of one range are sorted into the order of service."""
    return -job.priority, job.enqueued_at, job.id.int


def rests_until(now: float, took: float) -> float:
    """Until when (boottime) no look at the whole is made again after one that took so many seconds."""
    return now + min(RESTS * took, LONGEST_REST) if took > SLOW else now


class Resumed:
    """From which place on the one range of :class:`Sources` is read (ADR 46).

    A server keeps the entries of jobs that were claimed for as long as somebody's snapshot may need
    them, and every look from the beginning reads them again. After two such looks in turn were slow,
    further ones begin with the first job that was locked last, until it is time to look at all of it;
    or until one of them is about as slow: then dead entries are not why.
    """

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed
        self._slow = 0
        self._whole_at = 0.0
        self._took = 0.0
        self._place: tuple[int, datetime] | None = None

    def looked(self, now: float, took: float) -> None:
        """A look from the beginning has taken so many seconds."""
        self._slow = self._slow + 1 if took > SLOW else 0
        self._took = took
        self._whole_at = rests_until(now, took)
        if not self.is_slow:
            self._place = None

    def looked_on(self, took: float) -> None:
        """A look from the place has taken so many seconds."""
        if took > FASTER * self._took:
            self._slow, self._place = 0, None

    def found(self, priority: int, enqueued_at: datetime | None) -> None:
        """This is the first job that a claim has locked."""
        if self.is_slow and enqueued_at is not None:
            self._place = priority, enqueued_at

    @property
    def is_slow(self) -> bool:
        """Whether looks from the beginning are slow, and others are allowed."""
        return self._allowed and self._slow > 1

    def place(self, now: float) -> tuple[int, datetime] | None:
        """Priority and time of the job with which to begin; ``None`` for the beginning."""
        return self._place if now < self._whole_at else None


class Sources:
    """What a claimer serves, and in which order.

    ``queues`` are served in the order named where ``ranked`` (decision L10), otherwise as one pool;
    ``None`` is every queue there is or will be but those ``excluded``. ``types`` of ``None`` are all
    types, of ranked queues only. Our own types have a queue of their own, and it has no others.
    ``resumes`` allows looks that do not begin at the front (:class:`Resumed`).

    ``foreign_until``, ``usual_until``, ``flows_until`` and ``crowding`` are what was learnt; they never
    change which jobs come first.
    """

    def __init__(
        self,
        queues: tuple[str, ...] | None,
        types: frozenset[str] | None = None,
        *,
        ranked: bool = True,
        excluded: frozenset[str] = frozenset(),
        resumes: bool = False,
    ) -> None:
        if types is None and (queues is None or not ranked):
            raise ValueError("a pool of queues needs types")
        self.queues = None if queues is None else tuple(dict.fromkeys(queues))
        self.types = types
        self.ranked = ranked and queues is not None
        self.excluded = excluded
        self._ranks = {name: self.ranked * place for place, name in enumerate(self.queues or ())}
        self.only = self._only()
        """The one range that holds all of it, if one does."""
        self.lanes = self._lanes()
        """The ranges that hold what is served, by rank; among others if it is not the only one."""
        self.foreign_until = 0.0
        """Until when (boottime) the front is taken to be full of what others serve."""
        self.usual_until = 0.0
        """Until when jobs are claimed as ever, since few could be started by one statement."""
        self.flows_until = 0.0
        """Until when no look need find the next jobs: the front was for this worker only."""
        self.crowding = 1.0
        """How many times as much to look at as is wanted, since others take from the same front."""
        self.resumed = Resumed(resumes)
        """Where looks begin while what is before is full of dead entries."""

    def _lanes(self) -> list[Lane]:
        if self.only is not None:
            return [self.only]
        if self.queues is None or (not self.ranked and len(self.queues) > 1):
            return [Lane()]
        return [Lane(queue) for queue in self.queues]

    def _only(self) -> Lane | None:
        if self.queues is None or len(self.queues) != 1:
            return None
        if self.types is None:
            return Lane(self.queues[0])
        types = [name for name in self.types if self.serves(self.queues[0], name)]
        return Lane(self.queues[0], types[0]) if len(types) == 1 else None

    def __bool__(self) -> bool:
        return self.queues != () and self.types != frozenset()

    def serves(self, queue: str, job_type: str) -> bool:
        """Whether jobs of this type in this queue are claimed."""
        if queue in self.excluded or (self.queues is not None and queue not in self._ranks):
            return False
        if self.types is None:
            return True
        return job_type in self.types and is_own(type=job_type) == is_own(queue=queue)

    def looked(self, found: int, limit: int, *, pure: bool) -> None:
        """A look has found so many jobs, and nothing for others if it is ``pure``: if that is more than
        was wanted, more of it is likely.
        """
        if pure and found > limit:
            self.flows_until = boottime() + _FLOWS_FOR

    def locked(self, jobs: int, wanted: int, reached: int | None = None) -> None:
        """So many jobs could be locked of those that a look has found: look at more next time if others
        held the rest; at less, but for some to spare, if they were among the first that it ``reached``.
        """
        if jobs < wanted:
            self.crowding *= 2
        elif self.crowding > 1:
            enough = self.crowding * _CALMER
            if reached is not None:
                enough = min(enough, (_TO_SPARE * reached + _LEAST_SPARE) / wanted)
            self.crowding = max(1.0, min(_MOST_CROWDED, enough))

    @property
    def flows(self) -> bool:
        """Whether the next jobs are likely to be those of the worker, as many as it wants, in one range
        that may hold others too: then no look need find them.
        """
        few = self.types is not None and len(self.types) <= _MOST_NAMED
        named = len(self.queues or ()) + len(self.excluded) <= _MOST_NAMED
        if not (few and named) or self.only or len(self.lanes) > 1 or self.resumed.is_slow:
            return False
        return max(self.foreign_until, self.usual_until) <= boottime() < self.flows_until

    def rank(self, queue: str) -> int:
        """The place of a queue in the order of service, lower is earlier."""
        return self._ranks.get(queue, 0)

    def without(self, queues: frozenset[str]) -> Sources:
        """All but these queues."""
        if self.queues is None:
            return Sources(None, self.types, excluded=self.excluded | queues)
        left = tuple(name for name in self.queues if name not in queues)
        return Sources(left, self.types, ranked=self.ranked)

    def narrowed(self, queue: str, job_type: str) -> Sources:
        """One type of one queue, both served."""
        return Sources((queue,), frozenset({job_type}))
