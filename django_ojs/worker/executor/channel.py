"""The executor's side of the channel, safe if the wake-up signal arrives during a read or write.

The signal's handler runs in the main thread between any two bytecodes. While that thread reads or
writes, the handler only records the signal; it is handled when the operation is over.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sized

from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import Frame, FrameReader, pack_texts, text_of
from django_ojs.worker.prefork.journal import ENOUGH, Journal

_CHUNK = 1 << 16


class DeferredSignal:
    """A signal whose handling is deferred while the main thread must not be interrupted."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.answer = answer
        self._main = threading.get_ident()
        self._busy = 0
        self._missed = False

    def wake(self) -> None:
        """Handle the signal, now or later. Called by the signal handler, in the main thread."""
        if self._busy:
            self._missed = True
        else:
            self.answer()

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._busy += 1

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() != self._main:
            return
        self._busy -= 1
        while self._missed and not self._busy:
            self._missed = False
            self.answer()


class Channel:
    """Sends frames from any thread; created, and frames received, in the main thread."""

    def __init__(
        self, end: socket.socket, on_wakeup: Callable[[], None], journal: Journal | None = None
    ) -> None:
        self._socket = end
        self._journal = journal
        self._deferred = DeferredSignal(on_wakeup)
        self._reader = FrameReader()
        self._unsent: list[str] = []
        self._rest = b""
        """The end of a packet whose beginning is sent."""
        self._place: int | None = None
        """Where a mark in the journal is for what has not been sent."""
        self._sending = threading.Lock()
        self.arrived: deque[Frame] = deque()
        self.fileno = end.fileno
        self.closed = False
        """Whether the other end has closed."""
        self.wake = self._deferred.wake

    def on_wakeup(self, answer: Callable[[], None]) -> None:
        """Have the wake-up signal answered by this from now on."""
        self._deferred.answer = answer

    def buffer(self, frame: Frame | str) -> None:
        """Queue an object, or its JSON text, for the next send. Main thread only."""
        with self._deferred, self._sending:
            self._unsent.append(_text(frame))

    def leave(self, frame: Frame | str, waiting: Sized) -> bool:
        """Leave an object, or its JSON text, in the journal, if enough jobs are ``waiting`` here and
        nothing is to be sent before it. Otherwise return False. Main thread only.
        """
        if self._journal is None or len(waiting) < ENOUGH:
            return False
        with self._deferred, self._sending:
            # Again: the wake-up signal may have given jobs back just before it was deferred.
            if len(waiting) < ENOUGH or self._unsent or self._rest or self._place is not None:
                return False
            return self._journal.leave(_text(frame))

    def send(self, frame: Frame | str) -> None:
        """Send what is queued, then an object or its JSON text."""
        with self._deferred, self._sending:
            self._unsent.append(_text(frame))
            self._write()

    def flush(self) -> None:
        """Send what is queued."""
        if self._unsent or self._rest:
            with self._deferred, self._sending:
                self._write()

    def _write(self) -> None:
        self._rest += self._packed(self._unsent)
        self._place = None
        self._unsent.clear()
        while self._rest:
            # Not by ``sendall``: when the exception of an alarm ends a wait, nobody knows what is sent.
            try:
                sent = self._socket.send(self._rest, socket.MSG_DONTWAIT)
            except BlockingIOError:
                _wait_for_room(self._socket)
            else:
                self._rest = self._rest[sent:]

    def _packed(self, texts: list[str]) -> bytes:
        """The packets of these frames; their place among those in the journal is marked before them,
        and passed by after the last.
        """
        if self._journal is None:
            return pack_texts(texts)
        if self._place is None:
            self._place = self._journal.mark()
        return pack_texts([messages.mark(self._place), *texts, messages.mark(self._place + 1)])

    def offer(self, frame: Frame) -> bool:
        """Send what is queued, then an object, if that need wait for nothing: neither for one who is
        sending, which may be this thread below a signal handler, nor for the other end. Otherwise
        return False.
        """
        text = _text(frame)
        with self._deferred:
            if self._sending.locked():
                return False
            # What another thread has begun to send since is waited for: a lock that is taken without
            # ``with`` would stay locked when the exception of an alarm comes in between.
            with self._sending:
                data = self._rest + self._packed([*self._unsent, text])
                try:
                    sent = self._socket.send(data, socket.MSG_DONTWAIT)
                except (BlockingIOError, ConnectionError):
                    return False
                self._rest = data[sent:]
                self._place = None
                self._unsent.clear()
        return True

    def receive(self, unless: Callable[[], object]) -> bool:
        """Wait for bytes; return False when the other end has closed.

        Does not wait if ``unless()`` holds: the wake-up signal may have read the expected frame just
        before it was deferred.
        """
        with self._deferred:
            if unless():
                return True
            try:
                data = self._socket.recv(_CHUNK)
            except OSError:
                return False
            self.arrived.extend(self._reader.feed(data))
            return bool(data)

    def take(self) -> Frame | None:
        """Take the first of the frames that have arrived, if there are any."""
        try:
            return self.arrived.popleft()
        except IndexError:
            # Not looked at before: the wake-up signal may take the last one in between.
            return None

    def peek(self) -> None:
        """Read what has arrived, without waiting."""
        with self._deferred, contextlib.suppress(OSError):
            while data := self._socket.recv(_CHUNK, socket.MSG_DONTWAIT):
                self.arrived.extend(self._reader.feed(data))
                if len(data) < _CHUNK:
                    return
            self.closed = True


def _wait_for_room(end: socket.socket) -> None:
    """Wait until something can be sent."""
    poll = select.poll()
    poll.register(end, select.POLLOUT)
    poll.poll()


def _text(frame: Frame | str) -> str:
    return frame if isinstance(frame, str) else text_of(frame)
