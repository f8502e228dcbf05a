"""The event loop of an executor: one for its life, so that clients which bind to it outlive a job."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django_ojs.handlers import execution
from django_ojs.handlers.context import JobContext
from django_ojs.worker import sessions

T = TypeVar("T")
PATIENCE_S = 1.0
"""Seconds that the tasks of a job, all together, may take to end after it."""


class CountingPool(ThreadPoolExecutor):
    """The threads of ``asyncio.to_thread``; it knows for which jobs calls are under way."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="django_ojs-to-thread")
        self._lock = threading.Lock()
        self._running: Counter[JobContext | None] = Counter()

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread, and tidy up the connections that it used there."""

        def run() -> T:
            try:
                return call(*args, **kwargs)
            finally:
                sessions.tidy_connections()

        future, job = super().submit(run), execution.current()
        with self._lock:
            self._running[job] += 1
        future.add_done_callback(lambda _: self._ended(job))
        return future

    def _ended(self, job: JobContext | None) -> None:
        with self._lock:
            self._running[job] -= 1
            if not self._running[job]:
                del self._running[job]

    @property
    def running(self) -> bool:
        """Whether a call has not ended."""
        return bool(self._running)

    def runs_for(self, job: JobContext) -> bool:
        """Whether a call of this job has not ended."""
        return job in self._running

    def owns(self, thread: threading.Thread) -> bool:
        """Whether it is one of the pool's."""
        return thread in self._threads


class CoroutineRunner:
    """Runs the coroutines of one job after the other. Main thread only."""

    def __init__(self) -> None:
        self.pool = CountingPool()
        self._runner: asyncio.Runner | None = None
        self._left = 0

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; the tasks that it leaves are cancelled."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        # What a handler sets is for itself.
        loop = self._runner.get_loop()
        loop.set_default_executor(self.pool)
        loop.set_exception_handler(None)
        loop.set_task_factory(None)
        alone = self._alone(main)
        try:
            # The context of the runner itself stays that of its first job.
            return self._runner.run(alone, context=contextvars.copy_context())
        except BaseException:
            if inspect.getcoroutinestate(alone) != inspect.CORO_CLOSED:
                # The loop was left in the middle: the tasks would go on beside the next job.
                self._left = 1
            raise

    async def _alone(self, main: Coroutine[Any, Any, T]) -> T:
        try:
            return await main
        finally:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                with contextlib.suppress(asyncio.CancelledError):
                    _, late = await asyncio.wait(others, timeout=PATIENCE_S)
                    self._left = len(late)

    def left(self) -> list[str]:
        """What the last job has left running, which nothing but the end of the process stops."""
        left, self._left = self._left, 0
        return (["tasks"] if left else []) + (["threads"] if self.pool.running else [])

    def close(self) -> None:
        """Close what asynchronous clients have left open."""
        if self._runner is not None:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._runner.close()
