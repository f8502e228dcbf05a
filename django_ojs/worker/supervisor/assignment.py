"""Which executor gets which claimed job: idle ones first, then some wait behind running jobs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import cache, lru_cache
from math import inf
from operator import attrgetter

from django_ojs import clock, conf
from django_ojs.domain.options import HeartbeatMode
from django_ojs.domain.timeouts import after, soft_deadline
from django_ojs.handlers import registry
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.child import Child, Phase, Slot
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.supervisor import partition
from django_ojs.worker.supervisor.prefetch import QUEUED_BYTES, PrefetchPolicy
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.supervisor.shutdown import Shutdown

logger = logging.getLogger("django_ojs.worker")

_STUCK_BEHIND = 0.1
_UNSTARTED = 0.15
_UNANSWERED = 5.0
"""Seconds that an executor in which no job runs has to give back what it is asked for."""
_UNANSWERED_AT_END = 0.5
"""The same once the worker's time to stop is up."""
_AMPLE = 24
"""Jobs queued in an executor, which is only done with short ones."""
_TEXT_BYTES = attrgetter("text_bytes")


class Assignment:
    """The claimed jobs that wait for an executor, and the rules by which they get one."""

    def __init__(
        self,
        pool: Pool,
        shutdown: Shutdown,
        shared: SharedTypes,
        release: Callable[[LeasedJob], None],
        heartbeat: HeartbeatMode = "auto",
    ) -> None:
        self._pool = pool
        self._shutdown = shutdown
        self._shared = shared
        self._release = release
        self._heartbeat = heartbeat
        self.waiting: deque[LeasedJob] = deque()
        self.estimate = PrefetchPolicy(conf.current().prefetch_ms / 1000)

    def assign(self) -> None:
        """Give waiting jobs to executors: to idle ones first, then queue some behind running jobs."""
        now = clock.boottime()
        if self.waiting and self._shared:
            self._share(now)
        for child in self._pool:
            if not self.waiting:
                return
            if not child.is_shared and child.slots[0].free:
                self._give(child.slots[0], self.waiting.popleft(), now)
        depth = cache(self.estimate.queue_depth)
        for child in self._pool:
            if self.waiting and not child.is_shared and self._may_queue(child.slots[0], now):
                queued = child.slots[0].queued
                held = sum(map(_TEXT_BYTES, queued))
                while self.waiting and _has_room(queued, held, self.waiting[0], depth):
                    held += self.waiting[0].text_bytes
                    self._give(child.slots[0], self.waiting.popleft(), now)

    def is_ample(self) -> bool:
        """Whether every executor has work for a while, so that none waits for the supervisor."""
        children = self._pool.children
        return bool(children) and all(
            not child.is_shared and len(child.slots[0].queued) >= _AMPLE for child in children
        )

    def _share(self, now: float) -> None:
        """Give coroutines to free slots. Those for which there is none may have a process too."""
        free = (slot for slot in self._pool.slots() if slot.child.is_shared and slot.free)
        left: deque[LeasedJob] = deque()
        for leased in self.waiting:
            slot = next(free, None) if leased.job.type in self._shared else None
            if slot is None:
                left.append(leased)
            else:
                self._give(slot, leased, now)
        self.waiting = left

    def _may_queue(self, slot: Slot, now: float) -> bool:
        """Whether jobs may be queued here behind the running one."""
        child = slot.child
        if child.phase is not Phase.READY or child.recycle or self._shutdown.begun:
            return False
        if any(map(partition.is_watched, slot.assigned)):
            # The limit of the process is this job's alone.
            return False
        if slot.running is None:
            return bool(slot.queued) and slot.queued[0].asked_back_at is None
        return now - (slot.running.began_at or 0) <= _STUCK_BEHIND

    def _give(self, slot: Slot, running: LeasedJob, now: float) -> None:
        slot.queued.append(running)
        running.given_at = now
        if partition.is_watched(running):
            self._pool.limit(slot.child, partition.watched(slot.child.assigned), wait=True)
        handler = registry.handler_of(running.job.type)
        mode = None if handler is None else handler.heartbeat
        running.manual = (mode or self._heartbeat) == "manual"
        running.asked_back_at = None
        self._pool.send(slot.child, _run_frame(running))

    # Jobs that cannot begin soon.

    def moments(self) -> list[float]:
        """The times at which :meth:`recall` has something to do (boottime)."""
        moments = [self.waiting[0].received_at + _UNSTARTED] if self.waiting else []
        moments += [_stuck_at(slot) for slot in self._pool.slots() if _may_be_asked(slot)]
        moments += [self._silent_at(child) for child in self._pool]
        return [moment for moment in moments if moment < inf]

    def recall(self, now: float) -> None:
        """Ask for jobs back that cannot begin soon where they are; release those that wait here. Kill
        executors that begin nothing and give nothing back.
        """
        for slot in self._pool.slots():
            if slot.queued and _stuck_at(slot) <= now:
                self._ask_back(slot.child, slot.queued)
        for child in list(self._pool):
            if self._silent_at(child) <= now:
                logger.error("an executor does not answer: process %d", child.pid)
                self._pool.kill(child)
        late = False
        while self.waiting and now - self.waiting[0].received_at > _UNSTARTED:
            self._release(self.waiting.popleft())
            late = True
        if late:
            self.estimate.not_begun()

    def _silent_at(self, child: Child) -> float:
        """When an executor is killed that has been asked for jobs, and in which none runs whose
        deadlines would end it.

        Counted from the request, not from the assignment: all processes may have been suspended since.
        """
        if child.is_busy or child.phase is not Phase.READY:
            return inf
        asked = [leased.asked_back_at for leased in child.assigned]
        since = min((at for at in asked if at is not None), default=inf)
        since = max(since, *(slot.done_at for slot in child.slots))
        if self._shutdown.kill_at is None:
            return since + _UNANSWERED
        return min(since + _UNANSWERED, max(since + _UNANSWERED_AT_END, self._shutdown.kill_at))

    def recall_all(self) -> None:
        """The worker stops: release what waits, ask for all that has not begun."""
        while self.waiting:
            self._release(self.waiting.popleft())
        for slot in self._pool.slots():
            self._ask_back(slot.child, slot.queued)

    def recall_one(self, leased: LeasedJob) -> bool:
        """Ask for this job back, if it has not begun; return whether it was still waiting here."""
        if leased in self.waiting:
            self.waiting.remove(leased)
            return True
        for slot in self._pool.slots():
            if leased in slot.queued:
                self._ask_back(slot.child, deque([leased]))
        return False

    def _ask_back(self, child: Child, queued: deque[LeasedJob]) -> None:
        unasked = [leased for leased in queued if leased.asked_back_at is None]
        for leased in unasked:
            leased.asked_back_at = clock.boottime()
            self._pool.send(child, messages.give_back(leased.lease))
        if unasked:
            self._pool.wake(child)


