"""What is put in order around each job, so that no job sees anything of the one before."""

from __future__ import annotations

import contextlib
import signal

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock
from django_ojs.worker import processes, signals
from django_ojs.worker.background import Threads
from django_ojs.worker.process_state import ProcessWatch
from django_ojs.worker.session_state import end_session, is_changed, watch_sessions

_CHECK_AFTER_IDLE = 1.0


def forget_inherited() -> None:
    """A forked process must not use, nor close, the connections of its parent."""
    for connection in connections.all(initialized_only=True):
        connection.connection = None


class Surroundings:
    """What an executor was like before its first job, to be so again before the next."""

    def __init__(self) -> None:
        watch_sessions()
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
        signals.pthread_sigmask(signal.SIG_SETMASK, ())
        tidy_connections()
        left = self._process.differences()
        if self._threads.left(tidy_connections):
            left.append("threads")
        if processes.has_children():
            left.append("child processes")
        self._idle_since = clock.boottime()
        return left


def _try_connections() -> None:
    for connection in _open_connections():
        if not connection.is_usable():
            connection.close()


def tidy_connections() -> None:
    """Make the connections of this thread fit for what comes next: no transaction is open on them;
    one that broke, or whose session was changed, is closed.
    """
    for connection in _open_connections():
        connection.queries_log.clear()
        with contextlib.suppress(Exception):
            if connection.in_atomic_block or not connection.get_autocommit():
                try:
                    connection.close()
                finally:
                    _reset(connection)
            elif is_changed(connection):
                end_session(connection)
            elif connection.errors_occurred and not connection.is_usable():
                connection.close()
            connection.errors_occurred = False


def close_connections() -> None:
    """Close every connection of this thread: a query was interrupted on one of them.

    The wrapper reconnects at the next query, unless the handler is inside ``atomic()``: that block
    is rolled back first.
    """
    for connection in _open_connections():
        with contextlib.suppress(Exception):
            connection.close()


def _open_connections() -> list[BaseDatabaseWrapper]:
    return [
        connection
        for connection in connections.all(initialized_only=True)
        if connection.connection is not None
    ]


def _reset(connection: BaseDatabaseWrapper) -> None:
    """Forget a transaction that a handler opened and left."""
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    connection.run_on_commit = []
    connection.connection = None
