"""The thread that does the periodic work while a worker runs: reaping, promoting, pruning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from django.db import DatabaseError, InterfaceError, connections

from django_ojs import clock, hooks
from django_ojs.hooks import Chore
from django_ojs.services import scan
from django_ojs.worker.threads import DatabaseThread

logger = logging.getLogger("django_ojs.worker")

_REAP_EVERY = 0.2
_LAG = 0.2
_AGAIN = 1.0


class Chores(DatabaseThread):
    """Runs every registered chore when it is due, and a reaper.

    The embedded reaper lags a little, so that a worker that kills a job on time reports it itself;
    ``reap_timeouts`` does not wait.
    """

    def __init__(self, on_promoted: Callable[[], None], *, ran_by: str, using: str) -> None:
        super().__init__("ojs-chores", using)
        self._on_promoted = on_promoted
        self._reaper = scan.Loop(interval=_REAP_EVERY, lag=_LAG, ran_by=ran_by, using=using)
        self._closing = threading.Event()
        self._due: dict[str, float] = {}

    def close(self) -> None:
        """End after the chore in hand."""
        self._closing.set()

    def work(self) -> None:
        """Until closed."""
        while not self._closing.is_set():
            self._closing.wait(self._turn())

    def _turn(self) -> float:
        """Do what is due; seconds until the next."""
        self._guarded("reap", _REAP_EVERY, self._reaper.tick)
        for chore in hooks.chores():
            self._guarded(chore.name, chore.every, partial(self._run, chore))
        return max(0.01, min(self._due.values()) - clock.boottime())

    def _run(self, chore: Chore) -> None:
        if chore.run(self._using).counts.get("promoted"):
            self._on_promoted()

    def _guarded(self, name: str, every: float, work: Callable[[], object]) -> None:
        """One chore that fails is tried again soon, and holds up no other."""
        if not self._is_due(name, every):
            return
        try:
            work()
        except (DatabaseError, InterfaceError, OSError) as error:
            scan.note_outage()
            logger.warning("the chore %s failed: %s", name, error)
            connections[self._using].close()
        except Exception:
            logger.exception("the chore %s failed", name)
        else:
            return
        self._due[name] = clock.boottime() + _AGAIN

    def _is_due(self, name: str, every: float) -> bool:
        now = clock.boottime()
        if now < self._due.get(name, 0.0):
            return False
        self._due[name] = now + every
        return True
