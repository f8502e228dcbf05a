"""Threads that outlive a job, and which of them cost its process.

One that the handler started and that still works would work on beside the next job: its executor is
replaced. Threads that were there before, those of known exporters, and one that only waits in the pool
of ``sync_to_async`` are no reason for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from typing import Any

from asgiref.sync import SyncToAsync

from django_ojs import clock, conf

EXPORTERS = ("Otel", "sentry.", "ddtrace", "posthog")
"""How the names of threads begin that send traces and errors away."""
PATIENCE_S = 0.1
"""How long the threads of a job, all together, may take to end after it."""


def is_background(thread: threading.Thread) -> bool:
    """Whether it belongs to a known exporter or to ``OJS["BACKGROUND_THREADS"]``."""
    return thread.name.startswith((*EXPORTERS, *conf.current().background_threads))


class Threads:
    """The threads of an executor that no handler is to blame for."""

    def __init__(self) -> None:
        self._known = set(threading.enumerate())
        self._pool_thread: threading.Thread | None = None

    def left(self, tidy: Callable[[], object]) -> int:
        """How many threads the job has left at work.

        ``tidy`` is run in the thread of ``sync_to_async`` where there is one: the database connections
        of asynchronous handlers are opened there.
        """
        new = self._new()
        if self._pool_thread is None and not new:
            return 0
        until = clock.boottime() + PATIENCE_S
        stuck = self._tidy_pool(tidy, until)
        new = self._new()
        for thread in new:
            # One that another language has started cannot be joined.
            with suppress(RuntimeError, AssertionError):
                thread.join(max(0.0, until - clock.boottime()))
        left = sum(thread.is_alive() for thread in new)
        self._known = set(threading.enumerate())
        return left + (stuck and not left)

    def _new(self) -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t not in self._known and not is_background(t)]

    def _tidy_pool(self, tidy: Callable[[], object], until: float) -> bool:
        """Tidy up in the thread of ``sync_to_async``; whether it is still at work.

        Asking it is the only way to learn which one it is, and starts it where there is none yet: that
        costs a thread in a process that has another one it cannot account for.
        """

        def work() -> threading.Thread:
            tidy()
            return threading.current_thread()

        future: Any = SyncToAsync.single_thread_executor.submit(work)
        try:
            self._pool_thread = future.result(max(0.0, until - clock.boottime()))
        except NotInTime:
            future.cancel()
            return True
        self._known.add(self._pool_thread)
        return False

    def in_pool(self, work: Callable[[], object]) -> None:
        """Run ``work`` in the thread of ``sync_to_async`` too, where there is one."""
        if self._pool_thread is not None:
            with suppress(NotInTime):
                SyncToAsync.single_thread_executor.submit(work).result(PATIENCE_S)
