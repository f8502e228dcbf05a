"""Rate limits: how many jobs of a key may run at once, and how many may start in a time (OJS rate
limiting 5 and 6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_ojs.domain.durations import format_iso, parse_duration_ms
from django_ojs.domain.errors import InvalidRequest

ON_LIMIT = ("wait", "reschedule", "drop")
QUEUE_PREFIX = "queue:"
"""With the name of a queue it is the key of that queue's own limit."""
MAX_STARTS = 10_000
"""The most starts in one window that are counted exactly."""
MAX_CONCURRENCY = 100_000
_KEY = re.compile(rf"(?:{QUEUE_PREFIX})?[a-zA-Z0-9][a-zA-Z0-9._:-]{{0,254}}", re.ASCII)
MAX_KEY = len(QUEUE_PREFIX) + 255
"""The length of the longest key, that of a queue with the longest name."""
_PERIODS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
MAX_PERIOD = timedelta(days=31)
_MAX_PERIOD_MS = MAX_PERIOD // timedelta(milliseconds=1)
_TOGETHER_MS = 250
"""A throttle with starts closer than this lets those of so many milliseconds start together."""
_FIELDS = frozenset(f"max_per_{period}" for period in _PERIODS) | {
    *("key", "concurrency", "rate", "throttle", "period", "on_limit", "scope"),
}


class Window(NamedTuple):
    """At most ``limit`` starts in any ``period_ms`` milliseconds."""

    limit: int
    period_ms: int

    @property
    def period(self) -> timedelta:
        """The period as a difference of times."""
        return timedelta(milliseconds=self.period_ms)


class RateLimitPolicy(NamedTuple):
    """The limits of one key; ``None`` is no limit of that kind. All of them hold.

    A ``throttle`` spaces its starts evenly. ``on_limit`` is what becomes of a job that finds no place.
    """

    key: str
    concurrency: int | None = None
    rate: Window | None = None
    throttle: Window | None = None
    on_limit: str = "wait"

    def limits(self) -> dict[str, Any]:
        """The limits as JSON, in the form of OJS rate limiting 6, without the key."""
        found: dict[str, Any] = {}
        if self.concurrency is not None:
            found["concurrency"] = self.concurrency
        for name in ("rate", "throttle"):
            window = getattr(self, name)
            if window is not None:
                found[name] = {"limit": window.limit, "period": format_iso(window.period_ms)}
        if self.on_limit != "wait":
            found["on_limit"] = self.on_limit
        return found

    def windows(self) -> Iterator[tuple[str, Window]]:
        """What is counted in starts, with its name: the rate, and the throttle as a window."""
        if self.rate is not None:
            yield "rate", self.rate
        if self.throttle is not None:
            yield "throttle", spaced(self.throttle)


