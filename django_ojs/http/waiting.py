"""Long polls: a fetch that waits until there is something to claim (``wait_ms``).

On PostgreSQL one thread of the process listens to the notifications of commits for all waiting
requests, which meanwhile hold no connection. Elsewhere they poll with growing pauses.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Collection
from math import inf
from typing import Any, TypeVar

from django.db import connections

from django_ojs import clock
from django_ojs.domain.lru import LRU
from django_ojs.store.notifications import Notifier, place_of

T = TypeVar("T")

MAX_WAIT_MS = 30_000
_FIRST_LOOK = 0.05
_SLOWEST_LOOK = 0.5
_SLOWEST_WHEN_TOLD = 2.0
_MOST_QUEUES = 10_000


class WorkNotifier:
    """Wakes requests that wait for work in one of their queues."""

    def __init__(self, using: str) -> None:
        self._changed = threading.Condition()
        self._notified: LRU[str, int] = LRU(_MOST_QUEUES)
        self._count = 0
        self._forgotten = 0
        """The latest notification whose queue was evicted: it counts for every queue."""
        self._using = using
        self._notifier: Notifier | None = None
        self._pid = 0

    def listens(self) -> bool:
        """Whether notifications arrive here; starts the listening thread of this process."""
        with self._changed:
            if self._pid != os.getpid():
                # Threads do not survive a fork.
                self._pid = os.getpid()
                self._notifier = None
            if self._notifier is None and Notifier.possible(self._using):
                self._notifier = Notifier(self._on_notification, self._using)
                self._notifier.start()
            return self._notifier is not None

    def count(self) -> int:
        """The number of notifications so far, to pass to :meth:`wait`."""
        with self._changed:
            return self._count

    def notified(self, queues: Collection[str], since: int) -> bool:
        """Whether one of the queues, or all of them, may have been notified since that count."""
        return any((self._notified.get(queue) or self._forgotten) > since for queue in ("", *queues))

    def wait(self, queues: Collection[str], since: int, seconds: float) -> int:
        """Wait at most so long until one of the queues is notified; returns the new count."""
        with self._changed:
            self._changed.wait_for(lambda: self.notified(queues, since), timeout=seconds)
            return self._count

    def _on_notification(self, payload: str, repeated: bool = False) -> None:
        if payload.startswith("q:"):
            queue = place_of(payload)[0]
            with self._changed:
                self._count += 1
                self._forgotten = self._notified.put(queue, self._count) or self._forgotten
                self._changed.notify_all()


_notifiers: dict[str, WorkNotifier] = {}


def notifier(using: str) -> WorkNotifier:
    """The notifier of a database, started at first use."""
    return _notifiers.setdefault(using, WorkNotifier(using))


def until(
    look: Callable[[], T],
    queues: Collection[str],
    wait_ms: int,
    *,
    gone: Callable[[], bool],
    using: str,
    on_notification: bool = True,
    soon: Callable[[], float] = lambda: inf,
) -> T | None:
    """The result of ``look``, repeated until it is true or the time is over.

    ``gone`` is asked before every look: whether the client has hung up, for which the answer is
    ``None``. ``on_notification`` is whether the notifier announces what is looked for;
    ``soon`` in how many seconds there may be something that it does not.
    """
    if gone():
        return None
    found = look()
    if found:
        return found
    work_notifier = notifier(using)
    listens = on_notification and work_notifier.listens()
    deadline = clock.boottime() + min(wait_ms, MAX_WAIT_MS) / 1000
    pause = _FIRST_LOOK
    since = work_notifier.count()
    # At once a second time: what was committed before the notifier listened was not announced.
    while not gone():
        found = look()
        left = deadline - clock.boottime()
        if found or left <= 0:
            return found
        if listens:
            left = min(left, _SLOWEST_WHEN_TOLD, max(_FIRST_LOOK, soon()))
            if not connections[using].in_atomic_block:
                connections[using].close()
            since = work_notifier.wait(queues, since, left)
        else:
            clock.pause(min(left, pause))
            pause = min(_SLOWEST_LOOK, pause * 1.5)
    return None


def hung_up(environ: dict[str, Any]) -> bool:
    """Whether the client has disconnected; known only if the server exposes its socket (gunicorn)."""
    connection = environ.get("gunicorn.socket")
    if not isinstance(connection, socket.socket):
        return False
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, ValueError):
        return False
    except OSError:
        return True
