"""The thread that does the periodic work while a worker runs: reaping, promoting, pruning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connections

from django_ojs import clock, hooks
from django_ojs.services import scan
from django_ojs.worker.threads import DatabaseThread

logger = logging.getLogger("django_ojs.worker")

_REAP_EVERY = 0.2
_LAG = 0.2


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
        try:
            if self._is_due("reap", _REAP_EVERY):
                self._reaper.tick()
            for chore in hooks.chores():
                if self._is_due(chore.name, chore.every):
                    done = chore.run(self._using)
                    if done.counts.get("promoted"):
                        self._on_promoted()
        except (DatabaseError, InterfaceError, OSError) as error:
            scan.note_outage()
            logger.warning("a chore failed: %s", error)
            connections[self._using].close()
            return 1.0
        except Exception:
            logger.exception("a chore failed")
            return 1.0
        return max(0.01, min(self._due.values()) - clock.boottime())

    def _is_due(self, name: str, every: float) -> bool:
        now = clock.boottime()
        if now < self._due.get(name, 0.0):
            return False
        self._due[name] = now + every
        return True
