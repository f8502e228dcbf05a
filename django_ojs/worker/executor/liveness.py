"""A thread that shows by regular bytes that the executor is neither stopped nor frozen."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from django_ojs.process_title import set_title

_NONE: tuple[str, ...] = ()
_REST_AFTER = 10
"""Periods without a job until the thread sleeps: waking it costs more than some idle periods."""


class LivenessThread(threading.Thread):
    """Writes bytes to a pipe while a job runs; not to the channel, where it could tear frames.

    Stays awake for some seconds after a job, so that the next one need not wake it; then sleeps. It
    also shows in the title of the process which job runs: for short ones that would cost too much.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="ojs-liveness", daemon=True)
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._period = 1.0
        self._running = False
        self._job = _NONE
        self._shown = _NONE
        self.also: Callable[[], object] = lambda: None
        """Called with every byte; must neither raise nor wait."""
        self._wanted = threading.Event()
        self._never = threading.Event()

    def busy(self, period: float, job_type: str, job_id: str) -> None:
        """A job runs: write a byte every ``period`` seconds."""
        self._period = period
        self._job = (job_type, job_id)
        self._running = True
        if not self._wanted.is_set():
            self._wanted.set()

    def idle(self) -> None:
        """No job runs: write nothing."""
        self._running = False
        self._job = _NONE

    def run(self) -> None:
        """Write until the process ends."""
        self._show()
        idle = 0
        while self._wanted.wait():
            self._never.wait(min(self._period, 0.5))
            idle = 0 if self._running else idle + 1
            if self._job != self._shown:
                self._show()
            if idle >= _REST_AFTER:
                self._wanted.clear()
            # Check again: a job that began in the meantime saw this thread awake.
            if self._is_running():
                idle = 0
                self._wanted.set()
                with contextlib.suppress(OSError):
                    os.write(self._descriptor, b".")
                self.also()

    def _show(self) -> None:
        self._shown = self._job
        set_title(" ".join(("executor:", *self._shown)) if self._shown else "executor, idle")

    def _is_running(self) -> bool:
        return self._running