def _may_be_asked(slot: Slot) -> bool:
    return any(leased.asked_back_at is None for leased in slot.queued)


def _stuck_at(slot: Slot) -> float:
    """When the jobs that are queued here are to be asked for: the executor is stopped or, if it is
    shared, another coroutine holds up the event loop; or they wait behind a job that runs for long.
    """
    if slot.running is not None:
        return (slot.running.began_at or 0.0) + _STUCK_BEHIND
    return max(slot.queued[0].given_at, slot.done_at) + _UNSTARTED


def _has_room(
    queued: deque[LeasedJob], held: int, leased: LeasedJob, depth: Callable[[str], int]
) -> bool:
    """Whether this job may be queued too, behind jobs with ``held`` bytes of text."""
    job = leased.job
    if job.max_attempts <= 1 or partition.is_watched(leased) or len(queued) >= depth(job.type):
        return False
    if not queued:
        return True
    # The type of the last job passed the same rule, but may have become slower since.
    return held + leased.text_bytes <= QUEUED_BYTES and len(queued) < depth(queued[-1].job.type)


def _run_frame(running: LeasedJob) -> str:
    """Make the frame that gives a job to an executor."""
    job = running.job
    assert job.started_at is not None
    soft = _soft(job.started_at, job.timeout_ms + job.extended_ms)
    if job.total_timeout_ms is not None:
        within = soft_deadline(job)
        assert within is not None
        soft = within.isoformat()
    return messages.run(job, running.lease, deadline=soft)


@lru_cache(maxsize=256)
def _soft(started_at: datetime, ms: int) -> str:
    """The time of the soft stop; cached, since most jobs of one claim share it."""
    return after(started_at, ms).isoformat()
