"""A sign that the executor is neither stopped nor frozen: a byte now and then from a thread."""

from __future__ import annotations

import contextlib
import os
import threading

_REST_AFTER = 10
"""So many looks without a job until the thread sleeps: waking it costs more than a look."""


class LivenessThread(threading.Thread):
    """Writes to a pipe of its own while a job runs, so that frames are never torn.

    Between jobs it goes on for some seconds, so that a job need not wake it; then it sleeps.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="ojs-pulse", daemon=True)
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._period = 1.0
        self._running = False
        self._wanted = threading.Event()
        self._never = threading.Event()

    def busy(self, period: float) -> None:
        """A job runs: a byte every ``period`` seconds."""
        self._period = period
        self._running = True
        if not self._wanted.is_set():
            self._wanted.set()

    def idle(self) -> None:
        """Nothing runs."""
        self._running = False

    def run(self) -> None:
        """Until the process ends."""
        idle = 0
        while self._wanted.wait():
            self._never.wait(min(self._period, 0.5))
            idle = 0 if self._running else idle + 1
            if idle >= _REST_AFTER:
                self._wanted.clear()
            # Asked again: a job that began in between saw this thread awake.
            if self._is_running():
                idle = 0
                self._wanted.set()
                with contextlib.suppress(OSError):
                    os.write(self._descriptor, b".")

    def _is_running(self) -> bool:
        return self._running
