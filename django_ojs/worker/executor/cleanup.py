"""What is put in order around each job, so that no job sees anything of the one before."""

from __future__ import annotations

import signal

from django.db import connections

from django_ojs import clock
from django_ojs.worker import sessions
from django_ojs.worker.executor import signal_calls
from django_ojs.worker.executor.background import Threads
from django_ojs.worker.executor.process_state import ProcessWatch
from django_ojs.worker.prefork import linux

_CHECK_AFTER_IDLE = 1.0


def forget_inherited() -> None:
    """A forked process must not use, nor close, the connections of its parent."""
    for connection in connections.all(initialized_only=True):
        connection.connection = None


class Surroundings:
    """What an executor was like before its first job, to be so again before the next."""

    def __init__(self) -> None:
        sessions.watch_sessions()
        self._process = ProcessWatch()
        self._threads = Threads()
        self._idle_since: float | None = None

    def before_job(self) -> None:
        """A connection that was idle for a while is tried before a handler depends on it."""
        if self._idle_since is None or clock.boottime() - self._idle_since < _CHECK_AFTER_IDLE:
            return
        _try_connections()
        self._threads.in_pool(_try_connections)

    def after_job(self) -> list[str]:
        """Roll back what the handler left open; say what else it has left or changed.

        Its alarm would go off in the next job, and what it has masked would not reach that.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal_calls.pthread_sigmask(signal.SIG_SETMASK, ())
        sessions.tidy_connections()
        left = self._process.differences()
        if self._threads.left(sessions.tidy_connections):
            left.append("threads")
        if linux.has_children():
            left.append("child processes")
        self._idle_since = clock.boottime()
        return left


def _try_connections() -> None:
    for connection in sessions.open_connections():
        if not connection.is_usable():
            connection.close()
