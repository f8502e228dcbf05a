"""Lists, figures and metrics from a replica: ``OJS["READ_DATABASE"]``.

Only what is read within :func:`on_replica` may come from there, so claims, locks and the look at one
job never do. A replica that fails, also by a recovery conflict that cancels a statement, costs a
second reading on the primary, and no answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse

from django_ojs import clock, conf
from django_ojs.store import replication
from django_ojs.store.contention import is_contention, is_held, is_timeout

T = TypeVar("T")
SAFE = ("GET", "HEAD", "OPTIONS")
_COOKIE = "ojs_wrote"
log = logging.getLogger("django_ojs.reading")

MOST_BEHIND_S = 30
"""Seconds for which a user who has changed something reads the primary. A replica that is further
behind is not read at all, so nobody misses a change of their own afterwards.
"""
_REST_S = 10
"""A replica that did not answer is left alone for so long: each attempt may take its timeout."""
_resting: dict[str, float] = {}


@dataclass(slots=True)
class Reading:
    """What one request reads: ``lag`` is in seconds, ``None`` while it reads the primary."""

    primary: str
    replica: str
    alias: str = ""
    lag: float | None = None
    refused: str = ""
    """Why the replica is not read: ``lag`` or ``failed``."""

    current: ClassVar[ContextVar[Reading | None]] = ContextVar("django_ojs.reading", default=None)

    def choose(self) -> str:
        """The alias to read, decided at the first question."""
        if not self.alias:
            self.alias = self._found()
        return self.alias

    def _found(self) -> str:
        rested = _resting.get(self.replica)
        if rested is not None and 0 <= clock.boottime() - rested < _REST_S:
            self.refused = "failed"
            return self.primary
        try:
            lag = replication.lag(self.primary, self.replica)
        except (DatabaseError, InterfaceError) as error:
            _resting[self.replica] = clock.boottime()
            log.warning("the replica %r does not answer: the primary is read: %s", self.replica, error)
            self.refused = "failed"
            return self.primary
        _resting.pop(self.replica, None)
        if lag > MOST_BEHIND_S:
            self.lag, self.refused = lag, "lag"
            return self.primary
        self.lag = lag
        return self.replica


def database() -> str:
    """The alias that lists read: the replica within :func:`on_replica`, else ``OJS["DATABASE"]``."""
    reading = Reading.current.get()
    return conf.current().database if reading is None else reading.choose()


def current() -> Reading | None:
    """What is read in this context; ``None`` outside :func:`on_replica`."""
    reading = Reading.current.get()
    if reading is not None:
        reading.choose()
    return reading


def is_on() -> bool:
    """Whether there is a replica to read."""
    return conf.current().read_database is not None


def is_repeated(error: BaseException) -> bool:
    """Whether what is shown is read again after an error: a lost race, and on a replica anything but
    that a statement took too long.
    """
    reading = Reading.current.get()
    if reading is not None and reading.alias == reading.replica:
        return not is_timeout(error)
    return is_contention(error) and not is_held(error)


def on_replica(work: Callable[[], T], *, latest: bool = False) -> T:
    """Run ``work`` with :func:`database` on the replica, and again on the primary if that failed.

    Without a replica, or with ``latest``, only the latter. ``work`` must not write. A statement that
    took too long on the replica is not repeated: its ``OperationalError`` is raised.
    """
    settings = conf.current()
    replica = settings.read_database
    if replica is None or latest or Reading.current.get() is not None:
        return work()
    reading = Reading(settings.database, replica)
    token = Reading.current.set(reading)
    try:
        return work()
    except (DatabaseError, InterfaceError) as error:
        if reading.alias != replica or not is_repeated(error):
            raise
        log.warning("the replica %r failed: the primary is read: %s", replica, error)
        reading.alias, reading.lag, reading.refused = reading.primary, None, "failed"
        return work()
    finally:
        Reading.current.reset(token)


def needs_latest(request: HttpRequest) -> bool:
    """Whether what is read for a request must be the primary's: it may write, its client has changed
    something in the last ``MOST_BEHIND_S`` seconds, or says ``Cache-Control: no-cache``.
    """
    return (
        request.method not in SAFE
        or _COOKIE in request.COOKIES
        or "no-cache" in request.headers.get("Cache-Control", "")
    )


def remember_write(request: HttpRequest, response: HttpResponse) -> None:
    """Have a client that may have changed something read the primary for ``MOST_BEHIND_S`` seconds.

    By a cookie, so that it holds whichever process answers next, and costs no statement.
    """
    if is_on() and request.method not in SAFE and response.status_code < 500:
        response.set_cookie(
            _COOKIE, "1", MOST_BEHIND_S, secure=request.is_secure(), httponly=True, samesite="Lax"
        )
