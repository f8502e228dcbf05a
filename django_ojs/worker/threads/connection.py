"""Whether the database answers the thread that settles and claims."""

from __future__ import annotations

import logging
import threading

from django.db import connections

from django_ojs import clock
from django_ojs.services import reaper
from django_ojs.store.batches import answers
from django_ojs.store.contention import is_held

logger = logging.getLogger("django_ojs.worker")


class ConnectionState:
    """Failures in a row on one connection; ``connected`` is clear during an outage."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.failures = 0
        self.connected = threading.Event()

    def succeeded(self) -> None:
        """A statement was answered."""
        self.failures = 0
        self.connected.set()

    def failed(self, error: Exception) -> None:
        """Pause after a failed statement; an outage if a new connection does not answer either."""
        self.failures += 1
        if self.failures == 1:
            logger.warning("database trouble: %s", error)
        if not is_held(error) and not answers(self._using):
            reaper.note_outage()
            self.connected.clear()
            connections[self._using].close()
        # Well below a quarter of the shortest usual heartbeat timeout: several calls may fail in one
        # turn, and reports wait behind them while the server waits for the reports.
        pause = min(0.5, 0.05 * 2 ** min(self.failures, 6)) * (0.5 + clock.jitter())
        clock.pause(pause)
