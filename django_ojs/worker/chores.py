"""The thread that does the periodic work while a worker runs: reaping, promoting, pruning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial

from django.db import DatabaseError, InterfaceError, connections

from django_ojs import clock, hooks
from django_ojs.hooks import Chore
from django_ojs.services import scan
from django_ojs.store.upcoming import Lookout, Outlook
from django_ojs.worker.threads import DatabaseThread

logger = logging.getLogger("django_ojs.worker")

_LOOK_EVERY = 0.1
_QUIET_LOOK_EVERY = 0.2
_QUIET_AFTER = 3.0
_LAG = 0.2
_BEATS_EVERY = 1.0
_AGAIN = 1.0


class Chores(DatabaseThread):
    """Runs every registered chore when it is due, and a reaper.

    Ten times a second, five when that has been the same for a while, one statement says what falls
    due next; what is known to fall due before the next look is done at its time. The embedded reaper
    lags a little, so that a worker that kills a job on time reports it itself; ``reap_timeouts``
    does not wait.
    """

    def __init__(self, on_promoted: Callable[[], None], *, ran_by: str, using: str) -> None:
        super().__init__("ojs-chores", using)
        self._on_promoted = on_promoted
        self._lookout = Lookout(using)
        self._outlook = Outlook()
        self._reaper = scan.Loop(
            interval=_LOOK_EVERY,
            lag=_LAG,
            ran_by=ran_by,
            using=using,
            next_deadline=lambda: self._outlook.deadline,
        )
        self._closing = threading.Event()
        self._look_at = self._reap_at = self._rest_at = 0.0
        self._changed_at = clock.boottime()
        self._due: dict[str, float] = {}

    def close(self) -> None:
        """End after the chore in hand."""
        self._closing.set()

    def work(self) -> None:
        """Until closed."""
        while not self._closing.is_set():
            self._closing.wait(self._turn())

    def _turn(self) -> float:
        """Do what is due; seconds until the next. Most turns are one look that finds nothing."""
        now = clock.boottime()
        if now >= self._look_at:
            quiet = now - self._changed_at > _QUIET_AFTER
            self._look_at = now + (_QUIET_LOOK_EVERY if quiet else _LOOK_EVERY)
            self._guarded(scan.NAME, now, 0.0, self._look)
        if now >= self._rest_at:
            rest = [chore for chore in hooks.chores() if not chore.scheduled]
            for chore in rest:
                self._guarded(chore.name, now, chore.every, partial(self._run, chore))
            self._rest_at = min((self._due[chore.name] for chore in rest), default=now + _AGAIN)
        return max(0.0, min(self._look_at, self._rest_at) - clock.boottime())

    def _look(self) -> None:
        """See what falls due next; promote and reap what is due already."""
        self.statements += 1
        before, self._outlook = self._outlook, self._lookout.look()
        outlook, now = self._outlook, clock.boottime()
        if outlook != before:
            self._changed_at = now
        if now >= self._reap_at or self._until(outlook.deadline) <= -_LAG:
            due = self._reaper.tick().next_due
            self._reap_at = now + min(_BEATS_EVERY, max(0.0, self._until(due) + _LAG))
        if (wait := self._until(outlook.scheduled)) <= 0:
            for chore in hooks.chores():
                if chore.scheduled:
                    self._guarded(chore.name, now, 0.0, partial(self._run, chore))
        for moment in (now + wait, now + self._until(outlook.deadline) + _LAG, self._reap_at):
            if now < moment < self._look_at:
                self._look_at = moment

    def _until(self, moment: datetime | None) -> float:
        if moment is None:
            return float("inf")
        return (moment - clock.now(self._using)).total_seconds()

    def _run(self, chore: Chore) -> None:
        done = chore.run(self._using)
        if done.counts.get("promoted"):
            self._on_promoted()
        if done.more:
            self._due[chore.name] = 0.0

    def _guarded(self, name: str, now: float, every: float, work: Callable[[], object]) -> None:
        """One chore that fails is tried again soon, and holds up no other."""
        if now < self._due.get(name, 0.0):
            return
        self._due[name] = now + every
        try:
            work()
        except (DatabaseError, InterfaceError, OSError) as error:
            if name == scan.NAME:
                # Decision T9. One of the others may fail again and again while all is well.
                scan.note_outage()
            logger.warning("the chore %s failed: %s", name, error)
            connections[self._using].close()
        except Exception:
            logger.exception("the chore %s failed", name)
        else:
            return
        self._due[name] = clock.boottime() + _AGAIN
