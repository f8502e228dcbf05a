"""Detect database sessions that a handler has changed: settings, locks, temporary tables.

The SQL of the handler is inspected, which costs a job no statement. Statements that bypass Django's
cursors are not seen.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_FIRST_WORDS = re.compile(
    r"\s*(?:SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b)|RESET\b|PRAGMA\b|LISTEN\b|PREPARE\b|USE\b"
    r"|ATTACH\b|LOCK\s+TABLES\b|FLUSH\b|DECLARE\b"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+|LOCAL\s+)?TEMP)",
    re.IGNORECASE,
)
_CALLS = ("advisory_lock", "get_lock", "set_config")
_LOOK_AT = 4000
"""Characters of a statement that are searched for calls: the rest of a long one is values."""

_changed: WeakSet[BaseDatabaseWrapper] = WeakSet()


class _Here(threading.local):
    """The connections that the current thread has opened since they are remembered."""

    def __init__(self) -> None:
        self.opened: list[BaseDatabaseWrapper] = []


_here = _Here()


def changes_session(sql: Any) -> bool:
    """Whether a statement may change the session beyond its transaction."""
    if not isinstance(sql, str):
        return True
    if _FIRST_WORDS.match(sql) is not None:
        return True
    start = sql[:_LOOK_AT].lower()
    return any(call in start for call in _CALLS)


def remember_connections() -> None:
    """Start to note which connections each thread of this process opens, for what tidies them."""
    connection_created.connect(_remember, dispatch_uid="django_ojs.open_connections")


def _remember(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection not in _here.opened:
        _here.opened.append(connection)


def watch_sessions() -> None:
    """Start to watch the sessions of this process, in all threads."""
    remember_connections()
    connection_created.connect(_opened, dispatch_uid="django_ojs.session_state")


def _opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    # Connected last, this runs after the project's own settings of each new connection.
    if _note not in connection.execute_wrappers:
        connection.execute_wrappers.append(_note)
    _changed.discard(connection)


def _note(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    if changes_session(sql):
        _changed.add(context["connection"])
    return execute(sql, params, many, context)


def is_changed(connection: BaseDatabaseWrapper) -> bool:
    """Whether a handler has changed the session of this connection."""
    return connection in _changed


def end_session(connection: BaseDatabaseWrapper) -> None:
    """Close a connection whose session must not be used again, not even through a pool."""
    if getattr(connection, "pool", None) is not None and connection.connection is not None:
        with contextlib.suppress(Exception):
            connection.connection.close()
    connection.close()
    _changed.discard(connection)


def tidy_connections() -> None:
    """Roll back open transactions of this thread; close broken connections and changed sessions."""
    for connection in open_connections():
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
    """Close every connection of this thread, since a query may have been interrupted on one.

    The wrapper reconnects at the next query, unless the handler is inside ``atomic()``: that block
    is rolled back first.
    """
    for connection in open_connections():
        with contextlib.suppress(Exception):
            connection.close()


def open_connections() -> list[BaseDatabaseWrapper]:
    """Those of this thread. To ask Django for them would be a tenth of what a short job costs."""
    return [connection for connection in _here.opened if connection.connection is not None]


def _reset(connection: BaseDatabaseWrapper) -> None:
    """Clear the state of a transaction that a handler left open."""
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    connection.run_on_commit = []
    connection.connection = None
