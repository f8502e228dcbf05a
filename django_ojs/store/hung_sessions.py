"""Cut sessions with a server that does not answer although its host acknowledges every packet.

Keepalive does not notice a server whose processes are suspended, or hang on a dead disk: the kernel
answers probes for them, and accepts connections. A worker would wait until the server is let go on,
even if another one has taken over. A slow statement looks the same, so a new connection decides: the
server is given up only if that one gets no answer, or reaches another server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from socket import socket
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connections

from django_ojs import clock
from django_ojs.store.sockets import (
    CONNECT_TIMEOUT_S,
    can_tell_unanswered,
    descriptor_of,
    duplicate,
    is_tcp,
    shut_down,
    unanswered_s,
    waits_for_answer,
)

logger = logging.getLogger("django_ojs.worker")

WAITS_S = 3.0
"""Seconds that a statement may take before the server is asked whether it is there."""
_LOOK_S = 1.0
_AGAIN_S = 5.0
"""Seconds after which a server that answered is asked again."""
_watched: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()
"""The descriptor of each session. mysqlclient refuses to tell it while a statement runs in another
thread.
"""


def watch(session: Any) -> None:
    """Watch a driver's connection for as long as it exists; by the thread that uses it."""
    _watched[session] = descriptor_of(session)


def is_probe() -> bool:
    """Whether this thread only finds out whether the server answers."""
    return isinstance(threading.current_thread(), _Probe)


@contextmanager
def cut(using: str) -> Iterator[None]:
    """Cut watched sessions that hang while the block runs. Linux only; elsewhere nothing is done."""
    if not can_tell_unanswered():
        yield
        return
    watcher = SessionThread(using)
    watcher.start()
    try:
        yield
    finally:
        watcher.close()


class SessionThread(threading.Thread):
    """Looks once a second how long each session has been waiting for its server."""

    def __init__(self, using: str) -> None:
        super().__init__(name="ojs-sessions", daemon=True)
        self._using = using
        self._closing = threading.Event()
        self._ask_at = 0.0

    def close(self) -> None:
        """End soon."""
        self._closing.set()

    def run(self) -> None:
        """Look until closed."""
        while not self._closing.wait(_LOOK_S):
            try:
                self.look()
            except Exception:
                logger.exception("looking at the database sessions failed")

    def look(self) -> int:
        """Cut what hangs; return how many sessions that were."""
        if all(waits_for_answer(session) is False for session in _sessions()):
            return 0
        with ExitStack() as stack:
            pairs = [(session, _link(session, stack)) for session in _sessions()]
            links = [link for _, link in pairs if link is not None]
            hung = {
                _peer(link)
                for session, link in pairs
                if link is not None and unanswered_s(link, waits_for_answer(session)) >= WAITS_S
            }
            if not hung or clock.boottime() < self._ask_at:
                return 0
            probe = _Probe(self._using)
            probe.start()
            probe.join(CONNECT_TIMEOUT_S + _LOOK_S)
            if (alive := probe.end()) is None:
                # It was refused, by whoever answers.
                return 0
            gone = hung - alive
            if not gone:
                self._ask_at = clock.boottime() + _AGAIN_S
                return 0
            # Those that wait for a notification too, and those that have sent nothing yet.
            cut = [link for link in links if _peer(link) in gone]
            for link in cut:
                shut_down(link)
            logger.warning("the database server does not answer: %d sessions are cut", len(cut))
            return len(cut)


class _Probe(threading.Thread):
    """A new connection, which may hang like the others."""

    def __init__(self, using: str) -> None:
        super().__init__(name="ojs-sessions-probe", daemon=True)
        self._using = using
        self._began = clock.boottime()
        self._peers: set[Any] | None = None
        self._connection: Any = None

    def run(self) -> None:
        self._connection = connections[self._using]
        peer = None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.fetchone()
            with ExitStack() as stack:
                link = _link(self._connection.connection, stack)
                peer = None if link is None else _peer(link)
            self._peers = {peer}
        except Exception:
            if clock.boottime() - self._began >= 0.9 * CONNECT_TIMEOUT_S:
                self._peers = set()
        finally:
            with suppress(Exception):
                self._connection.close()

    def end(self) -> set[Any] | None:
        """Which servers answer; ``None`` if it was refused at once."""
        if not self.is_alive():
            return self._peers
        with ExitStack() as stack:
            session = getattr(self._connection, "connection", None)
            if session is not None and (link := _link(session, stack)) is not None:
                shut_down(link)
        return set()


def _sessions() -> list[Any]:
    for _ in range(3):
        # Other threads open and drop connections meanwhile.
        with suppress(RuntimeError):
            return list(_watched)
    return []


def _link(session: Any, stack: ExitStack) -> socket | None:
    """The socket of a session that is open, for as long as ``stack``."""
    try:
        descriptor = _watched[session] if session in _watched else descriptor_of(session)
        if descriptor is None:
            return None
        link = stack.enter_context(duplicate(descriptor))
        # Its number may have been given to another one before it was duplicated.
        return link if not _closed(session) and is_tcp(link) else None
    except Exception:
        return None


def _closed(session: Any) -> bool:
    if (closed := getattr(session, "closed", None)) is not None:
        return bool(closed)
    return not session.open


def _peer(link: socket) -> Any:
    try:
        return link.getpeername()
    except OSError:
        return None
