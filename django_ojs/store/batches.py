"""Write sets of rows in parts of bounded size, and isolate a row that fails.

A transaction's part has at most a quarter of MariaDB's ``max_allowed_packet``, and 8 MiB anywhere; its
statements have less. A part whose transaction fails is halved, down to one row; a row that fails
alone is set aside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

from django.db import Error, InterfaceError, InternalError, OperationalError, connections

from django_ojs import clock
from django_ojs.engines import EngineFamily, family_of
from django_ojs.store.columns import ColumnType
from django_ojs.store.contention import is_contention, is_held, is_not_ready
from django_ojs.store.sessions import close_broken

logger = logging.getLogger("django_ojs.batches")
T = TypeVar("T")

OUTAGE = (OperationalError, InterfaceError, InternalError, OSError)
"""Errors that an outage raises. A statement that the server rejects may raise the same:
:func:`is_outage` tells them apart.
"""
MAX_BYTES = 8 << 20
_SMALL = 256 << 10
"""Always below a quarter of ``max_allowed_packet``: not worth a query."""
_MEASURED = 50
"""The number of rows whose sizes are read at once."""
_packets: dict[str, int] = {}


def max_bytes(using: str) -> int:
    """How much text the record set of one statement may have.

    A quarter of the packet, since escaping makes four characters of one at the worst, and since a
    character has at most four bytes.
    """
    if family_of(connections[using]) is not EngineFamily.MYSQL:
        return MAX_BYTES
    if using not in _packets:
        with connections[using].cursor() as cur:
            cur.execute("SELECT @@max_allowed_packet")
            _packets[using] = int(cur.fetchone()[0])
    return min(MAX_BYTES, _packets[using] // 4)


def fits(kinds: Sequence[ColumnType], columns: Sequence[Iterable[Any]], using: str) -> bool:
    """Whether the columns of a record set are small enough for one statement.

    MariaDB reads a large set for longer than it writes its rows one by one, which needs none.
    """
    size = sum(
        sum(map(len, filter(None, column)))
        for kind, column in zip(kinds, columns, strict=True)
        if kind in (ColumnType.JSON, ColumnType.TEXT)
    )
    if family_of(connections[using]) is EngineFamily.MYSQL:
        return size <= _SMALL
    return size <= MAX_BYTES


def in_batches(
    items: Iterable[T],
    work: Callable[[Sequence[T]], object],
    *,
    refused: Callable[[T, Exception], None],
    size: Callable[[T], int] = lambda item: 0,
    most: int,
    most_bytes: int = MAX_BYTES,
    until: float | None = None,
    using: str,
) -> None:
    """Do ``work``, one transaction, to all items: in parts of at most ``most``, bounded by ``size``
    to ``most_bytes``. No part is begun after ``until`` (boottime) but the first.

    What is tried again in halves is a part that failed, unless the database is away or the part lost
    a race: those errors are raised, and the parts that were done stay done. An item that fails alone
    is given to ``refused`` with its error; by an error that an outage may have caused, twice. So is an
    item that has no ``size``.
    """

    def fits(held: int) -> bool:
        return held <= _SMALL or held <= min(most_bytes, max_bytes(using))

    def measured() -> Iterator[tuple[T, int]]:
        for item in items:
            try:
                held = size(item)
            except Exception as error:
                refused(item, error)
            else:
                yield item, held

    for part in parts(measured(), itemgetter(1), fits, most=most):
        _halving([item for item, _ in part], work, refused, using)
        if until is not None and clock.boottime() >= until:
            break


def parts(
    items: Iterable[T],
    size: Callable[[T], int],
    fits: Callable[[int], bool],
    *,
    most: float = inf,
) -> Iterator[list[T]]:
    """The items in parts of at most ``most`` that together have a size that ``fits``, or of one.

    No more of them are taken than the parts that are asked for need.
    """
    part: list[T] = []
    held = 0
    for item in items:
        held += size(item)
        if part and (len(part) >= most or not fits(held)):
            yield part
            part, held = [], size(item)
        part.append(item)
    if part:
        yield part


def parts_that_fit(
    keys: Sequence[T], sizes_of: Callable[[Sequence[T]], Mapping[T, int | None]], most_bytes: int
) -> Iterator[list[T]]:
    """The keys of rows in parts that hold no more text than ``most_bytes``, or one row.

    Of how many more it is known how large they are is bounded too: to find that out, a server reads
    them.
    """
    sizes: dict[T, int | None] = {}

    def measured() -> Iterator[T]:
        for start in range(0, len(keys), _MEASURED):
            some = keys[start : start + _MEASURED]
            sizes.update(sizes_of(some))
            yield from some

    return parts(measured(), lambda key: sizes.get(key) or 0, lambda held: held <= most_bytes)


def _halving(
    part: Sequence[T],
    work: Callable[[Sequence[T]], object],
    refused: Callable[[T, Exception], None],
    using: str,
) -> None:
    waiting = [part]
    retried = False
    while waiting:
        part = waiting.pop()
        try:
            work(part)
        except Exception as error:
            suspect = isinstance(error, OUTAGE)
            if is_contention(error) or is_held(error) or (suspect and is_outage(error, using)):
                raise
            if len(part) > 1:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
            elif suspect and not retried:
                # The connection may just have been cut.
                logger.warning("a transaction failed and is tried again: %s", error)
                waiting.append(part)
                retried = True
                continue
            else:
                refused(part[0], error)
        retried = False


def is_outage(error: BaseException, using: str) -> bool:
    """Whether a statement failed because the database is away: it says so itself, and answers ``SELECT
    1`` all the same, or it does not answer on another connection either.
    """
    return is_not_ready(error) or not answers(using)


def answers(using: str) -> bool:
    """Whether the database answers on a connection that nothing has failed on, a new one if need be;
    ``False`` within a transaction.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        return False
    close_broken(using)
    try:
        with connection.cursor() as cur:
            cur.execute("SELECT 1")
            cur.fetchone()
    except (Error, OSError):
        return False
    return True


class SetAside:
    """Rows that failed alone: left out for a second, and twice as long each time, up to a minute."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._until: dict[Hashable, tuple[float, float]] = {}

    def add(self, job_id: UUID, error: Exception, using: str) -> None:
        """Leave the job out for now, and log the error."""
        now, key = clock.boottime(), (using, job_id)
        for old in [old for old, (until, wait) in self._until.items() if until + wait < now]:
            del self._until[old]
        wait = min(60.0, 2 * self._until.get(key, (0.0, 0.5))[1])
        self._until[key] = (now + wait, wait)
        logger.error(
            "%s of job %s failed, tried again in %g s: %s",
            self._what,
            job_id,
            wait,
            error,
            exc_info=error,
            extra={"job_id": str(job_id), "reason": str(error)},
        )

    def __len__(self) -> int:
        return len(self._until)

    def without(self, ids: Iterable[UUID], using: str) -> list[UUID]:
        """The jobs that are not set aside now."""
        now = clock.boottime()
        return [job_id for job_id in ids if self._until.get((using, job_id), (0.0, 0.0))[0] <= now]
