"""How a worker learns that there is something to claim: notification, change detection, polling."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock, conf
from django_ojs.store.inserting import CHANNEL
from django_ojs.store.links import CONNECT_S, guard_socket

logger = logging.getLogger("django_ojs.worker")


def payloads(places: Iterable[tuple[str, str]]) -> list[str]:
    """What to notify of these (queue, type) pairs: one payload a queue.

    ``q:queue/type``, or ``q:queue`` where several types have come, or nobody knows which.
    """
    types: dict[str, str] = {}
    for queue, job_type in places:
        types[queue] = job_type if types.get(queue, job_type) == job_type else ""
    return [f"q:{queue}/{types[queue]}".rstrip("/") for queue in sorted(types)]


def place_of(payload: str) -> tuple[str, str]:
    """The queue and the type that a ``q:`` payload names; empty for any."""
    queue, _, job_type = payload.removeprefix("q:").partition("/")
    return queue, job_type


class PollSchedule:
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


class NotifiedSchedule(PollSchedule):
    """PostgreSQL with LISTEN: while somebody listens, polling is only the net below."""

    slowest = 2.0
    _net = 0.25

    def __init__(self, listening: threading.Event) -> None:
        super().__init__()
        self._listening = listening

    def claimed(self, got: int, wanted: int) -> None:
        """What the look brought."""
        if not got and self._listening.is_set():
            self._pause = max(self._pause, self._net)
        super().claimed(got, wanted)


class FileChangeSchedule(PollSchedule):
    """SQLite: a look at the file every few milliseconds, no statement while nobody writes to it.

    The longer nothing was claimed, the slower.
    """

    slowest = 2.0
    _fastest_look = 0.01
    _slowest_look = 0.1
    _settles = 1.0
    """How long a commit may take from its last write to the file until others see it."""

    def __init__(self) -> None:
        super().__init__()
        self._got_at = float("-inf")
        self._version = -1
        self._file: tuple[int, int] | None = None
        self._file_at = 0.0
        self._settled = False

    def pause(self) -> float:
        """Never longer than until the next look at the file."""
        idle = clock.boottime() - self._got_at
        look = min(self._slowest_look, max(self._fastest_look, idle / 50))
        return min(look, super().pause())

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether somebody else has committed since, or the poll is due."""
        changed = self._is_written(connection) and self._is_foreign(connection)
        return super().due(connection) or changed

    def claimed(self, got: int, wanted: int) -> None:
        """What the look brought."""
        super().claimed(got, wanted)
        if got:
            self._got_at = clock.boottime()

    def _is_written(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the file may have been written to since the last look."""
        name = str(connection.settings_dict["NAME"])
        try:
            try:
                file = os.stat(f"{name}-wal")
            except FileNotFoundError:
                # No write-ahead log: commits go to the file itself.
                file = os.stat(name)
        except OSError:
            return True
        now, seen = clock.boottime(), (file.st_mtime_ns, file.st_size)
        if seen != self._file:
            self._file, self._file_at, self._settled = seen, now, False
            return True
        if self._settled:
            return False
        self._settled = now - self._file_at > self._settles
        return True

    def _is_foreign(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether another connection has committed since this was last asked."""
        try:
            connection.ensure_connection()
            ((version,),) = connection.connection.execute("PRAGMA data_version").fetchall()
        except Exception:
            # The claim will meet the same trouble and knows what to do about it.
            return True
        known, self._version = self._version, int(version)
        return known != self._version


def poll_schedule_for(using: str, listener: Notifier | None = None) -> PollSchedule:
    """The best way to watch the database ``using``, with what there is to listen to it."""
    if connections[using].vendor == "sqlite":
        return FileChangeSchedule()
    return PollSchedule() if listener is None else NotifiedSchedule(listener.listening)


class Notifier(threading.Thread):
    """LISTEN on a connection of its own; calls back with each payload.

    ``OJS["LISTEN_DATABASE"]`` names an alias that reaches the server directly where ``DATABASE``
    goes through a transaction-pooling proxy. Without psycopg 3 there is no listener.
    """

    def __init__(self, on_payload: Callable[[str], None], using: str) -> None:
        super().__init__(name="ojs-listener", daemon=True)
        self._on_payload = on_payload
        self._alias = conf.current().listen_database or using
        self.listening = threading.Event()
        self._stopping = threading.Event()
        self._stop_end, self._stop_in = socket.socketpair()

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

    def close(self) -> None:
        """End now."""
        self._stopping.set()
        self._stop_in.close()

    def run(self) -> None:
        """Listen; after a failure again, with a pause."""
        while not self._stopping.is_set():
            connection: Any = None
            try:
                connection = self._connect()
                self.listening.set()
                # What was committed before LISTEN took effect was not announced to us.
                self._on_payload("q:")
                self._listen(connection.pgconn)
            except Exception as error:
                logger.info("listening was interrupted: %s", error)
                self._stopping.wait(1.0 + clock.jitter())
            finally:
                self.listening.clear()
                if connection is not None:
                    with contextlib.suppress(Exception):
                        connection.close()
        self._stop_end.close()

    def _listen(self, session: Any) -> None:
        """Sleep until the server says something; ``notifies()`` of psycopg wakes ten times a second."""
        with selectors.DefaultSelector() as selector:
            selector.register(session.socket, selectors.EVENT_READ)
            selector.register(self._stop_end, selectors.EVENT_READ)
            while not self._stopping.is_set():
                while (notification := session.notifies()) is not None:
                    self._on_payload(notification.extra.decode())
                selector.select()
                session.consume_input()

    def _connect(self) -> Any:
        import psycopg

        parameters = connections[self._alias].get_connection_params()
        allowed = {
            key: value
            for key, value in parameters.items()
            if key not in ("cursor_factory", "context", "prepare_threshold", "server_side_binding")
        }
        # ``LISTEN_DATABASE`` may be an alias that nothing was said about.
        allowed.setdefault("connect_timeout", CONNECT_S)
        connection = psycopg.connect(**allowed, autocommit=True)
        guard_socket(connection.fileno(), allowed)
        connection.execute(f"LISTEN {CHANNEL}")
        return connection
