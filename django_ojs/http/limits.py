"""How much of everything: counters in Django's cache, and places for those who wait."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.cache import cache

from django_ojs import clock, conf
from django_ojs.http.principal import Principal
from django_ojs.http.problems import RateLimited

logger = logging.getLogger("django_ojs.http")


def used(name: str, *, window: int) -> int:
    """What was counted under ``name`` in this window of so many seconds; 0 when the cache is away."""
    try:
        return int(cache.get(_key(name, window), 0))
    except Exception as error:
        logger.warning("the cache does not answer, limits are not enforced: %s", error)
        return 0


def count(name: str, amount: int, *, window: int) -> int:
    """Count, and say how much it is now. Shared by all processes that share the cache."""
    key = _key(name, window)
    try:
        for _ in range(2):
            try:
                return int(cache.incr(key, amount))
            except ValueError:
                # Nothing was counted yet; if another request is the first now, once more.
                if cache.add(key, amount, timeout=2 * window):
                    break
        return amount
    except Exception as error:
        logger.warning("the cache does not answer, limits are not enforced: %s", error)
        return 0


def _key(name: str, window: int) -> str:
    # The time of day: hosts that share the cache have been up for different times.
    return f"ojs:{name}:{int(clock.SystemClock().now('').timestamp() // window)}"


def charge_enqueue(principal: Principal, jobs: int) -> None:
    """Count enqueued jobs against the rate of the credential. Raises :class:`RateLimited`."""
    rate = conf.current().http.enqueue_rate
    if count(f"enqueue:{principal.key}", jobs, window=1) > max(rate, jobs):
        raise RateLimited(
            f"More than {rate} jobs a second with this credential.", retry_after=1, limit=rate
        )


class Places:
    """Bounded places for requests that hold a thread: in all, and per credential."""

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
        """Give a place back."""
        with self._lock:
            self._taken[principal.key] -= 1
            if not self._taken[principal.key]:
                del self._taken[principal.key]


LONG_POLLS = Places("long polls")
STREAMS = Places("streams")
