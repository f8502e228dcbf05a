"""Transactions that lost a race are run again; the only place that knows vendors' error codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from django.db import DatabaseError, Error, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock, conf
from django_ojs.engines import EngineFamily, family_of

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 8
_WAITED = frozenset({"55P03", 1205})
_SQLSTATES = frozenset({"40001", "40P01"}) | _WAITED
_MYSQL_CODES = frozenset({1213, 1020}) | _WAITED
_NOT_READY = 1047
_TOOK_TOO_LONG = frozenset({"57014", 1969, 3024})
_SQLITE_WORDS = ("database is locked", "database table is locked")
_OWN = "_ojs_own_transaction"
_lock_tries: ContextVar[int] = ContextVar("django_ojs.lock_tries", default=_TRIES)


class RowHeld(OperationalError):
    """Another transaction holds the row; retry later."""


class LockLost(OperationalError):
    """A row that this transaction had locked was changed by another: retry.

    On a Galera cluster, where the locks of a node are its own. A transaction that has written something
    gets error 1213 for it; one that has only locked may go on without them.
    """


def is_contention(error: BaseException) -> bool:
    """Whether running the transaction again may succeed: deadlock, serialization, lock timeout."""
    code = _code(error)
    return isinstance(error, LockLost) or code in _SQLSTATES or code in _MYSQL_CODES or _is_locked(code)


def is_held(error: BaseException) -> bool:
    """Whether a lock was waited for as long as allowed: another transaction holds a row, or a table."""
    code = _code(error)
    return isinstance(error, RowHeld) or code in _WAITED or _is_locked(code)


def is_timeout(error: BaseException) -> bool:
    """Whether the server has cancelled a statement that took too long."""
    return _code(error) in _TOOK_TOO_LONG


def is_not_ready(error: BaseException) -> bool:
    """Whether the server answers, and executes nothing: a Galera node that has lost the majority of
    its cluster, or has yet to catch up with it.
    """
    return _code(error) == _NOT_READY


def _is_locked(code: object) -> bool:
    return isinstance(code, str) and code.startswith(_SQLITE_WORDS)


def _code(error: BaseException) -> object:
    cause = error.__cause__ or error
    first = cause.args[0] if cause.args else None
    if isinstance(first, int):
        return first
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or first


@contextmanager
def impatient(tries: int = 2) -> Iterator[None]:
    """Give up in the block after so many lock timeouts; the caller retries later."""
    before = _lock_tries.set(tries)
    try:
        yield
    finally:
        _lock_tries.reset(before)


def atomically(using: str, work: Callable[[], T]) -> T:
    """Run ``work`` in a transaction, and again when it lost a race, up to eight times.

    Inside a transaction of the caller it is a savepoint, and not repeated: the error is raised.
    """
    connection = connections[using]
    if is_in_transaction(connection):
        with _transaction(using):
            return work()

    def run() -> T:
        with _transaction(using):
            setattr(connection, _OWN, True)
            try:
                return work()
            finally:
                # Before the commit: what follows it may begin transactions of others.
                setattr(connection, _OWN, False)

    return _again(run, _lock_tries.get())


def alone(using: str, work: Callable[[], T]) -> T:
    """Run ``work``, one statement or one transaction that it opens itself, and again when it lost a
    race, up to eight times.

    Unlike :func:`atomically` it costs no BEGIN and COMMIT. A lock that was waited for in vain is not
    waited for again. Inside a transaction of the caller nothing is repeated: the error is raised.
    """
    return work() if is_in_transaction(connections[using]) else _again(work, 1)


def is_own_transaction(using: str) -> bool:
    """Whether the open transaction was begun by :func:`atomically`: nobody can keep it open, so that
    its locks are held for a moment.
    """
    return getattr(connections[using], _OWN, False)


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open, which only who opened it can run again."""
    return connection.in_atomic_block or not (connection.connection is None or connection.autocommit)


def _again(work: Callable[[], T], most_waits: int) -> T:
    waits = 0
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            return work()
        except DatabaseError as error:
            waits += is_held(error)
            if not tries_left or waits >= most_waits or not is_contention(error):
                raise
            clock.pause(0.01 * 2 ** (_TRIES - 1 - tries_left) * (0.5 + clock.jitter()))
    raise AssertionError("unreachable")


@contextmanager
def _transaction(using: str) -> Iterator[None]:
    """A transaction, or a savepoint in one. If even the end of an outermost one fails, the session is
    closed.

    Autocommit is off then, and Django would take the next transaction for a part of one that is open:
    it would never be committed, without an error.
    """
    connection = connections[using]
    ends = connection.connection is None or connection.autocommit
    try:
        with transaction.atomic(using=using):
            yield
    except BaseException:
        if ends and connection.connection is not None and not connection.autocommit:
            with suppress(Error, OSError):
                connection.close()
        raise


@contextmanager
def repeating_statements(using: str) -> Iterator[None]:
    """Run each statement of the block that is in no transaction as :func:`alone` does.

    A server that makes all transactions serializable may refuse any of them, one that reads too.
    """

    def run(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if is_in_transaction(connections[using]):
            return execute(sql, params, many, context)
        return _again(lambda: execute(sql, params, many, context), 1)

    with connections[using].execute_wrapper(run):
        yield


def see_latest(using: str) -> None:
    """At the start of a transaction: let each statement see what is committed, and wait instead of
    failing, whatever the session's isolation level. Only PostgreSQL can, and it alone needs it.
    """
    if family_of(connections[using]) is EngineFamily.POSTGRESQL:
        with connections[using].cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


def in_transaction(work: Callable[P, T]) -> Callable[P, T]:
    """Run the function as :func:`atomically` does, in the database of its keyword argument ``using``.

    Left out or empty, ``using`` becomes ``OJS["DATABASE"]``. A repeated run gets the same arguments, so
    none of them may be an iterator. A function that locks rows reads the time after it has the locks.
    """

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        using = str(kwargs.get("using") or conf.current().database)
        kwargs["using"] = using
        return atomically(using, partial(work, *args, **kwargs))

    return run
