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
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_ojs.boottime import boottime as boottime
from django_ojs.domain.ids import Uuid7Generator

_REMEASURE_SECONDS = 60.0
_STAMP_SECONDS = 1.0
_STEP = timedelta(seconds=2)
_PRECISE = 0.1
_UNAPPLIED_SECONDS = 30.0
_SERVER_TIME = {
    "postgresql": "clock_timestamp()",
    "mysql": "UTC_TIMESTAMP(6)",
}
_WRAPPED = "django.db.backends.postgresql.base"
STEPS = "(SELECT clock_steps FROM django_ojs_maintenancerun WHERE name = 'reap')"
"""How many steps of the server's clock have been applied, as an expression."""
_ids = Uuid7Generator()
_dice = random.SystemRandom()


class Clock(Protocol):
    """Anything that knows the time of a database."""

    def now(self, using: str) -> datetime:
        """The aware time, in UTC, that rows of the database ``using`` are stamped with."""

    def stamp(self, using: str) -> datetime:
        """The same, for what others judge: no process may be behind a step of the server's clock."""

    def step(self, using: str) -> timedelta | None:
        """The step of the server's clock that was seen and is not applied yet."""

    def applied(self, using: str, step: timedelta, steps: int) -> None:
        """This process has applied the step, as number ``steps``."""

    def steps(self, using: str) -> int | None:
        """How many steps were applied to what is stored by this clock, if it knows."""


def server_time(using: str) -> str | None:
    """The expression that is a database's own time; ``None`` for SQLite, which has the host's.

    Any backend built on Django's for PostgreSQL is asked like that. For another vendor
    ``ImproperlyConfigured`` is raised: by the clocks of its hosts no two of them would agree.
    """
    connection = connections[using]
    if connection.vendor == "sqlite":
        return None
    expression = _SERVER_TIME.get(connection.vendor)
    if expression is None and any(kind.__module__ == _WRAPPED for kind in type(connection).__mro__):
        expression = _SERVER_TIME["postgresql"]
    if expression is None:
        raise ImproperlyConfigured(
            f"django_ojs cannot ask a database of the vendor {connection.vendor!r} for its time"
        )
    return expression


class SystemClock:
    """The clock of this host: for SQLite, whose file lives on one host."""

    def now(self, using: str) -> datetime:
        """The time of this host."""
        return datetime.now(UTC)

    stamp = now

    def step(self, using: str) -> timedelta | None:
        """It steps with the host."""
        return None

    def applied(self, using: str, step: timedelta, steps: int) -> None:
        """Nothing to take over."""

    def steps(self, using: str) -> int | None:
        """There are no steps to count."""
        return None


class Origin(NamedTuple):
    """A time of the database and when it was that by :func:`boottime`.

    ``steps`` is how many steps of the server's clock had been applied, ``None`` if nobody asked.
    """

    time: datetime
    at: float
    steps: int | None


