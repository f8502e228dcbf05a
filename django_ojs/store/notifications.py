"""LISTEN/NOTIFY on PostgreSQL: the payloads, and the thread that receives them."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import connections

from django_ojs import clock, conf
from django_ojs.engines import is_postgresql
from django_ojs.store import hung_sessions
from django_ojs.store.inserting import CHANNEL
from django_ojs.store.sockets import CONNECT_TIMEOUT_S, set_keepalive

ONCE, FEW, MANY = "q:", "r:", "R:"
"""How a payload about jobs begins, by how often those of its receivers look again (:data:`LOOKS`) that
have ``OJS["NOTIFY"]`` sparse.
"""
LOOKS: Mapping[str, tuple[float, ...]] = {
    ONCE: (),
    FEW: (0.006, 0.012, 0.02, 0.04),
    MANY: (*(0.006 * number for number in range(1, 31)), 0.2),
}
"""Seconds after a notification at which its receiver looks again, where not every commit notifies."""

logger = logging.getLogger("django_ojs.worker")


def payloads(places: Iterable[tuple[str, str]]) -> list[str]:
    """The payloads for these (queue, type) pairs, one per queue.

    ``q:queue/type``, or ``q:queue`` for several types or an unknown one.
    """
    types: dict[str, str] = {}
    for queue, job_type in places:
        types[queue] = job_type if types.get(queue, job_type) == job_type else ""
    return [f"{ONCE}{queue}/{types[queue]}".rstrip("/") for queue in sorted(types)]


def repeated(payload: str, how: str) -> str:
    """The payload whose receivers look again as often as ``how`` says."""
    return how + payload.removeprefix(ONCE)


def place_of(payload: str) -> tuple[str, str]:
    """The queue and the type of a ``q:`` payload; empty for any."""
    queue, _, job_type = payload.removeprefix(ONCE).partition("/")
    return queue, job_type


class Notifier(threading.Thread):
    """A thread that LISTENs on its own connection and calls ``on_payload`` with each payload and
    ``False``, and with ``True`` at the moments of :data:`LOOKS` where commits notify sparsely.

    ``OJS["LISTEN_DATABASE"]`` names an alias that reaches the server directly where ``DATABASE``
    goes through a transaction pooler. Needs PostgreSQL and psycopg 3 (:meth:`possible`).
    """

    def __init__(self, on_payload: Callable[[str, bool], None], using: str) -> None:
        super().__init__(name="ojs-notifier", daemon=True)
        self._on_payload = on_payload
        settings = conf.current()
        direct = settings.listen_database if using == settings.databases.default else None
        self._alias = direct or using
        self._again: dict[str, list[float]] = {}
        self._sparse = settings.notify == conf.SPARSE
        self.listening = threading.Event()
        self._stopping = threading.Event()
        self._stop_end, self._stop_in = socket.socketpair()

    @staticmethod
    def possible(using: str) -> bool:
        """Whether this database and its driver support notifications, and ``OJS["NOTIFY"]`` is on."""
        if not is_postgresql(connections[using]) or not conf.current().notify:
            return False
        try:
            import psycopg
        except ImportError:
            return False
        return bool(psycopg)

    def close(self) -> None:
        """Stop the thread; it ends at once."""
        self._stopping.set()
        self._stop_in.close()

    def run(self) -> None:
        """Listen until stopped; reconnect 1 to 2 s after a failure."""
        while not self._stopping.is_set():
            connection: Any = None
            try:
                connection = self._connect()
                self.listening.set()
                # Commits before LISTEN took effect were not received.
                self._received(FEW)
                self._listen(connection.pgconn)
            except Exception as error:
                logger.info("LISTEN was interrupted, reconnecting: %s", error)
                self._stopping.wait(1.0 + clock.jitter())
            finally:
                self.listening.clear()
                if connection is not None:
                    with contextlib.suppress(Exception):
                        connection.close()
        self._stop_end.close()

    def _listen(self, session: Any) -> None:
        """Sleep until the server sends something; ``notifies()`` would wake ten times a second."""
        with selectors.DefaultSelector() as selector:
            selector.register(session.socket, selectors.EVENT_READ)
            selector.register(self._stop_end, selectors.EVENT_READ)
            while not self._stopping.is_set():
                while (notification := session.notifies()) is not None:
                    self._received(notification.extra.decode())
                if selector.select(self._repeat()):
                    session.consume_input()

    def _received(self, payload: str) -> None:
        delays = LOOKS.get(payload[:2], ())
        if delays:
            payload = ONCE + payload[2:]
        if self._sparse and delays:
            now = clock.boottime()
            known = self._again.get(payload)
            if known is None or known[-1] < now + delays[-1]:
                self._again[payload] = [now + delay for delay in delays]
        self._on_payload(payload, False)

    def _repeat(self) -> float | None:
        """Repeat what is due, and return the seconds until the next one."""
        now = clock.boottime()
        for payload, moments in list(self._again.items()):
            if moments[0] <= now:
                del moments[0]
                if not moments:
                    del self._again[payload]
                self._on_payload(payload, True)
        if not self._again:
            return None
        return max(0.0, min(moments[0] for moments in self._again.values()) - now)

    def _connect(self) -> Any:
        import psycopg

        parameters = connections[self._alias].get_connection_params()
        allowed = {
            key: value
            for key, value in parameters.items()
            if key not in ("cursor_factory", "context", "prepare_threshold", "server_side_binding")
        }
        # ``tcp_keepalive`` covers ``DATABASE`` only; ``LISTEN_DATABASE`` may be another alias.
        allowed.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
        connection = psycopg.connect(**allowed, autocommit=True)
        set_keepalive(connection.fileno(), allowed)
        hung_sessions.watch(connection)
        connection.execute(f"LISTEN {CHANNEL}")
        return connection
