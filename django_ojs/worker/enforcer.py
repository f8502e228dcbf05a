"""The clocks of running jobs: told to stop at their timeout, killed at the end of the grace period.

Before it acts, the enforcer asks the row once more (one statement for all that are due), so that an
extension made elsewhere is honoured. Without a database it acts on the last deadline known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from django_ojs import clock
from django_ojs.services import heartbeat
from django_ojs.store.leases import Kept
from django_ojs.worker.desk import Desk
from django_ojs.worker.pool import Child, Phase, Pool, Running

SILENT = ("cancelled", "lost")
"""Reasons to stop a job that nobody is to be told about: the server has ended the attempt."""
_PATIENCE = 0.2


class Enforcer:
    """Signals and kills. Runs in the runner's main thread."""

    def __init__(
        self,
        pool: Pool,
        desk: Desk,
        on_kept: Callable[[Iterable[str], Sequence[Kept]], None],
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
            moments.append(self._kill_at(running))
            if running.told is None and running.soft_at is not None:
                moments.append(self._soft_at(running))
        return moments

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

    def follow(self, running: Running, deadline_at: datetime | None, extended_ms: int) -> None:
        """The row has another deadline: the handler's own clocks move as far as it was extended.

        After an outage the server waits longer, for reports (decision T9); nobody runs longer for it.
        """
        known = running.job
        assert known.deadline_at is not None
        assert deadline_at is not None
        running.deadline += (deadline_at - known.deadline_at) / timedelta(seconds=1)
        longer = (extended_ms - known.extended_ms) / 1000
        running.ends = min(running.ends + longer, running.deadline)
        if running.soft_at is not None:
            running.soft_at = min(running.soft_at + longer, running.ends)
        running.job = known._replace(deadline_at=deadline_at, extended_ms=extended_ms)

    def tell(self, child: Child, running: Running, reason: str) -> None:
        """Tell a handler to stop, or kill it where it has no grace period."""
        running.told, running.told_at = reason, clock.boottime()
        if running.job.grace_period_ms == 0:
            self._kill(child, running, running.told_at)
            return
        self._pool.send(child, {"op": "cancel", "lease": running.lease, "reason": reason})
        self._pool.ring(child)

    def _soft_at(self, running: Running) -> float:
        assert running.soft_at is not None
        if self.shutdown_at is None:
            return running.soft_at
        lead = min(running.job.grace_period_ms / 1000, 10.0)
        return min(running.soft_at, self.shutdown_at - lead)

    def _kill_at(self, running: Running) -> float:
        moments = [running.ends]
        if self.shutdown_at is not None:
            moments.append(self.shutdown_at)
        if running.told in SILENT and running.told_at is not None:
            moments.append(running.told_at + running.job.grace_period_ms / 1000)
        return min(moments)

    def _is_due(self, running: Running, now: float) -> bool:
        soft = running.told is None and running.soft_at is not None
        return self._kill_at(running) <= now or (soft and self._soft_at(running) <= now)

    def _check(self, due: Sequence[Running], now: float) -> None:
        """Ask the row once more before acting: somebody may have extended it, or taken it away."""
        held = [running.held for running in due]
        for running in due:
            running.checking = True
        if self._until is None:
            self._until = now + _PATIENCE

        def then(kept: list[Kept] | None, error: Exception | None) -> None:
            if kept is not None:
                self._on_kept([lease.lease_id.hex for lease in held], kept)
            self._act(clock.boottime())

        self._desk.call(lambda: heartbeat.holds(held, using=self._using), then)

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
            elif running.told is None and running.soft_at is not None:
                if running.soft_at <= now:
                    self.tell(child, running, "timeout")
                elif self._soft_at(running) <= now:
                    self.tell(child, running, "shutdown")

    def _kill(self, child: Child, running: Running, now: float) -> None:
        if running.kill_reason is None:
            if running.lost or running.told in SILENT:
                running.kill_reason = running.told or "lost"
            elif running.ends <= now or running.told == "timeout":
                stopping = self.shutdown_at is not None and self.shutdown_at < running.ends
                running.kill_reason = "shutdown" if stopping else "timeout"
            else:
                running.kill_reason = "shutdown"
        self._pool.kill(child)