def spaced(throttle: Window) -> Window:
    """The window by which a throttle is kept: one start per interval.

    Where the interval is shorter than a quarter of a second, as many starts as fit in that time.
    """
    together = max(1, throttle.limit * _TOGETHER_MS // throttle.period_ms)
    # Rounded up: never more often than asked.
    return Window(together, -(-throttle.period_ms * together // throttle.limit))


def limits_text(limits: RateLimitPolicy) -> str:
    """The limits in a few words, for people who run commands."""
    parts = [] if limits.concurrency is None else [f"{limits.concurrency} at once"]
    if limits.rate is not None:
        parts.append(f"{limits.rate.limit} in {format_iso(limits.rate.period_ms)}")
    if limits.throttle is not None:
        parts.append(f"{limits.throttle.limit} in {format_iso(limits.throttle.period_ms)}, evenly")
    return "; ".join(parts) or "none"


def queue_key(queue: str) -> str:
    """The key of the limit of a queue."""
    return QUEUE_PREFIX + queue


def parse_rate_limit(
    value: object, *, queue: str | None = None, field: str = "rate_limit", named: bool = True
) -> RateLimitPolicy:
    """The rate limit of a request, in the forms of OJS rate limiting 6 and those that clients send.

    These are ``{"max_per_second": 5}``, also with minute, hour or day, and ``{"rate": 1, "period":
    "second"}``. ``queue`` is that of the job, if it is known: without a key the limit is the
    queue's. The key of another queue's limit is refused. ``named`` is whether the object may have a
    key. Raises :class:`InvalidRequest` naming the field and the rule.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(field, "must be an object")
    given = {name: item for name, item in value.items() if item is not None}
    unknown = sorted(map(str, given.keys() - _FIELDS))
    if unknown:
        raise InvalidRequest(f"{field}.{unknown[0]}", "is not known")
    if not named and "key" in given:
        raise InvalidRequest(f"{field}.key", "is given already")
    key = _key(given.get("key"), queue, f"{field}.key")
    concurrency = given.get("concurrency")
    if concurrency is not None:
        concurrency = _integer(concurrency, f"{field}.concurrency", 0, MAX_CONCURRENCY)
    rate = None if "rate" not in given else _rate(given, field)
    if rate is None and "period" in given:
        raise InvalidRequest(f"{field}.period", "needs a rate")
    throttle = None
    if "throttle" in given:
        throttle = _window(given["throttle"], f"{field}.throttle", least=1)
    for name, period_ms in _PERIODS.items():
        if (per := given.get(f"max_per_{name}")) is not None:
            if throttle is not None:
                raise InvalidRequest(f"{field}.max_per_{name}", "excludes throttle")
            throttle = _per(per, period_ms, f"{field}.max_per_{name}")
    on_limit = given.get("on_limit", "wait")
    if on_limit not in ON_LIMIT:
        raise InvalidRequest(f"{field}.on_limit", f"must be one of {', '.join(ON_LIMIT)}")
    if concurrency is None and rate is None and throttle is None:
        raise InvalidRequest(field, "needs concurrency, rate or throttle")
    return RateLimitPolicy(key, concurrency, rate, throttle, on_limit)


def stored_rate_limit(value: object, field: str = "rate_limit") -> dict[str, Any]:
    """The rate limit of a call of the Python API as JSON. Raises as :func:`parse_rate_limit`."""
    policy = parse_rate_limit(value, field=field)
    key = {} if policy.key == QUEUE_PREFIX else {"key": policy.key}
    return key | policy.limits()


def check_key(value: object, field: str = "key") -> str:
    """Check the key of a rate limit. Raises :class:`InvalidRequest`."""
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise InvalidRequest(
            field, "must be 1 to 255 of a-z A-Z 0-9 . _ : - and begin with a letter or a digit"
        )
    return value


def _key(value: object, queue: str | None, field: str) -> str:
    if value is None:
        return queue_key(queue or "")
    key = check_key(value, field)
    if key.startswith(QUEUE_PREFIX) and queue is not None and key != queue_key(queue):
        raise InvalidRequest(field, "must not be the key of another queue")
    return key


def _rate(given: Mapping[str, Any], field: str) -> Window:
    rate = given["rate"]
    if isinstance(rate, Mapping):
        if "period" in given:
            raise InvalidRequest(f"{field}.period", "belongs into rate")
        return _window(rate, f"{field}.rate")
    limit = _integer(rate, f"{field}.rate", 0, MAX_STARTS)
    return Window(limit, _period_ms(given.get("period"), f"{field}.period"))


def _window(value: object, field: str, least: int = 0) -> Window:
    if not isinstance(value, Mapping):
        raise InvalidRequest(field, "must be an object with limit and period")
    for name in value.keys() - {"limit", "period"}:
        raise InvalidRequest(f"{field}.{name}", "is not known")
    limit = _integer(value.get("limit"), f"{field}.limit", least, MAX_STARTS)
    return Window(limit, _period_ms(value.get("period"), f"{field}.period"))


def _per(value: object, period_ms: int, field: str) -> Window:
    if type(value) not in (int, float) or not 0 < value <= MAX_STARTS:  # type: ignore[operator]
        raise InvalidRequest(field, f"must be a number above 0, at most {MAX_STARTS}")
    if isinstance(value, int):
        return Window(value, period_ms)
    assert isinstance(value, float)
    return Window(1, max(1, round(min(_MAX_PERIOD_MS, period_ms / value))))


def _integer(value: object, field: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InvalidRequest(field, f"must be an integer from {least} to {most}")
    return value


def _period_ms(value: object, field: str) -> int:
    if value is None:
        raise InvalidRequest(field, "is required")
    if isinstance(value, str) and value in _PERIODS:
        return _PERIODS[value]
    ms = parse_duration_ms(value, field)
    if not 0 < ms <= _MAX_PERIOD_MS:
        raise InvalidRequest(field, "must be above 0 and at most 31 days")
    return ms


class Standing(NamedTuple):
    """What is taken of the places of a key."""

    admitted: int
    """Let in, and not yet claimed."""
    running: int
    """Claimed, or over and perhaps still running."""


def free_places(policy: RateLimitPolicy, standing: Standing) -> int | None:
    """How many jobs the concurrency lets in; ``None`` for any number."""
    if policy.concurrency is None:
        return None
    return max(0, policy.concurrency - standing.admitted - standing.running)


class Opening(NamedTuple):
    """How many starts a window still allows, and when it allows one if it allows none now.

    ``at`` is ``None`` as well where only a claim, or a change of the limit, makes room.
    """

    starts: int
    at: datetime | None = None
