"""The thread in which a worker or reaper calls the receivers of our signals.

A receiver may take its time: an HTTP call that hangs must not hold up reports, beats or deadlines of
jobs that it has nothing to do with.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_ojs import signals
from django_ojs.signals import Event
from django_ojs.worker import sessions

logger = logging.getLogger("django_ojs.worker")

LIMIT = 10_000
"""Events that may wait for receivers."""
_UNUSED_S = 2.0
_LEAST_PATIENCE_S = 1.0


class Receivers:
    """A bounded queue of events, in the order of their commits, and the thread that delivers them.

    The thread starts with the first event. From ``LIMIT`` events on :attr:`full` holds until half of
    them are delivered. Meanwhile a worker claims nothing, and the events of the thread ``reporter``,
    which then come of the jobs in hand alone, are still taken, up to ``LIMIT`` more. Other events are
    dropped, counted and logged.
    """

    def __init__(
        self,
        *,
        reporter: threading.Thread | None = None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._reporter = reporter
        self._on_room = on_room
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._stopped = False
        self._dropped = 0
        self.full = False

    def put(self, event: Event) -> None:
        """Have the receivers of ``event`` called, after those of the events before it."""
        with self._changed:
            waiting = len(self._events)
            if waiting >= LIMIT and not self.full:
                self.full = True
                logger.error(
                    "%d events wait for receivers of signals: nothing is claimed meanwhile; %s",
                    waiting,
                    self._what_runs(),
                )
            reported = threading.current_thread() is self._reporter
            if self._stopped or (waiting >= LIMIT and not (reported and waiting < 2 * LIMIT)):
                self._dropped += 1
                return
            self._events.append(event)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ojs-receivers", daemon=True)
                self._thread.start()

    @contextmanager
    def serving(self, patience: float) -> Iterator[None]:
        """Within the block take every event of this process; deliver the last for ``patience`` s."""
        with signals.delivered_by(self.put):
            try:
                yield
            finally:
                self.close(patience)

    def close(self, patience: float) -> None:
        """Deliver what waits, for ``patience`` seconds but at least one; log what is left."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(max(patience, _LEAST_PATIENCE_S))
        with self._changed:
            self._stopped = True
            if self._events or (self._thread is not None and self._thread.is_alive()):
                left = len(self._events)
                logger.error("%d events were not delivered to receivers; %s", left, self._what_runs())
            self._tell_of_dropped()

    def _what_runs(self) -> str:
        name = signals.running_in(self._thread.ident if self._thread is not None else None)
        return f"the receiver {name} is running" if name else "no receiver is running"

    def _tell_of_dropped(self) -> None:
        if self._dropped:
            logger.error("%d events were dropped: receivers did not keep up", self._dropped)
            self._dropped = 0

    # The thread.

    def _work(self) -> None:
        try:
            while (event := self._next()) is not None:
                self._send(event)
        finally:
            sessions.close_connections()

    def _next(self) -> Event | None:
        with self._changed:
            if self.full and len(self._events) <= LIMIT // 2:
                self.full = False
                logger.warning("receivers of signals have caught up")
                self._tell_of_dropped()
                self._on_room()
            unused: float | None = _UNUSED_S
            while not self._events and not self._closing:
                if not self._changed.wait(unused):
                    sessions.close_connections()
                    unused = None
            return self._events.popleft() if self._events and not self._stopped else None

    def _send(self, event: Event) -> None:
        try:
            signals.send(event)
        except BaseException:
            # ``send_robust`` lets a SystemExit through: it must not end this thread.
            logger.exception("a receiver of %s ended", event.kind)
        sessions.tidy_connections()