class DatabaseClock:
    """Database time from its distance to :func:`boottime`, which every answer that carries the time of
    the server corrects (:meth:`observe`); the server is asked when none has for a minute.

    A distance that is suddenly another one by more than two seconds is a *step* of the server's clock.
    The old distance stays in force until a scan has moved what runs by the step and has counted it
    (``services.reaper``): from then on every process that sees the new number takes the new distance.
    """

    def __init__(self) -> None:
        self._origins: dict[str, Origin] = {}
        self._checked_at: dict[str, float] = {}
        self._off: dict[str, tuple[timedelta, float]] = {}

    def now(self, using: str) -> datetime:
        """The time of the database ``using``."""
        return self._time(using, _REMEASURE_SECONDS, False)

    def stamp(self, using: str) -> datetime:
        """The same, by a distance that was right a second ago: for what others judge."""
        return self._time(using, min(_STAMP_SECONDS, _REMEASURE_SECONDS), True)

    def observe(
        self, using: str, time: datetime, steps: int | None, sent: float, received: float
    ) -> None:
        """An answer that was asked for at ``sent`` carried the server's time, and, unless ``steps`` is
        ``None``, how many steps of its clock have been applied.
        """
        known = self._origins.get(using)
        fresh = Origin(time, (sent + received) / 2, steps)
        off = time - _at(known, fresh.at) if known is not None else timedelta(0)
        self._checked_at[using] = received
        if known is not None and steps is None:
            fresh = fresh._replace(steps=known.steps)
        if known is None or known.steps not in (None, fresh.steps):
            self._take(using, fresh)
        elif abs(off) <= _STEP + timedelta(seconds=received - sent):
            self._off.pop(using, None)
            # A slow answer says less than the distance that is known.
            if received - sent < _PRECISE:
                self._origins[using] = fresh
            elif known.steps is None:
                self._origins[using] = known._replace(steps=steps)
        else:
            since = self._off.get(using, (off, received))[1]
            self._off[using] = off, since
            if received - since > _UNAPPLIED_SECONDS:
                # No scan has applied the step: no reaper is running.
                self._take(using, fresh)

    def step(self, using: str) -> timedelta | None:
        """The step of the server's clock that this process has seen and that is not applied yet."""
        found = self._off.get(using)
        return None if found is None else found[0]

    def applied(self, using: str, step: timedelta, steps: int) -> None:
        """Take the distance that the server has now."""
        known = self._origins[using]
        self._take(using, Origin(known.time + step, known.at, steps))

    def steps(self, using: str) -> int | None:
        """How many steps the distance in force knows of."""
        known = self._origins.get(using)
        return None if known is None else known.steps

    def expire(self, using: str) -> None:
        """Ask the server at the next call."""
        self._checked_at.pop(using, None)

    def forget(self) -> None:
        """Measure again at the next call: after a fork, and in tests."""
        self._origins.clear()
        self._checked_at.clear()
        self._off.clear()

    def _take(self, using: str, origin: Origin) -> None:
        self._origins[using] = origin
        self._off.pop(using, None)

    def _time(self, using: str, longest: float, counted: bool) -> datetime:
        known, at = self._origins.get(using), boottime()
        checked_at = self._checked_at.get(using)
        if known is None or checked_at is None or not 0 <= at - checked_at < longest:
            self._ask(using, known, counted)
            at = boottime()
        return _at(self._origins[using], at)

    def _ask(self, using: str, known: Origin | None, counted: bool) -> None:
        """A failed question keeps the last distance; the error is raised only if there is none yet.

        On a cursor of the driver: who counts the statements of a request, or asserts their number,
        is not to count this one.
        """
        connection = connections[using]
        if known is not None and connection.needs_rollback:
            return
        time = server_time(using)
        asked = [expression for expression in (time, STEPS if counted else None) if expression]
        steps = None
        try:
            value, sent = datetime.now(UTC), boottime()
            received = sent
            if asked:
                connection.ensure_connection()
                with connection.wrap_database_errors, closing(connection.create_cursor()) as cur:
                    sent = boottime()
                    cur.execute(f"SELECT {', '.join(asked)}")
                    row = list(cur.fetchone())
                    received = boottime()
                steps = (row.pop() or 0) if counted else None
                value = aware(row[0]) if time else datetime.now(UTC)
        except Exception:
            if known is None:
                raise
            return
        self.observe(using, value, steps, sent, received)


def _at(origin: Origin, boottime: float) -> datetime:
    return origin.time + timedelta(seconds=boottime - origin.at)


def aware(value: datetime) -> datetime:
    """A time as a driver gives it, in UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class FrozenClock:
    """A clock for tests: stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self.time = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.off: timedelta | None = None
        self.number: int | None = 0

    def now(self, using: str) -> datetime:
        """Where the clock stands."""
        return self.time

    stamp = now

    def set_server(self, seconds: float) -> None:
        """The server's clock was set by so much, and this process has seen it."""
        self.off = timedelta(seconds=seconds)

    def step(self, using: str) -> timedelta | None:
        """What :meth:`set_server` said."""
        return self.off

    def applied(self, using: str, step: timedelta, steps: int) -> None:
        """Go on by the server's clock."""
        self.time, self.off, self.number = self.time + step, None, steps

    def steps(self, using: str) -> int | None:
        """The number of the last step that was applied."""
        return self.number

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
    database_clock.expire(using)
    return stamp(using)


def stamp(using: str) -> datetime:
    """The time for what others judge: claims, beats. Right a second ago."""
    return _current.stamp(using)


def step(using: str) -> timedelta | None:
    """The step of the server's clock that was seen and that nobody has applied yet."""
    return _current.step(using)


def applied(using: str, step: timedelta, steps: int) -> None:
    """This process has applied a step, as number ``steps``."""
    _current.applied(using, step, steps)


def steps(using: str) -> int | None:
    """How many steps this process knows to be applied."""
    return _current.steps(using)


def disagreement(using: str) -> timedelta | None:
    """By how much the clock of the database ``using`` is ahead of this host's, if by over two seconds.

    Nothing here goes by the clock of the host; logs and what a project writes itself do.
    """
    off = now(using) - datetime.now(UTC)
    return off if abs(off) > _STEP else None


def carried(using: str, value: Any, steps: int | None, sent: float) -> None:
    """An answer that came just now carried :func:`server_time` (or nothing) and ``STEPS``."""
    received = boottime()
    time = datetime.now(UTC) if value is None else aware(value)
    database_clock.observe(using, time, steps or 0, sent, received)


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
    """A fresh UUIDv7 (RFC 9562), such as the ``id`` of a job; growing within the process."""
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
