"""Time and randomness: no other module reads either.

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
from math import inf
from typing import Any, NamedTuple

from django.db import connections

from django_ojs import conf
from django_ojs.boottime import boottime as boottime
from django_ojs.domain.ids import Uuid7Generator, uuid4_of
from django_ojs.engines import EngineFamily, family_of

_REMEASURE_SECONDS = 60.0
_STAMP_SECONDS = 1.0
LEAST_STEP = timedelta(seconds=2)
_PRECISE = 0.1
_UNAPPLIED_SECONDS = 30.0
_SERVER_TIME = {
    EngineFamily.POSTGRESQL: "clock_timestamp()",
    EngineFamily.MYSQL: "UTC_TIMESTAMP(6)",
    EngineFamily.SQLITE: None,
}
STEPS = "(SELECT clock_steps FROM django_ojs_maintenancerun WHERE name = 'reap')"
"""SQL expression for the number of steps of the server's clock that have been applied."""
_ids = Uuid7Generator()
_dice = random.SystemRandom()


def server_time(using: str) -> str | None:
    """Return the SQL expression for a database's time; ``None`` for SQLite, which uses the host's.

    Raises ``ImproperlyConfigured`` for databases of no known family: the clocks of several hosts would
    not agree.
    """
    return _SERVER_TIME[family_of(connections[using])]


def host_time() -> datetime:
    """Return the time of this host, for what no other host judges."""
    return datetime.now(UTC)


class Origin(NamedTuple):
    """A time of the database, and the :func:`boottime` of that moment.

    ``steps`` is how many steps of the server's clock had been applied, ``None`` if unknown. ``took``
    has the seconds that the answer took: the time may be wrong by half of them.
    """

    time: datetime
    at: float
    steps: int | None
    took: float = 0.0


class DatabaseClock:
    """Database time, computed from its distance to :func:`boottime`.

    Answers that carry the server's time correct the distance (:meth:`observe`); after a minute without
    one the server is asked. A sudden change by more than two seconds is a *step* of the server's clock.
    The old distance stays in force until a scan (``services.reaper``) has moved the running jobs by the
    step and has counted it; every process that sees the new count then takes the new distance.
    """

    def __init__(self) -> None:
        self._origins: dict[str, Origin] = {}
        self._checked_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._off: dict[str, tuple[timedelta, float]] = {}

    def now(self, using: str) -> datetime:
        """Return the time of the database ``using``."""
        return self._time(using, _REMEASURE_SECONDS, False)

    def stamp(self, using: str) -> datetime:
        """Return the time by a distance that was right a second ago."""
        return self._time(using, min(_STAMP_SECONDS, _REMEASURE_SECONDS), True)

    def observe(
        self,
        using: str,
        time: datetime,
        steps: int | None,
        sent: float,
        received: float,
        *,
        is_host_time: bool = False,
    ) -> None:
        """Take over the server's time, asked for at ``sent``, and the number of steps applied, which is
        ``None`` if it was not asked for. The host's time is that of the moment ``received``.
        """
        known, took = self._origins.get(using), 0.0 if is_host_time else received - sent
        fresh = Origin(time, received - took / 2, steps, took)
        off = time - _at(known, fresh.at) if known is not None else timedelta(0)
        self._checked_at[using] = received
        if steps is not None:
            self._asked_at[using] = sent
        if known is not None and steps is None:
            fresh = fresh._replace(steps=known.steps)
        if known is None or known.steps not in (None, fresh.steps):
            self._take(using, fresh)
        elif abs(off) <= LEAST_STEP + timedelta(seconds=took + known.took):
            self._off.pop(using, None)
            # A slow answer is less precise than the known distance.
            if took < max(_PRECISE, known.took):
                self._origins[using] = fresh
            elif known.steps is None:
                self._origins[using] = known._replace(steps=steps)
        else:
            since = self._off.get(using, (off, received))[1]
            self._off[using] = off, since
            if received - since > _UNAPPLIED_SECONDS:
                # No scan has applied the step, so no reaper is running.
                self._take(using, fresh)

    def step(self, using: str) -> timedelta | None:
        """Return the step of the server's clock that was seen but is not applied yet."""
        found = self._off.get(using)
        return None if found is None else found[0]

    def applied(self, using: str, step: timedelta, steps: int) -> None:
        """Take the new distance."""
        known = self._origins[using]
        self._take(using, known._replace(time=known.time + step, steps=steps))

    def steps(self, using: str) -> int | None:
        """Return how many steps the distance in force includes."""
        known = self._origins.get(using)
        return None if known is None else known.steps

    def expire(self, using: str, within: float = 0.0) -> None:
        """Ask the server at the next call, unless its last answer was to a question of the last
        ``within`` seconds.
        """
        if boottime() - self._asked_at.get(using, -inf) >= within:
            self._checked_at.pop(using, None)

    def forget(self) -> None:
        """Measure again at the next call: after a fork, and in tests."""
        self._origins.clear()
        self._checked_at.clear()
        self._asked_at.clear()
        self._off.clear()

    def _take(self, using: str, origin: Origin) -> None:
        self._origins[using] = origin
        self._off.pop(using, None)

    def _time(self, using: str, longest: float, counted: bool) -> datetime:
        known, at = self._origins.get(using), boottime()
        checked_at = self._checked_at.get(using)
        if known is not None and known.took > LEAST_STEP.total_seconds():
            longest = min(longest, _STAMP_SECONDS)
        if known is None or checked_at is None or not 0 <= at - checked_at < longest:
            self._ask(using, known, counted)
            at = boottime()
        return _at(self._origins[using], at)

    def _ask(self, using: str, known: Origin | None, counted: bool) -> None:
        """Ask the server for its time. On failure the last distance stays; without one the error is
        raised.

        Uses a cursor of the driver, so that counts of a request's statements do not include this one.
        """
        connection = connections[using]
        if known is not None and connection.needs_rollback:
            return
        time = server_time(using)
        asked = [expression for expression in (time, STEPS if counted else None) if expression]
        steps = None
        try:
            value, sent = host_time(), boottime()
            received = sent
            if asked:
                connection.ensure_connection()
                with connection.wrap_database_errors, closing(connection.create_cursor()) as cur:
                    sent = boottime()
                    cur.execute(f"SELECT {', '.join(asked)}")
                    row = list(cur.fetchone())
                    value, received = host_time(), boottime()
                steps = (row.pop() or 0) if counted else None
                value = aware(row[0]) if time else value
        except Exception:
            if known is None:
                raise
            return
        self.observe(using, value, steps, sent, received, is_host_time=time is None)


