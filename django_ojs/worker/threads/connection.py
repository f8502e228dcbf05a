"""The state of a database thread's connection: failures, back-off; and whether the database answers."""

from __future__ import annotations

import gc
import logging
import threading

from django.db import connections

from django_ojs import clock
from django_ojs.services import reaper
from django_ojs.store.batches import is_outage
from django_ojs.store.contention import is_held

logger = logging.getLogger("django_ojs.worker")


class Availability:
    """Whether the database answers on every connection of a worker's database threads, and how often it
    stopped doing so.
    """

    def __init__(self) -> None:
        self.connected = threading.Event()
        self.outages = 0
        self._lock = threading.Lock()
        self._away: set[ConnectionState] = set()

    def answers(self, to: ConnectionState) -> None:
        """A statement succeeded on this connection."""
        with self._lock:
            self._away.discard(to)
            if not self._away:
                self.connected.set()

    def is_away(self, to: ConnectionState) -> None:
        """A statement failed on this connection, and on a new one."""
        with self._lock:
            # An outage has not begun just now if it was there before the first statement.
            self.outages += self.connected.is_set()
            self.connected.clear()
            self._away.add(to)


class ConnectionState:
    """Counts the consecutive failures of one connection."""

    def __init__(self, using: str, availability: Availability | None = None) -> None:
        self._using = using
        self.availability = availability or Availability()
        self.failures = 0

    def succeeded(self) -> None:
        """A statement succeeded."""
        self.failures = 0
        self.availability.answers(self)

    def failed(self, error: Exception) -> None:
        """Pause after a failed statement. It is an outage if a new connection fails too."""
        self.failures += 1
        if self.failures == 1:
            logger.warning("a database call failed: %s", error)
        if not is_held(error) and is_outage(error, self._using):
            reaper.note_outage()
            self.availability.is_away(self)
            connections[self._using].close()
        # Django's errors hold their statement in a cycle, and it may be megabytes of reports. By itself
        # this process searches for garbage rarely (ADR 58).
        gc.collect()
        # Far shorter than a quarter of usual heartbeat timeouts: several calls may fail in one turn,
        # and reports wait behind them.
        pause = min(0.5, 0.05 * 2 ** min(self.failures, 6)) * (0.5 + clock.jitter())
        clock.pause(pause)
