"""Time and dice: the only module that asks for either.

Below the adapters ``now`` is an argument. Adapters take it from :func:`now`, which is the clock of
the *database*, so that every host agrees about deadlines. Durations inside a process use
:func:`boottime`, which no clock change moves and which counts a suspended minute.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_ojs.domain.ids import Uuid7Generator

_REMEASURE_SECONDS = 60.0
_QUERIES = {
    "postgresql": "SELECT clock_timestamp()",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}
_WRAPPED = "django.db.backends.postgresql.base"
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_ids = Uuid7Generator()
_dice = random.SystemRandom()


class Clock(Protocol):
    """Anything that knows the time of a database."""

    def now(self, using: str) -> datetime:
        """The aware time, in UTC, that rows of the database ``using`` are stamped with."""


def boottime() -> float:
    """Seconds on a clock that never jumps; on Linux it goes on while the machine is suspended."""
    return time.clock_gettime(_STEADY)


def time_query(using: str) -> str | None:
    """The statement that asks a database for its time; ``None`` for SQLite, which has the host's.

    Any backend built on Django's for PostgreSQL is asked like that. For another vendor
    ``ImproperlyConfigured`` is raised: by the clocks of its hosts no two of them would agree.
    """
    connection = connections[using]
    if connection.vendor == "sqlite":
        return None
    query = _QUERIES.get(connection.vendor)
    if query is None and any(kind.__module__ == _WRAPPED for kind in type(connection).__mro__):
        query = _QUERIES["postgresql"]
    if query is None:
        raise ImproperlyConfigured(
            f"django_ojs cannot ask a database of the vendor {connection.vendor!r} for its time"
        )
    return query


class SystemClock:
    """The clock of this host: for SQLite, whose file lives on one host."""

    def now(self, using: str) -> datetime:
        """The time of this host."""
        return datetime.now(UTC)


class DatabaseClock:
    """Database time from its measured distance to :func:`boottime`, measured once a minute.

    A failed measurement keeps the last distance; the error is raised only if there is none yet.
    """

    def __init__(self) -> None:
        self._origins: dict[str, tuple[datetime, float]] = {}

    def now(self, using: str) -> datetime:
        """The time of the database ``using``."""
        measured = self._origins.get(using)
        at = boottime()
        if measured is None or not 0 <= at - measured[1] < _REMEASURE_SECONDS:
            query = time_query(using)
            if query is None:
                return datetime.now(UTC)
            measured = self._measure(using, query, measured)
            at = boottime()
        return measured[0] + timedelta(seconds=at - measured[1])

    def _measure(
        self, using: str, query: str, last: tuple[datetime, float] | None
    ) -> tuple[datetime, float]:
        best = float("inf")
        try:
            with connections[using].cursor() as cursor:
                # The quickest of three answers: connecting, or a busy moment, is no part of it.
                for _ in range(3):
                    before = boottime()
                    cursor.execute(query)
                    row = cursor.fetchone()
                    took = boottime() - before
                    if took < best:
                        best, at, value = took, before + took / 2, row[0]
        except Exception:
            if last is None:
                raise
            return last
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        origin: tuple[datetime, float] = (value.astimezone(UTC), at)
        self._origins[using] = origin
        return origin

    def forget(self) -> None:
        """Measure anew at the next call: after a fork, and in tests."""
        self._origins.clear()


class FrozenClock:
    """A clock for tests: stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self.time = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self, using: str) -> datetime:
        """Where the clock stands."""
        return self.time

    def advance(self, seconds: float) -> datetime:
        """Move by ``seconds`` (backwards too) and return the new time."""
        self.time += timedelta(seconds=seconds)
        return self.time


database_clock = DatabaseClock()
_current: Clock = database_clock


def now(using: str) -> datetime:
    """The time for everything that happens in the database ``using``."""
    return _current.now(using)


def read(using: str) -> datetime:
    """The time of the database ``using``, asked of it now: for what must not rest on an old answer."""
    database_clock.forget()
    return now(using)


@contextmanager
def using_clock(clock: Clock) -> Iterator[Clock]:
    """Within the block :func:`now` asks ``clock``; for tests."""
    global _current
    before, _current = _current, clock
    try:
        yield clock
    finally:
        _current = before


def new_id() -> uuid.UUID:
    """A fresh UUIDv7, monotonic within the process."""
    return _ids.next(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big"))


def new_ids(count: int) -> list[uuid.UUID]:
    """Fresh UUIDv7s in growing order, for one batch: from one drawing of random bits."""
    if count < 1:
        return []
    steps = array("I", os.urandom(4 * (count - 1)))
    random_bits = int.from_bytes(os.urandom(10), "big")
    return _ids.several(time.time_ns() // 1_000_000, random_bits, steps)


def new_lease() -> uuid.UUID:
    """A fresh lease id: 122 random bits that nobody can guess, never used before."""
    return uuid.uuid4()


def jitter() -> float:
    """A random number in [0, 1) for spreading retries and polls."""
    return _dice.random()


def pause(seconds: float) -> None:
    """Sleep: between tries after contention, and between polls."""
    time.sleep(seconds)


if hasattr(os, "register_at_fork"):

    def _after_fork() -> None:
        global _ids
        _ids = Uuid7Generator()
        database_clock.forget()

    os.register_at_fork(after_in_child=_after_fork)
