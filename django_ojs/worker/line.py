"""The executor's end of the line, safe against the bell that rings in the middle of it.

The bell's handler runs in the main thread, between any two bytecodes. While the main thread has
bytes on their way in or out, the handler only notes that it rang; it is called when they are through.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator

from django_ojs.worker.frames import Frame, FrameReader, pack

_CHUNK = 1 << 16


class ChildLine:
    """Sends frames from any thread, receives them in the main thread."""

    def __init__(self, line: socket.socket, on_bell: Callable[[], None]) -> None:
        self._line = line
        self._on_bell = on_bell
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._sending = threading.Lock()
        self._busy = False
        self._missed = False
        self.arrived: deque[Frame] = deque()

    def ring(self) -> None:
        """What the signal handler calls."""
        if self._busy:
            self._missed = True
        else:
            self._on_bell()

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        outer, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = outer
        while self._missed and not self._busy:
            self._missed = False
            self._on_bell()

    def buffer(self, frame: Frame) -> None:
        """Send with whatever is sent next; from the main thread."""
        with self._undisturbed(), self._sending:
            self._unsent += pack(frame)

    def send(self, frame: Frame) -> None:
        """Send now, after what was buffered."""
        with self._undisturbed(), self._sending:
            self._unsent += pack(frame)
            self._write()

    def flush(self) -> None:
        """Send what was buffered."""
        if self._unsent:
            with self._undisturbed(), self._sending:
                self._write()

    def _write(self) -> None:
        self._line.sendall(self._unsent)
        self._unsent.clear()

    def receive(self) -> bool:
        """Wait for bytes; False when the other end has hung up."""
        with self._undisturbed():
            try:
                data = self._line.recv(_CHUNK)
            except OSError:
                return False
            self.arrived.extend(self._reader.feed(data))
            return bool(data)

    def peek(self) -> None:
        """Take what has arrived already."""
        with self._undisturbed(), contextlib.suppress(OSError):
            while data := self._line.recv(_CHUNK, socket.MSG_DONTWAIT):
                self.arrived.extend(self._reader.feed(data))
                if len(data) < _CHUNK:
                    break
