"""What the supervisor claims, and how much: for idle executors, some ahead, and for shared slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from django_ojs.store.sources import Sources
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.supervisor.assignment import Assignment
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.threads.fetcher import CLAIMED_AT_ONCE, Claims

_BUSY_WITHIN = 0.05
"""Seconds since the end of the last job within which jobs are claimed ahead."""
_TURNS = 2
"""The same in turns of the thread that claims, where that is longer."""


class ClaimSize(NamedTuple):
    """How many jobs to claim for executors of one job, how many of them can begin at once, and how
    many to claim for shared slots.
    """

    jobs: int = 0
    immediate: int = 0
    shared: int = 0

    def within(self, most: int) -> ClaimSize:
        """The same, of so many jobs of either kind at most."""
        most = max(0, most)
        return ClaimSize(min(self.jobs, most), self.immediate, min(self.shared, most))


def is_busy(since_done: float, turn: float) -> bool:
    """Whether a worker whose last job ended so many seconds ago claims ahead.

    ``turn`` is how long the thread that claims takes to do so, and to write reports if it does that
    too: on a crowded machine the next jobs come later than a busy worker would else be without any.
    """
    return since_done < max(_BUSY_WITHIN, _TURNS * turn)


def claim_size(
    pool: Pool,
    assignment: Assignment,
    config: Config,
    shared: SharedTypes,
    *,
    now: float,
    leases: int,
    last_done: float,
    turn: float,
) -> ClaimSize:
    """What is wanted ``now``, when so many leases are held and the last job ended at ``last_done``;
    ``turn`` is as in :func:`is_busy`.
    """
    alone = [child.slots[0] for child in pool if not child.is_shared]
    immediate = sum(slot.free for slot in alone)
    estimate, held_back = assignment.estimate, len(assignment.waiting)
    ahead = 0
    if is_busy(now - last_done, turn):
        going = sum(1 for child in pool if not child.is_shared and not child.slots[0].is_long(now))
        ahead = estimate.prefetch(config.concurrency, going)
    queued = sum(len(slot.queued) for slot in alone)
    jobs = max(0, immediate + ahead - held_back - queued)
    if leases and jobs < min(ahead // 2, CLAIMED_AT_ONCE):
        jobs = 0
    free = sum(slot.free for slot in pool.slots() if slot.child.is_shared) if shared else 0
    waiting = sum(leased.job.type in shared for leased in assignment.waiting) if free else 0
    return ClaimSize(jobs, immediate, max(0, free - waiting))


def divided(config: Config, shared: SharedTypes, make: Callable[[Sources], Claims]) -> list[Claims]:
    """The claims of types that have executors of their own and, if there are any, of those that share.

    A type that is isolated later moves from the latter to the former.
    """
    if not shared:
        return [make(config.sources())]
    alone, together = make(config.sources()), make(config.sources())

    def divide() -> None:
        alone.where = config.sources(without=shared.names())
        together.where = config.sources(only=shared.names())

    shared.on_change = divide
    divide()
    return [alone, together]
