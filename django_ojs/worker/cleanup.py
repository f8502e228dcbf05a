"""What is put in order around each job, so that no job sees anything of the one before."""

from __future__ import annotations

import contextlib
import signal
import threading

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock
from django_ojs.worker import processes
from django_ojs.worker.frames import Frame

_CHECK_AFTER_IDLE = 1.0
_idle_since: float | None = None


def forget_inherited() -> None:
    """A forked process must not use, nor close, the connections of its parent."""
    for connection in connections.all(initialized_only=True):
        connection.connection = None


def before_job() -> None:
    """A connection that was idle for a while is tried before a handler depends on it."""
    if _idle_since is None or clock.boottime() - _idle_since < _CHECK_AFTER_IDLE:
        return
    for connection in _open_connections():
        if not connection.is_usable():
            connection.close()


def after_job() -> Frame:
    """Roll back what the handler left open; say what else it left: threads, child processes.

    Its alarm would go off in the next job, and what it has masked would not reach that.
    """
    global _idle_since
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    tidy_connections()
    _idle_since = clock.boottime()
    left: Frame = {}
    if threading.active_count() > 2:
        left["threads"] = threading.active_count() - 2
    if processes.has_children():
        left["children"] = True
    return left


def tidy_connections() -> None:
    """Make the connections of this thread fit for what comes next: no transaction is open on them,
    and one that broke is closed.
    """
    for connection in _open_connections():
        connection.queries_log.clear()
        with contextlib.suppress(Exception):
            if connection.in_atomic_block or not connection.get_autocommit():
                try:
                    connection.close()
                finally:
                    _reset(connection)
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
