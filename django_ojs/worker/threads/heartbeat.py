"""The heartbeat thread: started first, closed last, with its own connection (decision T4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError, connections

from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease, RenewedLease
from django_ojs.services import leases, reaper, workers
from django_ojs.services.workers import WorkerInfo
from django_ojs.store.contention import is_held
from django_ojs.store.sessions import close_broken
from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.threads.base import ConnectedThread

logger = logging.getLogger("django_ojs.worker")

LONGEST = 5.0
_SHORTEST = 0.05
_AGAIN = 1.0
"""Seconds from the start of a failed beat to the next one."""
_SLACK = 0.5


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """The state of the worker at one moment."""

    phase: str
    held: Sequence[LeasedJob]
    held_up: Sequence[JobRow] = ()
    """Jobs that have ended, but whose outcome is not written yet."""
    processes: Sequence[int] = ()
    """The ids of its processes that run Python: the supervisor and the executors."""


class HeartbeatThread(ConnectedThread):
    """Renews the lease of every living job, every 5 s or a quarter of the shortest timeout.

    ``on_beat`` gets the leases sent, those that hold, and when (boottime) they were renewed: a moment
    before that. ``None``: they were only looked at.
    """

    def __init__(
        self,
        info: WorkerInfo,
        report: Callable[[], WorkerSnapshot],
        on_beat: Callable[[list[str], list[RenewedLease], float | None], None],
        on_directive: Callable[[str | None], None],
        using: str,
    ) -> None:
        super().__init__("ojs-heartbeat", using)
        self._info = info
        self._report = report
        self._on_beat = on_beat
        self._on_directive = on_directive
        self._wake = threading.Event()
        self._closing = False
        self._worker_due = 0.0
        self._asked = False
        """Whether the worker is to be reported by the next beat, due or not."""
        self._interval = LONGEST
        self._trying_since: float | None = None
        self._vouched_at: dict[str, float] = {}
        self.failures = 0
        self.stop_reason = "error"
        """Why the worker ends, for its event; set when it ends in order."""

    def silent_for(self, now: float) -> float:
        """Seconds for which beats have failed, or the current one has not returned."""
        since = self._trying_since
        return 0.0 if since is None else max(0.0, now - since)

    def hurry(self, heartbeat_timeout_ms: int) -> None:
        """A job with this heartbeat timeout was claimed: beat soon enough for it."""
        if heartbeat_timeout_ms / 4000 < self._interval:
            self._wake.set()

    def now(self) -> None:
        """Beat at once: a lease may be lost, or a directive may be waiting."""
        self._asked = True
        self._wake.set()

    def close(self) -> None:
        """Deregister the worker, then end."""
        self._closing = True
        self._wake.set()

    def work(self) -> None:
        """Beat until closed."""
        while not self._closing:
            self._wake.wait(self.beat())
            self._wake.clear()
        self._deregister()

    def beat(self) -> float:
        """Beat once; return the seconds until the next beat."""
        now = clock.boottime()
        if self._beat(now):
            # Counted from its beginning, which is the time that it wrote: one that waited is old.
            return max(_SHORTEST, now + self._interval - clock.boottime())
        self.failures += 1
        # If connecting took long, retry at once: the reaper may have a connection already.
        return max(_SHORTEST, min(self._interval, now + _AGAIN - clock.boottime()))

    def _beat(self, now: float) -> bool:
        """Send what is due; return False if that failed."""
        try:
            asked, self._asked = self._asked, False
            report = self._report()
            jobs = [*(running.job for running in report.held), *report.held_up]
            shortest = min((job.heartbeat_timeout_ms for job in jobs), default=1 << 30)
            self._interval = max(_SHORTEST, min(LONGEST, shortest / 4000))
            alive: list[LeasedJob] = []
            vouched_at: dict[str, float] = {}
            silent: list[LeasedJob] = []
            for running in report.held:
                # Read once: a sign of life during the write counts for the next beat.
                seen_at = running.seen_at
                (
                    alive
                    if _shows_life(running, seen_at, self._vouched_at.get(running.lease, 0.0), now)
                    else silent
                ).append(running)
                vouched_at[running.lease] = seen_at
            # After a failure, always send something, so that recovery is observable.
            due = asked or now >= self._worker_due or self._trying_since is not None
            vouched = [running.held for running in alive]
            vouched += [Lease(job.id, job.lease_id) for job in report.held_up if job.lease_id]
            if (vouched or due) and self._trying_since is None:
                self._trying_since = now
            renewed: list[RenewedLease] = []
            if vouched:
                renewed = kept = leases.beat(vouched, using=self._using)
                self._on_beat([running.lease for running in alive], kept, now)
            # Only now: a sign of life that a failed beat has not passed on counts for the next one.
            self._vouched_at = vouched_at
            if silent:
                # Not renewed, but to be stopped once their lease is lost.
                held = [running.held for running in silent]
                kept = leases.holds(held, using=self._using)
                self._on_beat([running.lease for running in silent], kept, None)
            if due:
                memory = sum(map(linux.rss_bytes, report.processes))
                directive = workers.report(
                    self._info,
                    phase=report.phase,
                    running=len(report.held),
                    rss_bytes=memory or None,
                    using=self._using,
                )
                self._worker_due = now + LONGEST
                self._on_directive(directive)
            self._trying_since = None
            leases.announce(renewed, using=self._using)
            return True
        except (DatabaseError, InterfaceError, OSError) as error:
            logger.warning("a heartbeat failed: %s", error)
            if not is_held(error):
                reaper.note_outage()
                close_broken(self._using)
        except Exception:
            # Go on after any error: without beats every job here would stall.
            logger.exception("a heartbeat failed")
            connections[self._using].close()
        return False

    def _deregister(self) -> None:
        try:
            workers.deregister(
                self._info.id,
                None,
                incarnation=self._info.incarnation,
                reason=self.stop_reason,
                using=self._using,
            )
        except (DatabaseError, InterfaceError, OSError) as error:
            logger.warning("the worker could not be deregistered: %s", error)


def _shows_life(running: LeasedJob, seen_at: float, vouched_at: float, now: float) -> bool:
    """Whether the lease of this job may be renewed.

    Before it has begun the supervisor's own life is enough. Afterwards a liveness byte of its executor
    must be fresh or, in manual mode, the handler must have sent something since the last beat that
    arrived.
    """
    if running.began_at is None:
        return True
    if running.manual:
        return seen_at > vouched_at
    period = min(1.0, running.job.heartbeat_timeout_ms / 4000)
    return now - seen_at <= 2 * period + _SLACK
