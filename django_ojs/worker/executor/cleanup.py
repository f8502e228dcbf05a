"""Clean up around each job, so that no job sees traces of the one before."""

from __future__ import annotations

import signal

from django.db import connections

from django_ojs import clock
from django_ojs.worker import sessions
from django_ojs.worker.executor import signal_calls
from django_ojs.worker.executor.background import Threads
from django_ojs.worker.executor.event_loop import CoroutineRunner
from django_ojs.worker.executor.process_state import ProcessWatch
from django_ojs.worker.prefork import linux

CHECK_AFTER_IDLE = 1.0
"""Seconds without a job after which connections are tested before the next one."""


def drop_inherited_connections() -> None:
    """Drop the parent's connections without closing them, which would end them for the parent too."""
    for connection in connections.all(initialized_only=True):
        connection.connection = None


class Surroundings:
    """The state of an executor before its first job, restored after each job."""

    def __init__(self, loop: CoroutineRunner) -> None:
        sessions.watch_sessions()
        self._process = ProcessWatch()
        self._loop = loop
        self._threads = Threads(loop.pool.owns)
        self._idle_since: float | None = None

    def before_job(self) -> None:
        """Test connections that were idle for a while before a handler depends on them."""
        if self._idle_since is None or clock.boottime() - self._idle_since < CHECK_AFTER_IDLE:
            return
        try_connections()
        self._threads.in_pool(try_connections)

    def after_job(self) -> list[str]:
        """Roll back what the handler left open; return what else it has left or changed.

        Its alarm would interrupt the next job, and the signals that it blocked would not reach it.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal_calls.pthread_sigmask(signal.SIG_SETMASK, ())
        sessions.tidy_connections()
        left = self._process.differences()
        left += self._loop.left()
        if "threads" not in left and self._threads.left(sessions.tidy_connections):
            left.append("threads")
        if linux.has_children():
            left.append("child processes")
        self._idle_since = clock.boottime()
        return left


def try_connections() -> None:
    """Close the connections of this thread that have gone while it was idle."""
    for connection in sessions.open_connections():
        if not connection.is_usable():
            connection.close()
