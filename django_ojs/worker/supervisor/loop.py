"""The supervisor's main loop: descriptors of executors, and calls from other threads."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from django_ojs import clock

_GATHER = 0.002


class EventLoop:
    """Waits for descriptors and calls; ``selector`` holds ``(callback, argument)`` for each."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._readable, self._wakeup = socket.socketpair()
        for end in (self._readable, self._wakeup):
            end.setblocking(False)
        self.selector.register(self._readable, selectors.EVENT_READ, (self._woken, None))

    @property
    def wakeup_fd(self) -> int:
        """The descriptor that ends the wait when a byte is written to it."""
        return self._wakeup.fileno()

    @property
    def has_calls(self) -> bool:
        """Whether calls are waiting."""
        return bool(self._calls)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the loop. From any thread."""
        self._calls.append(call)
        try:
            self._wakeup.send(b".")
        except BlockingIOError:
            pass

    def wake_up(self) -> None:
        """End the wait. From any thread."""
        self.call_soon(lambda: None)

    def wait(self, seconds: float, *, gather: bool = False) -> None:
        """Wait for descriptors and calls, and handle them. ``gather`` lets frames come together first:
        many at once take less of this process's time.
        """
        if gather:
            clock.pause(_GATHER)
        self.wait_for_descriptors(seconds)
        while self._calls:
            self._calls.popleft()()

    def wait_for_descriptors(self, seconds: float) -> None:
        """Wait for descriptors and handle them; run no calls."""
        for key, mask in self.selector.select(seconds):
            callback, argument = key.data
            callback(argument, mask)

    def close(self) -> None:
        """Close the selector and the sockets."""
        self.selector.close()
        self._readable.close()
        self._wakeup.close()

    def _woken(self, argument: Any, mask: int) -> None:
        try:
            while self._readable.recv(4096):
                pass
        except BlockingIOError:
            pass
