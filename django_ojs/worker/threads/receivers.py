"""The thread in which a worker or reaper calls the receivers of signals.

A slow receiver, such as an HTTP call that hangs, must not delay reports, beats or deadlines.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from django_ojs import signals
from django_ojs.signals import EventRecord
from django_ojs.worker import sessions

logger = logging.getLogger("django_ojs.worker")

LIMIT = 10_000
"""Events that may wait for receivers."""
_UNUSED_S = 2.0
_LEAST_PATIENCE_S = 1.0


class Receivers:
    """A bounded queue of events, in the order of their commits, and the thread that delivers them.

    The thread starts with the first event. At ``LIMIT`` events :attr:`full` is set, until half of them
    are delivered, and the worker claims nothing. Meanwhile up to ``LIMIT`` more events of the threads
    ``reporters`` are taken, which come from its own jobs only. Others are dropped, counted and logged.
    """

    def __init__(
        self,
        *,
        reporters: Collection[threading.Thread] = (),
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._reporters = reporters
        self._on_room = on_room
        self._changed = threading.Condition()
        self._events: deque[EventRecord] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._stopped = False
        self._dropped = 0
        self.dropped = 0
        self.full = False

    def put(self, event: EventRecord) -> None:
        """Queue an event for its receivers."""
        with self._changed:
            waiting = len(self._events)
            if waiting >= LIMIT and not self.full:
                self.full = True
                text = "receivers of signals do not keep up: claiming is suspended (%d events wait; %s)"
                logger.error(text, waiting, self._what_runs())
            reported = threading.current_thread() in self._reporters
            if self._stopped or (waiting >= LIMIT and not (reported and waiting < 2 * LIMIT)):
                self._dropped += 1
                self.dropped += 1
                return
            self._events.append(event)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ojs-receivers", daemon=True)
                self._thread.start()

    @contextmanager
    def serving(self, patience: float) -> Iterator[None]:
        """Take every event of this process within the block, then :meth:`close`."""
        with signals.delivered_by(self.put):
            try:
                yield
            finally:
                self.close(patience)

    def close(self, patience: float) -> None:
        """Deliver waiting events for ``patience`` seconds, at least one; log how many are left."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(max(patience, _LEAST_PATIENCE_S))
        with self._changed:
            self._stopped = True
            if self._events or (self._thread is not None and self._thread.is_alive()):
                left = len(self._events)
                logger.error("events not delivered to receivers: %d; %s", left, self._what_runs())
            self._log_dropped()

    @property
    def waiting(self) -> int:
        """The number of events that wait for their receivers."""
        return len(self._events)

    def _what_runs(self) -> str:
        name = signals.running_in(self._thread.ident if self._thread is not None else None)
        return f"the receiver {name} is running" if name else "no receiver is running"

    def _log_dropped(self) -> None:
        if self._dropped:
            logger.error("events dropped, receivers did not keep up: %d", self._dropped)
            self._dropped = 0

    # The thread.

    def _work(self) -> None:
        sessions.remember_connections()
        try:
            while (event := self._next()) is not None:
                self._send(event)
        finally:
            sessions.close_connections()

    def _next(self) -> EventRecord | None:
        with self._changed:
            if self.full and len(self._events) <= LIMIT // 2:
                self.full = False
                logger.warning("receivers of signals have caught up: claiming resumes")
                self._log_dropped()
                self._on_room()
            unused: float | None = _UNUSED_S
            while not self._events and not self._closing:
                if not self._changed.wait(unused):
                    sessions.close_connections()
                    unused = None
            return self._events.popleft() if self._events and not self._stopped else None

    def _send(self, event: EventRecord) -> None:
        try:
            signals.send(event)
        except BaseException:
            # ``send_robust`` lets SystemExit pass: it must not end this thread.
            logger.exception("a receiver exited: %s", event.kind)
        sessions.tidy_connections()
