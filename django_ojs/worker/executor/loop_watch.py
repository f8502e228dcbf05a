"""A thread that notices when a coroutine holds up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from django_ojs import clock

PATIENCE_S = 1.0
"""Seconds for which the loop may not answer."""
_EVERY = 0.25
_SHORT = 0.05


class LoopWatch(threading.Thread):
    """Calls ``report(task, seconds)`` each time that the loop has not answered for so long.

    ``task`` is the one that runs, ``seconds`` what has passed since the last report.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[asyncio.Task[Any] | None, float], None],
    ) -> None:
        super().__init__(name="ojs-loopwatch", daemon=True)
        self._loop = loop
        self._report = report
        self._wanted = threading.Event()
        self._answered = threading.Event()
        self._never = threading.Event()

    def wake(self) -> None:
        """Watch: jobs run."""
        self._wanted.set()

    def rest(self) -> None:
        """Sleep: no job runs."""
        self._wanted.clear()

    def run(self) -> None:
        """Watch until the process ends."""
        with contextlib.suppress(RuntimeError):
            # The loop is closed at the end.
            while self._wanted.wait():
                self._look()
                self._never.wait(_EVERY)

    def _look(self) -> None:
        self._answered.clear()
        asked_at = clock.boottime()
        self._loop.call_soon_threadsafe(self._answered.set)
        # The second look is for a process that was suspended: its loop answers at once.
        while not self._answered.wait(PATIENCE_S) and not self._answered.wait(_SHORT):
            now = clock.boottime()
            self._report(asyncio.current_task(self._loop), now - asked_at)
            asked_at = now
