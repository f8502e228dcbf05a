"""Settings of a session: statement, lock and idle-transaction timeouts, TCP keepalive, planner options.

PostgreSQL's names are used for all servers. ``statement_timeout`` limits the statements of one block;
the others hold for every connection that a worker or reaper opens while their block runs. Other users
of the same alias are unaffected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ojs.engines import EngineFamily, family_of, is_postgresql
from django_ojs.store import hung_sessions
from django_ojs.store.dialects.mysql import is_galera_node
from django_ojs.store.dialects.postgresql import prepare_repeated
from django_ojs.store.sockets import CONNECT_TIMEOUT_S, descriptor_of, set_keepalive

IDLE_TRANSACTION_S = 5
"""Seconds that a transaction of a worker or reaper may be idle; they take milliseconds."""
LOCK_TIMEOUT_MS = 250
"""Milliseconds that a worker or reaper waits for a lock."""
_depth: ContextVar[int] = ContextVar("django_ojs.limits", default=0)
"""How many blocks of ``statement_timeout`` enclose the current code."""
_LIMITS = ("statement_timeout", "lock_timeout")
_PLANNER = ("enable_seqscan", "enable_sort", "jit")
"""Only PostgreSQL has these: others that speak its language refuse the names."""


@contextmanager
def _on_connect(using: str, act: Callable[[BaseDatabaseWrapper], None]) -> Iterator[None]:
    """Call ``act`` with every connection to ``using`` that is opened while the block runs.

    A connection that this thread opened in the block is closed at its end, so that ``act`` does not
    outlive a command that was started with ``call_command``.
    """

    def opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
        if connection.alias == using:
            act(connection)

    own = connections[using]
    before = own.connection
    connection_created.connect(opened, weak=False)
    try:
        yield
    finally:
        connection_created.disconnect(opened)
        if own.connection is not before:
            own.close()


def _on_session(
    using: str, statement: Callable[[BaseDatabaseWrapper], str | None]
) -> AbstractContextManager[None]:
    """Run ``statement``, if it gives one, in every session that is opened while the block runs; not
    where ``DISABLE_SERVER_SIDE_CURSORS`` says that a pooler shares sessions.
    """

    def prepare(connection: BaseDatabaseWrapper) -> None:
        shared = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
        if shared and family_of(connection) is not EngineFamily.SQLITE:
            return
        if (text := statement(connection)) is not None:
            with connection.cursor() as cur:
                cur.execute(text)

    return _on_connect(using, prepare)


def close_broken(using: str) -> None:
    """Close the connection on which a statement failed; keep one that was opened after it.

    A transaction that fails reconnects before its error is raised. To close that connection too would
    double the time of a failover, where connecting begins with a host that does not answer.
    """
    connection = connections[using]
    if connection.errors_occurred:
        with suppress(Error, OSError):
            connection.close()


def idle_transaction_timeout(using: str) -> AbstractContextManager[None]:
    """Have the server end transactions that this process leaves idle for five seconds.

    A suspended process would otherwise keep the row locks of its jobs, which could then be neither
    reaped nor reported. PostgreSQL and MariaDB only: SQLite and MySQL have no such limit.
    """

    def limit(connection: BaseDatabaseWrapper) -> str | None:
        if family_of(connection) is EngineFamily.POSTGRESQL:
            return f"SET idle_in_transaction_session_timeout = {IDLE_TRANSACTION_S * 1000}"
        if getattr(connection, "mysql_is_mariadb", False):
            return f"SET SESSION idle_transaction_timeout = {IDLE_TRANSACTION_S}"
        return None

    return _on_session(using, limit)


def lock_timeout(using: str) -> AbstractContextManager[None]:
    """Fail statements of this process that wait for a lock longer than 250 ms; callers retry later.

    MariaDB and MySQL count whole seconds: 1 s there, for table locks too.
    """

    def limit(connection: BaseDatabaseWrapper) -> str:
        family = family_of(connection)
        if family is EngineFamily.SQLITE:
            return f"PRAGMA busy_timeout = {LOCK_TIMEOUT_MS}"
        if family is EngineFamily.POSTGRESQL:
            return f"SET lock_timeout = {LOCK_TIMEOUT_MS}"
        return "SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1"

    return _on_session(using, limit)


def read_in_index_order(using: str) -> AbstractContextManager[None]:
    """Keep PostgreSQL from sorting in a process that claims, so that it reads in index order.

    Where statistics say that no jobs wait, all claim indexes cost the same and sorting one row costs
    nothing: the planner would read and sort a whole backlog. Of a table that is small when a statement
    is prepared it would read all, and keep that plan when the table has grown. JIT is off too: it is
    chosen by the same estimates and takes longer than any statement of such a process.
    """

    def configure(connection: BaseDatabaseWrapper) -> str | None:
        if not is_postgresql(connection):
            return None
        methods = ("seqscan", "sort", "incremental_sort")
        return "; ".join([*(f"SET enable_{name} = off" for name in methods), "SET jit = off"])

    return _on_session(using, configure)


def prepared_statements(using: str) -> AbstractContextManager[None]:
    """Have PostgreSQL parse and plan once what a session executes again and again (``repeated`` in
    :mod:`django_ojs.store.dialect`): of a claim that takes a millisecond that is half.

    With psycopg 3 only, and not where a pooler shares sessions. A ``prepare_threshold`` of the
    project's own is kept.
    """

    def configure(connection: BaseDatabaseWrapper) -> None:
        if is_postgresql(connection):
            prepare_repeated(connection)

    return _on_connect(using, configure)


def caught_up(using: str) -> AbstractContextManager[None]:
    """Let a new session with a node of a Galera cluster see all that was committed before it began.

    A commit is acknowledged when the other nodes have received it; they apply it a moment later. A
    worker that a balancer has led to one of them would not find the leases that it holds, and stop
    their handlers. Takes two statements for each connection to MariaDB, and on a node the time that it
    is behind; raises ``OperationalError`` if that is longer than ``repl.causal_read_timeout`` (30 s).
    """

    def wait(connection: BaseDatabaseWrapper) -> None:
        if hung_sessions.is_probe():
            return
        try:
            if not is_galera_node(connection):
                return
            with connection.cursor() as cur:
                cur.execute("SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1")
                cur.fetchone()
        except Error:
            connection.close()
            raise

    return _on_connect(using, wait)


@contextmanager
def statement_timeout(
    ms: int, *, using: str, by_index: bool = False, in_order: bool = False
) -> Iterator[None]:
    """Cancel statements of the block that take longer than ``ms``; SQLite has no such limit.

    On PostgreSQL, ``by_index`` disables sequential scans: when half of the rows match, the planner may
    prefer reading the whole table. ``in_order`` disables sorting, for a planner without statistics.
    JIT is off: compiling would take longer than reading. Waiting for a lock ends after half of the
    time: unlike a slow statement (``contention.is_timeout``), one that waits may be quick elsewhere.
    Raises ``OperationalError`` for a cancelled statement.
    """
    connection = connections[using]
    family = family_of(connection)
    if family is EngineFamily.POSTGRESQL:
        outer = connection.in_atomic_block or not connection.get_autocommit()
        names = list(_LIMITS)
        values = [f"{ms}ms", f"{ms // 2}ms"]
        if is_postgresql(connection):
            names += _PLANNER
            values += ["off" if by_index else "on", "off" if in_order else "on", "off"]
        known = ", ".join(f"current_setting('{name}')" for name in names)
        local = ", ".join(f"set_config('{name}', %s, true)" for name in names)
        with transaction.atomic(using=using), connection.cursor() as cur:
            cur.execute(f"SELECT {known}, {local}", values)
            before = cur.fetchone()[: len(names)]
            yield
            # Local settings survive a released savepoint, but not one that was rolled back.
            if outer and not connection.needs_rollback:
                cur.execute(f"SELECT {local}", before)
    elif family is EngineFamily.MYSQL:
        # Reading ``mysql_is_mariadb`` of a closed connection would open another one.
        connection.ensure_connection()
        name: str = "max_execution_time"
        value: float = ms
        if getattr(connection, "mysql_is_mariadb", False):
            name, value = "max_statement_time", ms / 1000
        depth = _depth.get()
        # Restored from a variable, not to DEFAULT: an init_command may have set another value.
        old = f"@ojs_limit_{depth}"
        with connection.cursor() as cur:
            cur.execute(f"SET {old} = @@SESSION.{name}, SESSION {name} = %s", [value])
            _depth.set(depth + 1)
            try:
                yield
            finally:
                _depth.set(depth)
                cur.execute(f"SET SESSION {name} = {old}")
    else:
        yield


@contextmanager
def connect_timeout(using: str) -> Iterator[None]:
    """Bound the time to connect to 3 s, for connections that are opened in the block; ``OPTIONS`` of
    the project take precedence.
    """
    settings = connections[using].settings_dict
    if family_of(connections[using]) is EngineFamily.SQLITE:
        yield
        return
    before = settings["OPTIONS"]
    settings["OPTIONS"] = {"connect_timeout": CONNECT_TIMEOUT_S, **before}
    try:
        yield
    finally:
        settings["OPTIONS"] = before


@contextmanager
def tcp_keepalive(using: str) -> Iterator[None]:
    """Detect dead connections in 6 s instead of about 15 minutes, and bound the time to connect to 3 s;
    cut those to a server that is suspended (:mod:`django_ojs.store.hung_sessions`).

    Without it a worker or reaper hangs for as long as its server is unreachable. For connections that
    are opened in the block; PostgreSQL's own ``OPTIONS`` for keepalive take precedence.
    """

    def guard(connection: BaseDatabaseWrapper) -> None:
        session = connection.connection
        if waits_for_greeting:
            session._read_timeout = None
        set_keepalive(descriptor_of(session), connection.settings_dict["OPTIONS"])
        hung_sessions.watch(session)

    settings = connections[using].settings_dict
    if family_of(connections[using]) is EngineFamily.SQLITE:
        yield
        return
    before = settings["OPTIONS"]
    limits = {"connect_timeout": CONNECT_TIMEOUT_S}
    # PyMySQL waits without limit for the greeting of a server that has accepted.
    driver = getattr(connections[using], "Database", None)
    waits_for_greeting = getattr(driver, "__name__", "") == "pymysql" and "read_timeout" not in before
    if waits_for_greeting:
        limits["read_timeout"] = CONNECT_TIMEOUT_S
    settings["OPTIONS"] = {**limits, **before}
    try:
        with _on_connect(using, guard), hung_sessions.cut(using):
            yield
    finally:
        settings["OPTIONS"] = before


@contextmanager
def of_workers(using: str) -> Iterator[None]:
    """What holds for every session of a worker or reaper."""
    with (
        lock_timeout(using),
        idle_transaction_timeout(using),
        tcp_keepalive(using),
        caught_up(using),
        prepared_statements(using),
    ):
        yield
