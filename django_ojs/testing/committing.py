"""Run code inside the transaction of a test as if there were none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DatabaseError, connections, transaction

from django_ojs import conf

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


def refuse_atomic(what: str, using: str) -> None:
    """Raise ``RuntimeError`` in an ``atomic()`` block that is not that of ``TestCase``."""
    blocks: list[Any] = connections[using].atomic_blocks
    if blocks and not blocks[-1]._from_testcase:
        raise RuntimeError(
            f"{what} was called inside atomic(): no worker sees these jobs before the commit, "
            "so call it after the block"
        )


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
    """Let the ``on_commit`` callbacks that are registered in the block run at its end.

    For tests in the transaction of ``TestCase``, which is never committed; elsewhere they run by
    themselves. Each runs once, whatever else captures it.
    """
    connection = connections[using or conf.current().database]
    first = len(connection.run_on_commit)
    yield
    if connection.in_atomic_block:
        _run_callbacks(connection, first)


def _run_callbacks(connection: BaseDatabaseWrapper, first: int) -> None:
    """Run what was registered since, and what that registers; each once, whatever captures it later."""
    while len(connection.run_on_commit) > first:
        registered: Any = connection.run_on_commit.pop(first)
        _, callback, robust = registered
        try:
            callback()
        except Exception:
            if not robust:
                raise
