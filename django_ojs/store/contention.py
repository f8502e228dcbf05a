"""Transactions that lose a race with another one are run again, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, connections, transaction

from django_ojs import clock

T = TypeVar("T")

_TRIES = 8
_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
_MYSQL_CODES = frozenset({1213, 1205, 1020})
_SQLITE_WORDS = ("database is locked", "database table is locked")


def is_contention(error: BaseException) -> bool:
    """Whether running the transaction again may succeed: deadlock, serialization, lock timeout."""
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) in _SQLSTATES or getattr(cause, "pgcode", None) in _SQLSTATES:
        return True
    first = cause.args[0] if cause.args else None
    if isinstance(first, int):
        return first in _MYSQL_CODES
    return isinstance(first, str) and first.startswith(_SQLITE_WORDS)


def atomically(using: str, work: Callable[[], T]) -> T:
    """Run ``work`` in a transaction, again when it lost a race; part of the caller's if there is one.

    Inside the caller's transaction there is no second try: the error is the caller's to handle.
    """
    if connections[using].in_atomic_block:
        with transaction.atomic(using=using):
            return work()
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            with transaction.atomic(using=using):
                return work()
        except DatabaseError as error:
            if not tries_left or not is_contention(error):
                raise
            clock.pause(0.01 * 2 ** (_TRIES - 1 - tries_left) * (0.5 + clock.jitter()))
    raise AssertionError("unreachable")
