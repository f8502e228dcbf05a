"""Limits of this process: rates by the second or minute, and places for requests that wait."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django_ojs import clock, conf
from django_ojs.domain.errors import RateLimited
from django_ojs.domain.lru import LRU
from django_ojs.http.principal import Principal

MAX_FAILURES = 30
"""Wrong credentials from one address in a minute, before they are answered with 429."""


class RateWindow:
    """Counts by name within the current fixed window of so many seconds.

    At most ``most`` names are kept; the least recently counted one is dropped.
    """

    def __init__(self, seconds: int, *, most: int = 10_000) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._current = 0
        self._counts: LRU[str, int] = LRU(most)

    def count(self, name: str, amount: int = 1) -> int:
        """Add to a count, and return the new value."""
        current = window_of(self.seconds)
        with self._lock:
            if current != self._current:
                self._current = current
                self._counts.clear()
            now = (self._counts.get(name) or 0) + amount
            self._counts.put(name, now)
            return now

    def clear(self) -> None:
        self._counts.clear()


def window_of(seconds: int) -> int:
    """The number of the current window of so many seconds."""
    return int(clock.boottime() // seconds)


_JOBS = RateWindow(1)
_BYTES = RateWindow(1)
_FAILURES = RateWindow(60)


class Quota(NamedTuple):
    """The jobs that a credential may enqueue in a second, and how many of them are left of this one."""

    limit: int
    remaining: int

    def headers(self) -> dict[str, str]:
        """The headers of OJS HTTP 18.1."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(int(clock.host_time().timestamp()) + 1),
        }


def charge_enqueue(principal: Principal, jobs: int, size: int) -> Quota:
    """Count enqueued jobs, and the bytes of the request, against the rates of the credential.

    One request alone in its second always passes: the size of bodies and batches is limited anyway.
    Raises :class:`RateLimited`.
    """
    http = conf.current().http
    left = 0
    for window, what, amount, rate in (
        (_JOBS, "jobs", jobs, http.enqueue_rate),
        (_BYTES, "bytes of jobs", size, http.enqueue_bytes),
    ):
        counted = window.count(principal.key, amount)
        if counted > max(rate, amount):
            raise RateLimited(
                f"More than {rate} {what} a second with this credential.",
                retry_after=window.seconds,
                limit=rate,
                window_seconds=window.seconds,
            )
        if window is _JOBS:
            left = max(0, rate - counted)
    return Quota(http.enqueue_rate, left)


def charge_failure(address: str) -> None:
    """Count a wrong credential. Raises :class:`RateLimited` for one of many from this address."""
    if _FAILURES.count(address) > MAX_FAILURES:
        raise RateLimited("Too many wrong credentials.", retry_after=_FAILURES.seconds)


class Places:
    """Places for requests that hold a thread, bounded in total and per credential."""

    def __init__(self, what: str) -> None:
        self._what = what
        # Reentrant: the garbage collector may close a forgotten stream while it is held.
        self._lock = threading.RLock()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, principal: Principal, *, most: int, most_each: int) -> Iterator[None]:
        """A place until the end of the block. Raises :class:`RateLimited` when there is none."""
        self.enter(principal, most=most, most_each=most_each)
        try:
            yield
        finally:
            self.leave(principal)

    def enter(self, principal: Principal, *, most: int, most_each: int) -> None:
        """Take a place, to be given back by :meth:`leave`."""
        with self._lock:
            if self._taken.total() >= most or self._taken[principal.key] >= most_each:
                limit = min(most, most_each)
                raise RateLimited(f"Too many {self._what} at once.", retry_after=5, limit=limit)
            self._taken[principal.key] += 1

    def leave(self, principal: Principal) -> None:
        """Return a place taken by :meth:`enter`."""
        with self._lock:
            self._taken[principal.key] -= 1
            if not self._taken[principal.key]:
                del self._taken[principal.key]


LONG_POLLS = Places("long polls")
STREAMS = Places("streams")
