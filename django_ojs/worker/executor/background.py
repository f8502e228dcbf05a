"""Detect threads that outlive a job.

A thread that the handler started would run on beside the next job, so the executor is replaced.
Threads that existed before, those of known exporters, those of ``asyncio.to_thread``, whose calls are
counted, and an idle one in the pool of ``sync_to_async`` do not count.
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
"""Prefixes of the names of threads that export traces and errors."""
PATIENCE_S = 0.1
"""Seconds that the threads of a job, all together, may take to end after it."""


def is_background(thread: threading.Thread) -> bool:
    """Whether the thread belongs to a known exporter or is in ``OJS["BACKGROUND_THREADS"]``."""
    return thread.name.startswith((*EXPORTERS, *conf.current().background_threads))


class Threads:
    """The threads of an executor that no handler has left behind."""

    def __init__(self, pooled: Callable[[threading.Thread], bool]) -> None:
        self._pooled = pooled
        self._known = set(threading.enumerate())
        self._pool_thread: threading.Thread | None = None

    def left(self, tidy: Callable[[], object]) -> int:
        """Count the threads that the job has left running.

        ``tidy`` runs in the thread of ``sync_to_async`` too, if there is one: asynchronous handlers
        open their database connections there.
        """
        new = self._new()
        if self._pool_thread is None and not new:
            return 0
        until = clock.boottime() + PATIENCE_S
        stuck = self._tidy_pool(tidy, until)
        new = self._new()
        for thread in new:
            # A thread that was not started by Python cannot be joined.
            with suppress(RuntimeError, AssertionError):
                thread.join(max(0.0, until - clock.boottime()))
        left = sum(thread.is_alive() for thread in new)
        self._known = set(threading.enumerate())
        return left + (stuck and not left)

    def _new(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in self._known and not self._pooled(thread) and not is_background(thread)
        ]

    def _tidy_pool(self, tidy: Callable[[], object], until: float) -> bool:
        """Run ``tidy`` in the thread of ``sync_to_async``; return whether that thread is still busy.

        Only a task can find out which thread it is. The task starts the thread if there is none yet,
        which happens only where another unknown thread is running.
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
        """Run ``work`` in the thread of ``sync_to_async``, if there is one."""
        if self._pool_thread is not None:
            with suppress(NotInTime):
                SyncToAsync.single_thread_executor.submit(work).result(PATIENCE_S)
