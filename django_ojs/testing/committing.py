"""Run code inside the transaction of a test as if there were none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DatabaseError, connections, transaction

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


def refuse_atomic(what: str, databases: Iterable[str]) -> None:
    """Raise ``RuntimeError`` in an ``atomic()`` block that is not that of ``TestCase``."""
    if any(is_in_block(connections[using]) for using in databases):
        raise RuntimeError(
            f"{what} was called inside atomic(): no worker sees these jobs before the commit, "
            "so call it after the block"
        )


def is_in_block(connection: BaseDatabaseWrapper) -> bool:
    """Whether the test, or the code under test, is inside an ``atomic()`` of its own."""
    blocks: list[Any] = connection.atomic_blocks
    return bool(blocks) and not blocks[-1]._from_testcase


def opened_connections() -> Iterable[BaseDatabaseWrapper]:
    """Those of this thread, to all databases that it has used."""
    return connections.all(initialized_only=True)


def as_by_worker(call: Callable[[], T]) -> T:
    """Call a handler as :func:`as_committed` in each database in which the test has a transaction: its
    jobs may be in one, what it writes in another.
    """
    for connection in opened_connections():
        if connection.in_atomic_block and not is_in_block(connection):
            call = partial(as_committed, connection.alias, call)
    return call()


def is_verdict_of_test(error: BaseException) -> bool:
    """Whether an exception is meant for the test run, not for the job: Ctrl-C, ``pytest.fail()``."""
    outcomes = sys.modules.get("_pytest.outcomes")
    return isinstance(error, (KeyboardInterrupt, getattr(outcomes, "OutcomeException", ())))


def as_committed(using: str, call: Callable[[], T]) -> T:
    """Call it, and have what it writes count as committed when it returns or raises.

    Without a transaction it is simply called. In that of ``TestCase`` it gets a savepoint that durable
    blocks take for the outermost transaction; afterwards the ``on_commit`` callbacks of this savepoint
    run, and no others. The savepoint is kept when the call raises, as a worker has committed each
    statement by then. Only where the database has given the transaction up (PostgreSQL, after an error
    in no ``atomic()`` of its own) is it rolled back.
    """
    connection = connections[using]
    if not connection.in_atomic_block:
        return call()
    first = len(connection.run_on_commit)
    returned: list[T] = []
    raised: BaseException | None = None
    block: Any = transaction.atomic(using=using)
    block._from_testcase = True
    try:
        with block:
            try:
                returned.append(call())
            except BaseException as error:
                if is_verdict_of_test(error):
                    raise
                raised = error
    except DatabaseError as error:
        raised = raised or error
    try:
        _run_callbacks(connection, first)
    except BaseException as error:
        raised = raised or error
    if raised is not None:
        raise raised
    return returned[0]


@contextmanager
def commits(using: str | None = None) -> Iterator[None]:
    """Let the ``on_commit`` callbacks that are registered in the block run at its end, those of every
    database unless one is named.

    For tests in the transaction of ``TestCase``, which is never committed; elsewhere they run by
    themselves. Each runs once, whatever else captures it.
    """
    chosen = connections.all() if using is None else [connections[using]]
    first = {connection: len(connection.run_on_commit) for connection in chosen}
    yield
    while any(_run_callbacks(one, first[one]) for one in chosen if one.in_atomic_block):
        # One database's callbacks may register others of another.
        continue


def _run_callbacks(connection: BaseDatabaseWrapper, first: int) -> bool:
    """Run what was registered since, and what that registers; each once, whatever captures it later.
    Returns whether there was any.
    """
    there = len(connection.run_on_commit) > first
    while len(connection.run_on_commit) > first:
        registered: Any = connection.run_on_commit.pop(first)
        _, callback, robust = registered
        try:
            callback()
        except Exception:
            if not robust:
                raise
    return there
