"""Which executor gets which claimed job: idle ones first, then some wait behind running jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import cache, lru_cache
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

_STUCK_BEHIND = 0.1
_UNSTARTED = 0.15
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
            return bool(slot.queued)
        return now - (slot.running.began_at or 0) <= _STUCK_BEHIND

    def _give(self, slot: Slot, running: LeasedJob, now: float) -> None:
        slot.queued.append(running)
        running.given_at = now
        if partition.is_watched(running):
            self._pool.limit(slot.child, partition.watched(slot.child.assigned), wait=True)
        handler = registry.handler_of(running.job.type)
        mode = None if handler is None else handler.heartbeat
        running.manual = (mode or self._heartbeat) == "manual"
        running.asked_back = False
        self._pool.send(slot.child, _run_frame(running))

    # Jobs that cannot begin soon.

    def moments(self) -> list[float]:
        """The times at which :meth:`recall` has something to do (boottime)."""
        moments = [self.waiting[0].received_at + _UNSTARTED] if self.waiting else []
        for slot in self._pool.slots():
            if slot.queued and any(not job.asked_back for job in slot.queued):
                if slot.running is not None:
                    moments.append((slot.running.began_at or 0) + _STUCK_BEHIND)
                elif slot.child.is_shared:
                    moments.append(slot.queued[0].given_at + _UNSTARTED)
        return moments

    def recall(self, now: float) -> None:
        """Ask for jobs back that wait behind a long one; release jobs that cannot start soon."""
        for slot in self._pool.slots():
            if not slot.queued:
                continue
            running = slot.running
            if running is not None:
                if now - (running.began_at or now) > _STUCK_BEHIND:
                    self._ask_back(slot.child, slot.queued)
            elif slot.child.is_shared and now - slot.queued[0].given_at >= _UNSTARTED:
                # Another coroutine holds up the event loop.
                self._ask_back(slot.child, slot.queued)
        late = False
        while self.waiting and now - self.waiting[0].received_at > _UNSTARTED:
            self._release(self.waiting.popleft())
            late = True
        if late:
            self.estimate.not_begun()

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
        asked = False
        for job in queued:
            if not job.asked_back:
                job.asked_back = asked = True
                self._pool.send(child, messages.give_back(job.lease))
        if asked:
            self._pool.wake(child)


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
