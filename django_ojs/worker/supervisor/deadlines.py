"""Enforce the deadlines of running jobs: soft stop at the timeout, hard stop after the grace period.

The total timeout settles the outcome at once; the handler gets its soft stop then, and has the grace
period for clean-up. No handler gets two soft stops. Before acting, the enforcer reads the rows again
(one statement for all jobs that are due), so that extensions made elsewhere count and handlers see the
true reason. If the database does not answer, it acts on what it knows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import after, total_deadline
from django_ojs.services import attempts
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.child import Child, Phase
from django_ojs.worker.prefork.leased import Deadlines, LeasedJob, LeaseTable
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.supervisor import partition
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads.database import DatabaseThread

logger = logging.getLogger("django_ojs.worker")

SILENT = ("cancelled", "stalled", "lost")
"""Reasons to stop a job without a report if its lease is lost: the server has ended the attempt."""
_GRACED = (*SILENT, "total_timeout")
"""Reasons after which the grace period starts with the soft stop."""
_PATIENCE = 0.2


def deadlines_of(
    job: JobRow, on_boottime: Callable[[datetime], float], stops_on_partition: bool
) -> Deadlines:
    """Compute the deadlines of a job that was just claimed."""
    assert job.started_at is not None and job.deadline_at is not None
    row = on_boottime(job.deadline_at)
    total = total_deadline(job)
    heard_at = on_boottime(job.started_at) if stops_on_partition else None
    if total is None:
        return Deadlines(row, row, heard_at=heard_at)
    whole = job.timeout_ms + job.grace_period_ms + job.extended_ms
    ends = on_boottime(after(job.started_at, whole))
    return Deadlines(row, ends, on_boottime(total), heard_at=heard_at)


class DeadlineEnforcer:
    """Stops jobs softly and hard. Runs in the supervisor's main thread."""

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
        self.soft_stops: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()

    def moments(self) -> list[float]:
        """The times at which something is due (boottime)."""
        moments: list[float] = []
        for slot in self._pool.slots():
            leased = slot.running
            if leased is None or slot.child.phase is not Phase.READY:
                continue
            if leased.deadlines.act_at is not None:
                moments.append(leased.deadlines.act_at)
            else:
                moments += [self._kill_at(leased), self._soft_at(leased)]
        return [moment for moment in moments if moment < inf]

    def tick(self, now: float) -> None:
        """Act on what is due."""
        for slot in list(self._pool.slots()):
            child, leased = slot.child, slot.running
            if leased is not None and child.phase is Phase.READY and partition.kill_at(leased) <= now:
                # There is nothing to ask first, and no time for it.
                self._kill(child, leased, now)
        self._act(now, lambda act_at: act_at <= now)
        due = [
            slot.running
            for slot in self._pool.slots()
            if slot.running is not None
            and slot.child.phase is Phase.READY
            and slot.running.deadlines.act_at is None
            and self._is_due(slot.running, now)
        ]
        if due:
            self._check(due, now)

    def begun(self, leased: LeasedJob, now: float) -> None:
        """The handler has started: its execution timeout counts from now, up to the row's deadline."""
        limit = (leased.job.timeout_ms + leased.job.extended_ms) / 1000
        leased.deadlines.soft_at = min(now + limit, leased.deadlines.ends)

    def renewed(
        self, sent: Iterable[str], found: Sequence[RenewedLease], reasons: Mapping[UUID, str] = {}
    ) -> None:
        """Apply what the database answered about leases: new deadlines for those ``found``; the others
        are lost.
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

    def heard(self, sent: Iterable[str], found: Sequence[RenewedLease], at: float) -> None:
        """The heartbeat that was sent at this time has arrived for the leases ``found``."""
        self.renewed(sent, found)
        for lease in found:
            leased = self._leases.get(lease.lease_id.hex)
            if leased is None or leased.deadlines.heard_at is None:
                continue
            leased.deadlines.heard_at = max(leased.deadlines.heard_at, at)
            for child in self._pool:
                if leased in (assigned := child.assigned):
                    self._pool.limit(child, partition.watched(assigned))

    def ended(self, leased: LeasedJob) -> None:
        """Its executor has ended: note it if its monitor has killed it, since no heartbeat arrived."""
        now = clock.boottime()
        if leased.deadlines.kill_reason is None and partition.kill_at(leased) <= now:
            self._note_kill(leased, "lost")

    def apply_deadline(self, leased: LeasedJob, deadline_at: datetime | None, extended_ms: int) -> None:
        """Apply the deadline of the row: the handler's own deadlines move by as much as was extended.

        After an outage the server waits longer for reports (decision T9), but jobs run no longer.
        """
        known = leased.job
        assert known.deadline_at is not None
        assert deadline_at is not None
        # An earlier deadline means that the server's clock was set; the clock here has not moved.
        leased.deadlines.row += max(0.0, (deadline_at - known.deadline_at) / timedelta(seconds=1))
        longer = (extended_ms - known.extended_ms) / 1000
        leased.deadlines.ends += longer
        if leased.deadlines.soft_at is not None:
            leased.deadlines.soft_at = min(leased.deadlines.soft_at + longer, leased.deadlines.ends)
        leased.job = known._replace(deadline_at=deadline_at, extended_ms=extended_ms)

    def request_stop(self, child: Child, leased: LeasedJob, reason: str) -> None:
        """Ask a handler to stop, or kill it if it has no grace period."""
        leased.deadlines.stop_reason, leased.deadlines.stopped_at = reason, clock.boottime()
        self.soft_stops[reason] += 1
        level = logging.WARNING if reason in ("stalled", "lost") else logging.INFO
        _log(level, "soft stop of %s %s: %s", leased, reason)
        if leased.job.grace_period_ms == 0:
            self._kill(child, leased, leased.deadlines.stopped_at)
            return
        self._pool.send(child, messages.cancel(leased.lease, reason))
        self._pool.wake(child)

    def _soft_at(self, leased: LeasedJob) -> float:
        """The time of the soft stop; infinity once it has been sent."""
        if leased.deadlines.stop_reason is not None or leased.deadlines.soft_at is None:
            return inf
        if leased.lost:
            return 0.0
        return min(
            leased.deadlines.soft_at,
            leased.deadlines.total_at,
            partition.soft_at(leased),
            self._shutdown_signal_at(leased),
        )

    def _shutdown_signal_at(self, leased: LeasedJob) -> float:
        if self._shutdown.kill_at is None:
            return inf
        return self._shutdown.kill_at - min(leased.job.grace_period_ms / 1000, 10.0)

    def _reason(self, leased: LeasedJob, now: float) -> str:
        """The reason for a soft stop ``now``; the total timeout goes first (decision T8)."""
        assert leased.deadlines.soft_at is not None
        if leased.lost:
            return leased.why_lost
        if leased.deadlines.total_at <= min(now, leased.deadlines.soft_at):
            return "total_timeout"
        if leased.deadlines.soft_at <= now:
            return "timeout"
        return "lost" if partition.soft_at(leased) <= now else "shutdown"

    def _kill_at(self, leased: LeasedJob) -> float:
        moments = [leased.deadlines.ends, partition.kill_at(leased)]
        if self._shutdown.kill_at is not None:
            moments.append(self._shutdown.kill_at)
        if leased.deadlines.stop_reason in _GRACED and leased.deadlines.stopped_at is not None:
            moments.append(leased.deadlines.stopped_at + leased.job.grace_period_ms / 1000)
        return min(moments)

    def _is_due(self, leased: LeasedJob, now: float) -> bool:
        return min(self._kill_at(leased), self._soft_at(leased)) <= now

    def _check(self, due: Sequence[LeasedJob], now: float) -> None:
        """Read the rows again before acting: a job may have been extended, or its lease lost."""
        held = [leased.held for leased in due]
        at = now + _PATIENCE
        for leased in due:
            leased.deadlines.act_at = at

        def then(seen: attempts.LeaseCheck | None, error: Exception | None) -> None:
            if seen is not None:
                for leased in due:
                    self._follow_total(leased, seen.now)
                self.renewed([lease.lease_id.hex for lease in held], seen.kept, seen.reasons)
            # Of another check, the rows may not have been read yet.
            self._act(clock.boottime(), lambda act_at: act_at == at)

        self._database.call(lambda: attempts.check(held, using=self._using), then)

    def _follow_total(self, leased: LeasedJob, database_now: datetime) -> None:
        """Convert the total timeout again: the database's clock may have been set."""
        total = total_deadline(leased.job)
        if total is not None:
            leased.deadlines.total_at = clock.boottime() + (total - database_now) / timedelta(seconds=1)

    def _act(self, now: float, is_concerned: Callable[[float], bool]) -> None:
        """Stop what is still due by the deadlines as they are known now.

        Of the jobs that are being checked only those whose ``act_at`` is concerned.
        """
        for slot in list(self._pool.slots()):
            child, leased = slot.child, slot.running
            if leased is None:
                continue
            act_at = leased.deadlines.act_at
            if act_at is None or not is_concerned(act_at):
                continue
            leased.deadlines.act_at = None
            if child.phase is not Phase.READY:
                continue
            if self._kill_at(leased) <= now:
                self._kill(child, leased, now)
            elif self._soft_at(leased) <= now:
                self.request_stop(child, leased, self._reason(leased, now))

    def _kill(self, child: Child, leased: LeasedJob, now: float) -> None:
        if leased.deadlines.kill_reason is None:
            self._note_kill(leased, self._kill_reason(leased, now))
        self._pool.kill(child)

    def _note_kill(self, leased: LeasedJob, reason: str) -> None:
        leased.deadlines.kill_reason = reason
        self.kills[reason] += 1
        _log(logging.INFO, "hard stop of %s %s: %s", leased, reason)

    def _kill_reason(self, leased: LeasedJob, now: float) -> str:
        known, kill_at = leased.deadlines, self._shutdown.kill_at
        if leased.lost or known.stop_reason in _GRACED:
            return known.stop_reason or leased.why_lost
        if known.stop_reason is None and partition.kill_at(leased) <= now:
            return "lost"
        timed_out = known.ends <= now or known.stop_reason == "timeout"
        stopping = kill_at is not None and kill_at < known.ends
        return "timeout" if timed_out and not stopping else "shutdown"


def _log(level: int, text: str, leased: LeasedJob, reason: str) -> None:
    job_id = str(leased.job_id)
    logger.log(level, text, leased.job.type, job_id, reason, extra={"job_id": job_id})
