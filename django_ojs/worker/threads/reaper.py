"""The reaper thread: enforces deadlines on its own connection, behind no other work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from django.db import Error

from django_ojs import clock
from django_ojs.services import reaper
from django_ojs.services.reap import ReapResult
from django_ojs.store.batches import is_outage
from django_ojs.store.contention import is_held
from django_ojs.store.due_times import DueProbe, NextDue
from django_ojs.store.sessions import close_broken
from django_ojs.worker.threads.base import ConnectedThread

logger = logging.getLogger("django_ojs.worker")

LOOK_EVERY = 0.1
SLOWEST_LOOK = 0.5
_WATCHFUL = 0.2
"""The longest pause while anything has a deadline: what stalls for longer is noticed (ADR 15)."""
LAG = 0.2
_IDLE_PER_PAUSE = 20
"""So many times as long as the pause between two looks, nothing has changed before it."""
_RESTS = 10
"""So many times as long as a look took is the pause after it, within the slowest."""
_BEATS_EVERY = 1.0
_AGAIN = 1.0


class ReaperThread(ConnectedThread):
    """Asks what falls due next: a deadline, which it enforces, or a scheduled time, for which it calls
    ``on_scheduled``. It acts on time on what is known to fall due before the next look.

    It looks every ``look_every`` seconds while something changes or a look was called for
    (:meth:`hurry`), more and more rarely afterwards: down to five times a second while anything has a
    deadline, and to once in ``slowest_look`` while nothing has. With many workers on a busy server
    looks take long; the pauses between them are then ten times as long, within the same limits.

    While ``promoting()`` holds it does not ask for scheduled jobs: MariaDB would read past all those
    that were promoted lately, which takes seconds.

    Deadlines are enforced ``lag`` seconds late, because a worker that kills a job on time reports it
    itself. ``on_reaped`` gets the result of each pass, which ends at most ``limit`` jobs; ``on_failed``
    gets the error of a look that failed.
    """

    def __init__(
        self,
        on_scheduled: Callable[[], None],
        *,
        promoting: Callable[[], bool] = lambda: False,
        ran_by: str,
        using: str,
        look_every: float = LOOK_EVERY,
        slowest_look: float = SLOWEST_LOOK,
        lag: float = LAG,
        limit: int | None = None,
        on_reaped: Callable[[ReapResult], None] = lambda reaped: None,
        on_failed: Callable[[Exception], None] | None = None,
    ) -> None:
        super().__init__("ojs-reaper", using)
        self._on_scheduled, self._on_reaped = on_scheduled, on_reaped
        self._promoting = promoting
        self._on_failed = on_failed or (lambda error: logger.warning("the reaper failed: %s", error))
        self._look_every, self._slowest_look = look_every, slowest_look
        self._lag, self._limit = lag, limit
        self._probe, self._next_due = DueProbe(using), NextDue()
        self._scans = reaper.ReaperLoop(
            interval=look_every,
            lag=lag,
            ran_by=ran_by,
            using=using,
            next_deadline=lambda: self._next_due.deadline,
            last_scan=lambda: self._probe.scanned_at,
        )
        self._closing = False
        self._woken = threading.Event()
        self._reap_at = 0.0
        self._changed_at = clock.boottime()

    def hurry(self) -> None:
        """Jobs come in: what falls due soon may come with them. From any thread."""
        now = clock.boottime()
        rests = now - self._changed_at > _IDLE_PER_PAUSE * self._look_every
        self._changed_at = now
        if rests:
            self._woken.set()

    def close(self) -> None:
        """End after the current pass."""
        self._closing = True
        self._woken.set()

    def work(self) -> None:
        """Enforce deadlines until closed."""
        while not self._closing:
            began = clock.boottime()
            self._woken.clear()
            try:
                next_at = self._look(began)
            except (Error, OSError) as error:
                self._failed(began, error)
                # After waiting for a lock, look soon: it may be free at any moment.
                again = self._look_every if is_held(error) else _AGAIN
                next_at = clock.boottime() + again
            except Exception:
                logger.exception("the reaper failed")
                next_at = clock.boottime() + _AGAIN
            if not self._closing:
                self._woken.wait(max(0.0, next_at - clock.boottime()))

    def _failed(self, began: float, error: Exception) -> None:
        """It is an outage if a new connection fails too, or the failure took long (decision T9)."""
        if clock.boottime() - began > _AGAIN or is_outage(error, self._using):
            reaper.note_outage()
        self._on_failed(error)
        close_broken(self._using)

    def _look(self, now: float) -> float:
        """Read what falls due next and act on what is due; return when to look again."""
        self.statements += 1
        before, asked_at = self._next_due, clock.boottime()
        self._next_due = self._probe.look(scheduled=not self._promoting())
        took = clock.boottime() - asked_at
        self._scans.saw()
        next_due = self._next_due
        if next_due != before:
            self._changed_at = now
        if (wait := self._until(next_due.scheduled)) <= 0:
            self._on_scheduled()
        overdue = self._until(next_due.deadline) <= -self._lag
        if now >= self._reap_at or overdue or clock.step(self._using) is not None:
            reaped = self._scans.tick(limit=self._limit)
            self._on_reaped(reaped)
            self._reap_at = now + min(_BEATS_EVERY, max(0.0, self._until(reaped.next_due) + self._lag))
        pause = max(self._look_every, (now - self._changed_at) / _IDLE_PER_PAUSE, _RESTS * took)
        longest = self._slowest_look
        if next_due.deadline is not None:
            longest = max(self._look_every, min(longest, _WATCHFUL))
        look_at = now + min(pause, longest)
        known = (now + wait, now + self._until(next_due.deadline) + self._lag, self._reap_at)
        return min([look_at, *(moment for moment in known if moment > now)])

    def _until(self, moment: datetime | None) -> float:
        if moment is None:
            return float("inf")
        return (moment - clock.now(self._using)).total_seconds()
