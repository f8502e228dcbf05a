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
from django_ojs.domain.job import JobRecord
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import after, total_deadline
from django_ojs.services import attempts
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.leased import Deadlines, LeasedJob, LeaseTable
from django_ojs.worker.prefork.pool import Child, Phase, Pool
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads.database import DatabaseThread

logger = logging.getLogger("django_ojs.worker")

SILENT = ("cancelled", "stalled", "lost")
"""Reasons to stop a job that nobody is to be told about: the server has ended the attempt."""
_GRACED = (*SILENT, "total_timeout")
"""Reasons from which the grace period counts."""
_PATIENCE = 0.2


def deadlines_of(job: JobRecord, on_boottime: Callable[[datetime], float]) -> Deadlines:
    """The deadlines of a job that was just claimed."""
    assert job.started_at is not None and job.deadline_at is not None
    row = on_boottime(job.deadline_at)
    total = total_deadline(job)
    if total is None:
        return Deadlines(row, row)
    whole = job.timeout_ms + job.grace_period_ms + job.extended_ms
    return Deadlines(row, on_boottime(after(job.started_at, whole)), on_boottime(total))


class DeadlineEnforcer:
    """Signals and kills. Runs in the runner's main thread."""

    def __init__(
        self,
        pool: Pool,
        database: DatabaseThread,
        leases: LeaseTable,
        shutdown: Shutdown,
        on_lost: Callable[[LeasedJob], None],
        *,
        using: str,
    ) -> None:
        self._pool = pool
        self._database = database
        self._leases = leases
        self._shutdown = shutdown
        self._on_lost = on_lost
        self._using = using
        self._until: float | None = None

    def moments(self) -> list[float]:
        """When something here is due (boottime)."""
        moments = [] if self._until is None else [self._until]
        for child in self._pool:
            leased = child.running
            if leased is None or child.phase is not Phase.READY or leased.deadlines.checking:
                continue
            moments += [self._kill_at(leased), self._soft_at(leased)]
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
            and not child.running.deadlines.checking
            and self._is_due(child.running, now)
        ]
        if due:
            self._check(due, now)

    def begun(self, leased: LeasedJob, now: float) -> None:
        """The handler has started: its execution timeout counts from now, within the row's."""
        limit = (leased.job.timeout_ms + leased.job.extended_ms) / 1000
        leased.deadlines.soft_at = min(now + limit, leased.deadlines.ends)

    def renewed(
        self, sent: Iterable[str], found: Sequence[RenewedLease], reasons: Mapping[UUID, str] = {}
    ) -> None:
        """The database's answer about these leases: deadlines of those that it found; the others are
        lost, for a reason that may be known.
        """
        by_lease = {lease.lease_id.hex: lease for lease in found}
        for lease in sent:
            leased = self._leases.get(lease)
            if leased is None:
                continue
            if lease in by_lease:
                self.apply_deadline(leased, by_lease[lease].deadline_at, by_lease[lease].extended_ms)
            else:
                leased.why_lost = reasons.get(UUID(lease), leased.why_lost)
                if not leased.lost:
                    leased.lost = True
                    self._on_lost(leased)

    def apply_deadline(self, leased: LeasedJob, deadline_at: datetime | None, extended_ms: int) -> None:
        """The row has another deadline: the handler's own clocks move as far as it was extended.

        After an outage the server waits longer, for reports (decision T9); nobody runs longer for it.
        """
        known = leased.job
        assert known.deadline_at is not None
        assert deadline_at is not None
        # Set back by the server's clock only: by the clock of this process nothing has moved.
        leased.deadlines.row += max(0.0, (deadline_at - known.deadline_at) / timedelta(seconds=1))
        longer = (extended_ms - known.extended_ms) / 1000
        leased.deadlines.ends += longer
        if leased.deadlines.soft_at is not None:
            leased.deadlines.soft_at = min(leased.deadlines.soft_at + longer, leased.deadlines.ends)
        leased.job = known._replace(deadline_at=deadline_at, extended_ms=extended_ms)

    def request_stop(self, child: Child, leased: LeasedJob, reason: str) -> None:
        """Tell a handler to stop, or kill it where it has no grace period."""
        leased.deadlines.stop_reason, leased.deadlines.stopped_at = reason, clock.boottime()
        level = logging.WARNING if reason in ("stalled", "lost") else logging.INFO
        logger.log(level, "%s %s is told to stop: %s", leased.job.type, leased.job_id, reason)
        if leased.job.grace_period_ms == 0:
            self._kill(child, leased, leased.deadlines.stopped_at)
            return
        self._pool.send(child, messages.cancel(leased.lease, reason))
        self._pool.wake(child)

    def _soft_at(self, leased: LeasedJob) -> float:
        """When it is to be told to stop; never, once it has been told."""
        if leased.deadlines.stop_reason is not None or leased.deadlines.soft_at is None:
            return inf
        if leased.lost:
            return 0.0
        return min(
            leased.deadlines.soft_at, leased.deadlines.total_at, self._shutdown_signal_at(leased)
        )

    def _shutdown_signal_at(self, leased: LeasedJob) -> float:
        if self._shutdown.kill_at is None:
            return inf
        return self._shutdown.kill_at - min(leased.job.grace_period_ms / 1000, 10.0)

    def _reason(self, leased: LeasedJob, now: float) -> str:
        """Why it is told to stop ``now``; of two clocks the total timeout goes first (decision T8)."""
        assert leased.deadlines.soft_at is not None
        if leased.lost:
            return leased.why_lost
        if leased.deadlines.total_at <= min(now, leased.deadlines.soft_at):
            return "total_timeout"
        return "timeout" if leased.deadlines.soft_at <= now else "shutdown"

    def _kill_at(self, leased: LeasedJob) -> float:
        moments = [leased.deadlines.ends]
        if self._shutdown.kill_at is not None:
            moments.append(self._shutdown.kill_at)
        if leased.deadlines.stop_reason in _GRACED and leased.deadlines.stopped_at is not None:
            moments.append(leased.deadlines.stopped_at + leased.job.grace_period_ms / 1000)
        return min(moments)

    def _is_due(self, leased: LeasedJob, now: float) -> bool:
        return min(self._kill_at(leased), self._soft_at(leased)) <= now

    def _check(self, due: Sequence[LeasedJob], now: float) -> None:
        """Ask the row once more before acting: somebody may have extended it, or taken it away."""
        held = [leased.held for leased in due]
        for leased in due:
            leased.deadlines.checking = True
        if self._until is None:
            self._until = now + _PATIENCE

        def then(seen: attempts.Look | None, error: Exception | None) -> None:
            if seen is not None:
                for leased in due:
                    self._follow_total(leased, seen.now)
                self.renewed([lease.lease_id.hex for lease in held], seen.kept, seen.reasons)
            self._act(clock.boottime())

        self._database.call(lambda: attempts.look(held, using=self._using), then)

    def _follow_total(self, leased: LeasedJob, database_now: datetime) -> None:
        """The total timeout is of the database's clock, which may have been set."""
        total = total_deadline(leased.job)
        if total is not None:
            leased.deadlines.total_at = clock.boottime() + (total - database_now) / timedelta(seconds=1)

    def _act(self, now: float) -> None:
        """Signal and kill what is still due with the deadlines as they are known now."""
        self._until = None
        for child in list(self._pool):
            leased = child.running
            if leased is None or not leased.deadlines.checking:
                continue
            leased.deadlines.checking = False
            if child.phase is not Phase.READY:
                continue
            if self._kill_at(leased) <= now:
                self._kill(child, leased, now)
            elif self._soft_at(leased) <= now:
                self.request_stop(child, leased, self._reason(leased, now))

    def _kill(self, child: Child, leased: LeasedJob, now: float) -> None:
        if leased.deadlines.kill_reason is None:
            leased.deadlines.kill_reason = reason = self._kill_reason(leased, now)
            logger.info("%s %s is killed: %s", leased.job.type, leased.job_id, reason)
        self._pool.kill(child)

    def _kill_reason(self, leased: LeasedJob, now: float) -> str:
        known, kill_at = leased.deadlines, self._shutdown.kill_at
        if leased.lost or known.stop_reason in _GRACED:
            return known.stop_reason or leased.why_lost
        timed_out = known.ends <= now or known.stop_reason == "timeout"
        stopping = kill_at is not None and kill_at < known.ends
        return "timeout" if timed_out and not stopping else "shutdown"
