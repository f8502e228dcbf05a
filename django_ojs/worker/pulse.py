"""A sign that the executor is neither stopped nor frozen: a byte now and then from a thread."""

from __future__ import annotations

import contextlib
import os
import threading


class Pulse(threading.Thread):
    """Writes to a pipe of its own while a job runs, so that frames are never torn."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="ojs-pulse", daemon=True)
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._period = 1.0
        self._running = False
        self._never = threading.Event()

    def busy(self, period: float) -> None:
        """A job runs: a byte every ``period`` seconds."""
        self._period = period
        self._running = True

    def idle(self) -> None:
        """Nothing runs."""
        self._running = False

    def run(self) -> None:
        """Until the process ends."""
        while True:
            self._never.wait(min(self._period, 0.5))
            if self._running:
                with contextlib.suppress(OSError):
                    os.write(self._descriptor, b".")