def _at(origin: Origin, boottime: float) -> datetime:
    return origin.time + timedelta(seconds=boottime - origin.at)


def aware(value: datetime) -> datetime:
    """Convert a time of a driver to UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class FrozenClock(DatabaseClock):
    """A clock for tests, which moves only on demand."""

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__()
        self.time = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.off: timedelta | None = None
        self.number: int | None = 0

    def now(self, using: str) -> datetime:
        """Return the time of the clock."""
        return self.time

    stamp = now

    def set_server(self, seconds: float) -> None:
        """Pretend that the server's clock was set by so many seconds, and that this was seen."""
        self.off = timedelta(seconds=seconds)

    def step(self, using: str) -> timedelta | None:
        """Return the step of :meth:`set_server`."""
        return self.off

    def applied(self, using: str, step: timedelta, steps: int) -> None:
        """Move by the step."""
        self.time, self.off, self.number = self.time + step, None, steps

    def steps(self, using: str) -> int | None:
        """Return the number of the last step that was applied."""
        return self.number

    def advance(self, seconds: float) -> datetime:
        """Move by ``seconds`` (backwards too) and return the new time."""
        self.time += timedelta(seconds=seconds)
        return self.time


database_clock = DatabaseClock()
_current = database_clock


def now(using: str) -> datetime:
    """Return the current time of the database ``using``; of a replica that of its primary."""
    return _current.now(_timekeeper(using))


def read(using: str, within: float = 0.0) -> datetime:
    """Ask the database ``using`` for its time, where an older answer is not good enough.

    One to a question of the last ``within`` seconds is, such as a statement that :func:`carried` it.
    """
    database_clock.expire(using, within)
    return stamp(using)


def stamp(using: str) -> datetime:
    """Return the time for what other processes judge (claims, beats); at most a second off."""
    return _current.stamp(_timekeeper(using))


def _timekeeper(using: str) -> str:
    settings = conf.current()
    return settings.database if using == settings.read_database else using


def step(using: str) -> timedelta | None:
    """Return the step of the server's clock that was seen but is not applied yet."""
    return _current.step(using)


def applied(using: str, step: timedelta, steps: int) -> None:
    """Take over a step, which this process has applied as number ``steps``."""
    _current.applied(using, step, steps)


def steps(using: str) -> int | None:
    """Return the number of steps applied, as far as this process knows."""
    return _current.steps(using)


def disagreement(using: str) -> timedelta | None:
    """Return how far the database's clock is ahead of this host's, if that is over two seconds.

    Only logs, and times that a project stores itself, depend on the host's clock.
    """
    off = now(using) - host_time()
    return off if abs(off) > LEAST_STEP else None


def columns(using: str) -> str:
    """Two columns for a statement that tells the time as well, for :func:`carried`."""
    return f"{server_time(using) or 'NULL'}, {STEPS}"


def carried(using: str, value: Any, steps: int | None, sent: float) -> None:
    """Observe an answer that had the :func:`columns` of the time; its question was sent at ``sent``."""
    received, is_host_time = boottime(), value is None
    time = host_time() if is_host_time else aware(value)
    database_clock.observe(using, time, steps or 0, sent, received, is_host_time=is_host_time)


@contextmanager
def using_clock(clock: DatabaseClock) -> Iterator[DatabaseClock]:
    """Use ``clock`` within the block; for tests."""
    global _current
    before, _current = _current, clock
    try:
        yield clock
    finally:
        _current = before


def new_id() -> uuid.UUID:
    """Make a UUIDv7 (RFC 9562), such as the ``id`` of a job; increasing within the process."""
    return _ids.next(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big"))


def new_ids(count: int) -> list[uuid.UUID]:
    """Make increasing UUIDv7s for one batch, from one drawing of random bits."""
    if count < 1:
        return []
    steps = array("I", os.urandom(4 * (count - 1)))
    random_bits = int.from_bytes(os.urandom(10), "big")
    return _ids.several(time.time_ns() // 1_000_000, random_bits, steps)


def new_lease() -> uuid.UUID:
    """Make a lease id of 122 random bits, which cannot be guessed."""
    return uuid.uuid4()


def new_leases(count: int) -> list[uuid.UUID]:
    """Make as many, from one drawing of random bits."""
    bits = os.urandom(16 * count)
    return [uuid4_of(int.from_bytes(bits[at : at + 16], "big")) for at in range(0, 16 * count, 16)]


def jitter() -> float:
    """Return a random number in [0, 1), to spread retries and polls."""
    return _dice.random()


def pause(seconds: float) -> None:
    """Sleep, as between retries after contention and between polls."""
    time.sleep(seconds)


if hasattr(os, "register_at_fork"):

    def _after_fork() -> None:
        global _ids
        _ids = Uuid7Generator()
        database_clock.forget()

    os.register_at_fork(after_in_child=_after_fork)
