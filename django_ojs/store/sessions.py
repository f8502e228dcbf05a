"""Nobody holds others up: a time limit on the statements of a list, and on idle transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.store.connecting import at_connecting

IDLE_LIMIT_S = 5
"""How long a transaction of a worker or reaper may do nothing; they take milliseconds."""
LOCK_LIMIT_MS = 250
"""How long a worker or reaper waits for what somebody else has locked."""
_depth: ContextVar[int] = ContextVar("django_ojs.limits", default=0)
"""How many limits this one is within."""
_RESTORE = (
    "SELECT set_config('statement_timeout', %s, true), set_config('enable_seqscan', %s, true),"
    " set_config('enable_sort', %s, true), set_config('jit', %s, true)"
)


@contextmanager
def end_idle_transactions(using: str) -> Iterator[None]:
    """Have the server end transactions that this process leaves open and idle for five seconds.

    A process that is suspended in the middle of one keeps the locks of its jobs for ever: they
    could neither be reaped nor reported. For the connections opened while the block runs; not on
    SQLite and MySQL, which know no such limit, nor where ``DISABLE_SERVER_SIDE_CURSORS`` says that
    sessions are shared with others by a pool.
    """

    def limit(connection: BaseDatabaseWrapper) -> None:
        if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            return
        if connection.vendor == "postgresql":
            # A function: SET takes no parameters where they are bound on the server.
            name = "idle_in_transaction_session_timeout"
            statement, value = f"SELECT set_config('{name}', %s::text, false)", IDLE_LIMIT_S * 1000
        elif getattr(connection, "mysql_is_mariadb", False):
            statement, value = "SET SESSION idle_transaction_timeout = %s", IDLE_LIMIT_S
        else:
            return
        with connection.cursor() as cur:
            cur.execute(statement, [value])

    with at_connecting(using, limit):
        yield


@contextmanager
def bound_lock_waits(using: str) -> Iterator[None]:
    """Have statements of this process that wait for a lock fail after a quarter of a second.

    What fails is tried again later, and nothing else of the worker waits for it. For the connections
    opened while the block runs. MariaDB and MySQL count in whole seconds: one there, for the locks
    of tables too. Not where ``DISABLE_SERVER_SIDE_CURSORS`` says that sessions are shared with others
    by a pool.
    """

    def limit(connection: BaseDatabaseWrapper) -> None:
        if connection.vendor == "sqlite":
            statement = f"PRAGMA busy_timeout = {LOCK_LIMIT_MS}"
        elif connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            return
        elif connection.vendor == "postgresql":
            statement = f"SET lock_timeout = {LOCK_LIMIT_MS}"
        else:
            statement = "SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1"
        with connection.cursor() as cur:
            cur.execute(statement)

    with at_connecting(using, limit):
        yield


@contextmanager
def read_in_index_order(using: str) -> Iterator[None]:
    """Have PostgreSQL read what is ordered by the index that has the order, in a process that claims.

    Where statistics say that nothing waits, all indexes of what waits cost the same, and to sort one
    row costs nothing: it would read a backlog, and sort it. Nothing is compiled either, which would
    start by estimates and take longer than any statement of such a process.

    For the connections opened while the block runs; not where a pool shares sessions with others.
    """

    def tell(connection: BaseDatabaseWrapper) -> None:
        if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            return
        if connection.vendor == "postgresql":
            with connection.cursor() as cur:
                cur.execute("SET enable_sort = off; SET enable_incremental_sort = off; SET jit = off")

    with at_connecting(using, tell):
        yield


@contextmanager
def time_limit(
    ms: int, *, using: str, by_index: bool = False, in_order: bool = False
) -> Iterator[None]:
    """Let the database cancel statements of the block that take longer; SQLite has no such limit.

    ``by_index`` keeps PostgreSQL's planner from reading a whole table: with half of the rows in a
    window it may think that as cheap as the range of an index. Nothing is compiled there: to compile
    would take longer than what is read. ``in_order`` keeps it from sorting too: a planner that knows
    nothing of a table reads all of it, and sorts, for the first rows of an index.

    A cancelled statement raises ``OperationalError``.
    """
    connection = connections[using]
    if connection.vendor == "postgresql":
        outer = connection.in_atomic_block or not connection.get_autocommit()
        with transaction.atomic(using=using), connection.cursor() as cur:
            cur.execute(
                "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan'),"
                " current_setting('enable_sort'), current_setting('jit'),"
                " set_config('statement_timeout', %s, true), set_config('enable_seqscan', %s, true),"
                " set_config('enable_sort', %s, true), set_config('jit', 'off', true)",
                [f"{ms}ms", "off" if by_index else "on", "off" if in_order else "on"],
            )
            before = cur.fetchone()[:4]
            yield
            # They outlive a savepoint that is released, but not one that is rolled back.
            if outer and not connection.needs_rollback:
                cur.execute(_RESTORE, before)
    elif connection.vendor == "mysql":
        # Asked which server it is, a closed one would open another for the answer.
        connection.ensure_connection()
        name: str = "max_execution_time"
        value: float = ms
        if getattr(connection, "mysql_is_mariadb", False):
            name, value = "max_statement_time", ms / 1000
        depth = _depth.get()
        # Not DEFAULT afterwards: an init_command may have set another one.
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
