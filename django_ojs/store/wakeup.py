"""How a worker learns that there is something to claim: notification, change detection, polling."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock, conf
from django_ojs.store.inserting import CHANNEL

logger = logging.getLogger("django_ojs.worker")


class Watcher:
    """Adaptive polling: at once after a full claim, then ever more slowly up to ``slowest``."""

    fastest = 0.02
    slowest = 0.5

    def __init__(self) -> None:
        self._pause = self.fastest
        self._next = 0.0
        self._hinted = threading.Event()

    def hint(self) -> None:
        """Look at the next opportunity."""
        self._hinted.set()

    def pause(self) -> float:
        """Seconds until the next look; 0 for now."""
        return 0.0 if self._hinted.is_set() else max(0.0, self._next - clock.boottime())

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether to look now."""
        if self._hinted.is_set():
            self._hinted.clear()
            return True
        return clock.boottime() >= self._next

    def claimed(self, got: int, wanted: int) -> None:
        """What the look brought."""
        if got:
            self._pause = self.fastest
            self._next = 0.0
            return
        self._next = clock.boottime() + self._pause * (0.75 + 0.5 * clock.jitter())
        self._pause = min(self.slowest, self._pause * 2)


class NotifiedWatcher(Watcher):
    """PostgreSQL with LISTEN: polling is only the net below it."""

    slowest = 2.0


class ChangeWatcher(Watcher):
    """SQLite: one look at the file's change counter every few milliseconds, no read of any table."""

    slowest = 1.0
    _every = 0.01

    def __init__(self) -> None:
        super().__init__()
        self._version: int | None = None

    def pause(self) -> float:
        """Never longer than the interval of the change counter."""
        return min(self._every, super().pause())

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether somebody else has committed since, or the poll is due."""
        changed = False
        with contextlib.suppress(Exception), connection.cursor() as cursor:
            cursor.execute("PRAGMA data_version")
            version = cursor.fetchone()[0]
            changed, self._version = version != self._version, version
        return changed or super().due(connection)


def watcher_for(using: str) -> Watcher:
    """The best way to watch the database ``using``."""
    vendor = connections[using].vendor
    if vendor == "sqlite":
        return ChangeWatcher()
    return NotifiedWatcher() if vendor == "postgresql" and conf.current().notify else Watcher()


class Listener(threading.Thread):
    """LISTEN on a connection of its own; calls back with each payload.

    ``OJS["LISTEN_DATABASE"]`` names an alias that reaches the server directly where ``DATABASE``
    goes through a transaction-pooling proxy. Without psycopg 3 there is no listener.
    """

    def __init__(self, on_payload: Callable[[str], None], using: str) -> None:
        super().__init__(name="ojs-listener", daemon=True)
        self._on_payload = on_payload
        self._alias = conf.current().listen_database or using
        self._stopping = threading.Event()

    @staticmethod
    def possible(using: str) -> bool:
        """Whether this database and its driver can do it."""
        if connections[using].vendor != "postgresql" or not conf.current().notify:
            return False
        try:
            import psycopg
        except ImportError:
            return False
        return bool(psycopg)

    def stop(self) -> None:
        """End within the interval of the wait."""
        self._stopping.set()

    def run(self) -> None:
        """Listen; after a failure again, with a pause."""
        while not self._stopping.is_set():
            connection: Any = None
            try:
                connection = self._connect()
                # What was committed before LISTEN took effect was not announced to us.
                self._on_payload("q:")
                while not self._stopping.is_set():
                    for notification in connection.notifies(timeout=1.0, stop_after=1):
                        self._on_payload(notification.payload)
            except Exception as error:
                logger.info("listening was interrupted: %s", error)
                self._stopping.wait(1.0 + clock.jitter())
            finally:
                if connection is not None:
                    with contextlib.suppress(Exception):
                        connection.close()

    def _connect(self) -> Any:
        import psycopg

        parameters = connections[self._alias].get_connection_params()
        allowed = {
            key: value
            for key, value in parameters.items()
            if key not in ("cursor_factory", "context", "prepare_threshold", "server_side_binding")
        }
        connection = psycopg.connect(**allowed, autocommit=True)
        connection.execute(f"LISTEN {CHANNEL}")
        return connection
