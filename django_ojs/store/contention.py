"""Transactions that lose a race with another one are run again, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from django.db import DatabaseError, OperationalError, connections, transaction

from django_ojs import clock

T = TypeVar("T")

_TRIES = 8
_WAITED = frozenset({"55P03", 1205})
_SQLSTATES = frozenset({"40001", "40P01"}) | _WAITED
_MYSQL_CODES = frozenset({1213, 1020}) | _WAITED
_SQLITE_WORDS = ("database is locked", "database table is locked")
_lock_tries: ContextVar[int] = ContextVar("django_ojs.lock_tries", default=_TRIES)


class RowHeld(OperationalError):
    """A row was passed over, since another transaction holds it; later it can be written."""


def is_contention(error: BaseException) -> bool:
    """Whether running the transaction again may succeed: deadlock, serialization, lock timeout."""
    code = _code(error)
    return code in _SQLSTATES or code in _MYSQL_CODES or _is_locked(code)


def is_held(error: BaseException) -> bool:
    """Whether this session waited for a lock as long as it may: somebody else holds a row, or more."""
    code = _code(error)
    return isinstance(error, RowHeld) or code in _WAITED or _is_locked(code)


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
    """In the block, waits for locks are not begun again and again: the caller comes back later."""
    before = _lock_tries.set(tries)
    try:
        yield
    finally:
        _lock_tries.reset(before)


def atomically(using: str, work: Callable[[], T]) -> T:
    """Run ``work`` in a transaction, again when it lost a race; part of the caller's if there is one.

    Inside the caller's transaction there is no second try: the error is the caller's to handle.
    """
    if connections[using].in_atomic_block:
        with transaction.atomic(using=using):
            return work()
    waits = 0
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            with transaction.atomic(using=using):
                return work()
        except DatabaseError as error:
            waits += is_held(error)
            if not tries_left or waits >= _lock_tries.get() or not is_contention(error):
                raise
            clock.pause(0.01 * 2 ** (_TRIES - 1 - tries_left) * (0.5 + clock.jitter()))
    raise AssertionError("unreachable")
