"""What a rate limit still allows, counted from rows: exact while the row of the key is locked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.rate_limit import (
    Opening,
    RateLimitPolicy,
    Standing,
    Window,
    free_places,
    parse_rate_limit,
)
from django_ojs.models import RateLimit, RateLimitPlace, RateLimitStart
from django_ojs.store.rate_limit_keys import KeyRows

_Status = RateLimitPlace.Status


def effective(row: RateLimit, now: datetime) -> RateLimitPolicy:
    """The limits in force: an operator's override over the policy of the jobs."""
    limits = dict(row.policy)
    if row.override is not None and (row.override_until is None or row.override_until > now):
        limits |= row.override
    return _limits(row.key, limits)


def _limits(key: str, stored: Mapping[str, Any]) -> RateLimitPolicy:
    if not stored.keys() - {"on_limit"}:
        return RateLimitPolicy(key)
    return parse_rate_limit(stored, named=False)._replace(key=key)


def counts_starts(row: RateLimit) -> bool:
    """Whether starts under this key are to be counted."""
    return any({"rate", "throttle"} & limits.keys() for limits in (row.policy, row.override or {}))


def counted_for(row: RateLimit, limits: RateLimitPolicy) -> timedelta | None:
    """For how long a start counts: under the limits in force, and under the policy, which holds again
    after an override.
    """
    both = [limits]
    # An override may be there because the policy cannot be read.
    with suppress(InvalidRequest):
        both.append(_limits(row.key, row.policy))
    return max((window.period for one in both for _, window in one.windows()), default=None)


class Room(NamedTuple):
    """How many jobs may be let in; ``None`` for any number.

    ``strategy`` is what allows the fewest, with its ``limit``; ``opens_at`` when that changes by time.
    """

    places: int | None
    standing: Standing
    strategy: str = ""
    limit: int = 0
    opens_at: datetime | None = None


def standing(rows: KeyRows) -> Standing:
    """What is taken of the places of a key, by its rows."""
    running = rows.taken.get(_Status.RUNNING, 0) + rows.taken.get(_Status.ENDING, 0)
    return Standing(rows.taken.get(_Status.ADMITTED, 0), running)


def is_blocked(row: RateLimit, now: datetime) -> bool:
    """Whether a handler has asked that nothing of the key starts for now."""
    return row.blocked_until is not None and row.blocked_until > now


def excess_of(row: RateLimit, limits: RateLimitPolicy, standing: Standing, now: datetime) -> int:
    """How many of those let in that have not started are more than the limits allow now."""
    if is_blocked(row, now):
        return standing.admitted
    over = [standing.admitted - window.limit for _, window in limits.windows()]
    if limits.concurrency is not None:
        over.append(standing.admitted + standing.running - limits.concurrency)
    return min(standing.admitted, max(0, *over)) if over else 0


def room_of(
    row: RateLimit, limits: RateLimitPolicy, standing: Standing, now: datetime, using: str
) -> Room:
    """What is free under a key."""
    return room_by(
        row, limits, standing, now, lambda window: _opening(row.key, window, standing, now, using)
    )


def room_by(
    row: RateLimit,
    limits: RateLimitPolicy,
    standing: Standing,
    now: datetime,
    opening_of: Callable[[Window], Opening],
) -> Room:
    """As :func:`room_of`; ``opening_of`` has what a window still allows."""
    if is_blocked(row, now):
        return Room(0, standing, "blocked", 0, row.blocked_until)
    places, strategy, limit, opens_at = free_places(limits, standing), "", 0, None
    if places is not None:
        strategy, limit = "concurrency", limits.concurrency or 0
    for name, window in limits.windows():
        opening = opening_of(window)
        if places is None or opening.starts < places:
            places, strategy, limit, opens_at = opening.starts, name, window.limit, opening.at
        elif not places and not opening.starts:
            # Both have to open.
            opens_at = max(filter(None, (opens_at, opening.at)), default=None)
    return Room(places, standing, strategy, limit, opens_at)


def _opening(key: str, window: Window, standing: Standing, now: datetime, using: str) -> Opening:
    starts = RateLimitStart.objects.using(using).filter(key=key, started_at__gt=now - window.period)
    allowed = window.limit - standing.admitted
    newest = starts.order_by("-started_at").values_list("started_at", flat=True)
    taking = newest[allowed - 1 : allowed].first() if allowed > 0 else None
    return opening(window, standing, taking, starts.count)


def opening(
    window: Window, standing: Standing, taking: datetime | None, count: Callable[[], int]
) -> Opening:
    """What a window still allows. Who was let in and has not started counts as if he started now.

    ``taking`` is when the newest starts begin that take all that those let in leave, ``None`` while
    there are fewer; ``count`` has their number then.
    """
    allowed = window.limit - standing.admitted
    if allowed <= 0:
        return Opening(0)
    if taking is not None:
        return Opening(0, taking + window.period)
    return Opening(allowed - count())
