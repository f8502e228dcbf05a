"""The state of the database thread's connection: failures, back-off, outages."""

from __future__ import annotations

import logging
import threading

from django.db import connections

from django_ojs import clock
from django_ojs.services import reaper
from django_ojs.store.batches import is_outage
from django_ojs.store.contention import is_held

logger = logging.getLogger("django_ojs.worker")


class ConnectionState:
    """Counts consecutive failures, and outages; ``connected`` is clear during an outage."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.failures = 0
        self.outages = 0
        self.connected = threading.Event()

    def succeeded(self) -> None:
        """A statement succeeded."""
        self.failures = 0
        self.connected.set()

    def failed(self, error: Exception) -> None:
        """Pause after a failed statement. It is an outage if a new connection fails too."""
        self.failures += 1
        if self.failures == 1:
            logger.warning("a database call failed: %s", error)
        if not is_held(error) and is_outage(error, self._using):
            reaper.note_outage()
            # It has not begun just now if it was there before the first statement.
            self.outages += self.connected.is_set()
            self.connected.clear()
            connections[self._using].close()
        # Far shorter than a quarter of usual heartbeat timeouts: several calls may fail in one turn,
        # and reports wait behind them.
        pause = min(0.5, 0.05 * 2 ** min(self.failures, 6)) * (0.5 + clock.jitter())
        clock.pause(pause)
