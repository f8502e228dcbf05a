"""The supervisor's main loop: sockets of the executors, calls of other threads, one wake-up socket."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Any


class EventLoop:
    """Waits for descriptors and calls; ``selector`` has ``(callback, argument)`` for each."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._readable, self._wakeup = socket.socketpair()
        for end in (self._readable, self._wakeup):
            end.setblocking(False)
        self.selector.register(self._readable, selectors.EVENT_READ, (self._woken, None))

    @property
    def wakeup_fd(self) -> int:
        """A byte written here ends the wait."""
        return self._wakeup.fileno()

    @property
    def has_calls(self) -> bool:
        """Whether calls wait already."""
        return bool(self._calls)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the loop; from any thread."""
        self._calls.append(call)
        try:
            self._wakeup.send(b".")
        except BlockingIOError:
            pass

    def wake_up(self) -> None:
        """End the wait; from any thread."""
        self.call_soon(lambda: None)

    def wait(self, seconds: float) -> None:
        """Wait for descriptors and calls, and run what is for them."""
        self.wait_for_descriptors(seconds)
        while self._calls:
            self._calls.popleft()()

    def wait_for_descriptors(self, seconds: float) -> None:
        """The same without calls."""
        for key, mask in self.selector.select(seconds):
            callback, argument = key.data
            callback(argument, mask)

    def close(self) -> None:
        """Close what was opened here."""
        self.selector.close()
        self._readable.close()
        self._wakeup.close()

    def _woken(self, argument: Any, mask: int) -> None:
        try:
            while self._readable.recv(4096):
                pass
        except BlockingIOError:
            pass
