"""The clocks of running jobs: told to stop at their timeout, killed at the end of the grace period.

The total timeout settles the outcome at once; its handler is told at that moment, and has its grace
period for clean-up. Nobody is told twice. Before it acts, the enforcer asks the row once more (one
statement for all that are due), so that an extension made elsewhere is honoured and the reason that
the handler sees is the true one. Without a database it acts on what is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import total_deadline
from django_ojs.services import attempts
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.prefork.pool import Child, Phase, Pool
from django_ojs.worker.threads.database import Desk

logger = logging.getLogger("django_ojs.worker")

SILENT = ("cancelled", "stalled", "lost")
"""Reasons to stop a job that nobody is to be told about: the server has ended the attempt."""
_GRACED = (*SILENT, "total_timeout")
"""Reasons from which the grace period counts."""
_PATIENCE = 0.2


class DeadlineEnforcer:
    """Signals and kills. Runs in the runner's main thread."""

    def __init__(
        self,
        pool: Pool,
        desk: Desk,
        on_kept: Callable[[Iterable[str], Sequence[RenewedLease], Mapping[UUID, str]], None],
        *,
        using: str,
    ) -> None:
        self._pool = pool
        self._desk = desk
        self._on_kept = on_kept
        self._using = using
        self._until: float | None = None
        self.shutdown_at: float | None = None
        """When everything that still runs is killed; ``None`` while the worker is not stopping."""

    def moments(self) -> list[float]:
        """When something here is due (boottime)."""
        moments = [] if self._until is None else [self._until]
        for child in self._pool:
            running = child.running
            if running is None or child.phase is not Phase.READY or running.checking:
                continue
            moments += [self._kill_at(running), self._soft_at(running)]
        return [moment for moment in moments if moment < inf]

    def tick(self, now: float) -> None:
        """Look after what is due."""
        if self._until is not None and now >= self._until:
            self._act(now)
        due = [
            child.running
            for child in self._pool
            if child.running is not None
            and child.phase is Phase.READY
            and not child.running.checking
            and self._is_due(child.running, now)
        ]
        if due:
            self._check(due, now)

    def follow(self, running: LeasedJob, deadline_at: datetime | None, extended_ms: int) -> None:
        """The row has another deadline: the handler's own clocks move as far as it was extended.

        After an outage the server waits longer, for reports (decision T9); nobody runs longer for it.
        """
        known = running.job
        assert known.deadline_at is not None
        assert deadline_at is not None
        # Set back by the server's clock only: by the clock of this process nothing has moved.
        running.deadline += max(0.0, (deadline_at - known.deadline_at) / timedelta(seconds=1))
        longer = (extended_ms - known.extended_ms) / 1000
        running.ends += longer
        if running.soft_at is not None:
            running.soft_at = min(running.soft_at + longer, running.ends)
        running.job = known._replace(deadline_at=deadline_at, extended_ms=extended_ms)

    def tell(self, child: Child, running: LeasedJob, reason: str) -> None:
        """Tell a handler to stop, or kill it where it has no grace period."""
        running.told, running.told_at = reason, clock.boottime()
        level = logging.WARNING if reason in ("stalled", "lost") else logging.INFO
        logger.log(level, "%s %s is told to stop: %s", running.job.type, running.job_id, reason)
        if running.job.grace_period_ms == 0:
            self._kill(child, running, running.told_at)
            return
        self._pool.send(child, {"op": "cancel", "lease": running.lease, "reason": reason})
        self._pool.wake(child)

    def _soft_at(self, running: LeasedJob) -> float:
        """When it is to be told to stop; never, once it has been told."""
        if running.told is not None or running.soft_at is None:
            return inf
        if running.lost:
            return 0.0
        return min(running.soft_at, running.total_at, self._shutdown_signal_at(running))

    def _shutdown_signal_at(self, running: LeasedJob) -> float:
        if self.shutdown_at is None:
            return inf
        return self.shutdown_at - min(running.job.grace_period_ms / 1000, 10.0)

    def _reason(self, running: LeasedJob, now: float) -> str:
        """Why it is told to stop ``now``; of two clocks the total timeout goes first (decision T8)."""
        assert running.soft_at is not None
        if running.lost:
            return running.why_lost
        if running.total_at <= min(now, running.soft_at):
            return "total_timeout"
        return "timeout" if running.soft_at <= now else "shutdown"

    def _kill_at(self, running: LeasedJob) -> float:
        moments = [running.ends]
        if self.shutdown_at is not None:
            moments.append(self.shutdown_at)
        if running.told in _GRACED and running.told_at is not None:
            moments.append(running.told_at + running.job.grace_period_ms / 1000)
        return min(moments)

    def _is_due(self, running: LeasedJob, now: float) -> bool:
        return min(self._kill_at(running), self._soft_at(running)) <= now

    def _check(self, due: Sequence[LeasedJob], now: float) -> None:
        """Ask the row once more before acting: somebody may have extended it, or taken it away."""
        held = [running.held for running in due]
        for running in due:
            running.checking = True
        if self._until is None:
            self._until = now + _PATIENCE

        def then(seen: attempts.Look | None, error: Exception | None) -> None:
            if seen is not None:
                for running in due:
                    self._follow_total(running, seen.now)
                self._on_kept([lease.lease_id.hex for lease in held], seen.kept, seen.reasons)
            self._act(clock.boottime())

        self._desk.call(lambda: attempts.look(held, using=self._using), then)

    def _follow_total(self, running: LeasedJob, database_now: datetime) -> None:
        """The total timeout is of the database's clock, which may have been set."""
        total = total_deadline(running.job)
        if total is not None:
            running.total_at = clock.boottime() + (total - database_now) / timedelta(seconds=1)

    def _act(self, now: float) -> None:
        """Signal and kill what is still due with the deadlines as they are known now."""
        self._until = None
        for child in list(self._pool):
            running = child.running
            if running is None or not running.checking:
                continue
            running.checking = False
            if child.phase is not Phase.READY:
                continue
            if self._kill_at(running) <= now:
                self._kill(child, running, now)
            elif self._soft_at(running) <= now:
                self.tell(child, running, self._reason(running, now))

    def _kill(self, child: Child, running: LeasedJob, now: float) -> None:
        if running.kill_reason is None:
            if running.lost or running.told in _GRACED:
                running.kill_reason = running.told or running.why_lost
            elif running.ends <= now or running.told == "timeout":
                stopping = self.shutdown_at is not None and self.shutdown_at < running.ends
                running.kill_reason = "shutdown" if stopping else "timeout"
            else:
                running.kill_reason = "shutdown"
            logger.info("%s %s is killed: %s", running.job.type, running.job_id, running.kill_reason)
        self._pool.kill(child)
