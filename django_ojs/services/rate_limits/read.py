"""What a rate limit is, what is taken of it and who waits: for HTTP, the admin, ``ojs`` and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django_ojs import clock, conf, hooks
from django_ojs.domain.job import JobRow
from django_ojs.domain.rate_limit import (
    MAX_CONCURRENCY,
    QUEUE_PREFIX,
    Opening,
    RateLimitPolicy,
    Standing,
    Window,
    spaced,
)
from django_ojs.models import Queue, RateLimit, RateLimitPlace
from django_ojs.services.rate_limits.operate import no_rate_limit
from django_ojs.services.rate_limits.room import Room, effective, opening, room_by
from django_ojs.store import rate_limit_keys, selectors
from django_ojs.store.rate_limit_keys import Crowd, WindowStarts

_Status = RateLimitPlace.Status
_TOGETHER = 100
"""Rows of one statement: SQLite takes five hundred parts of a union, and a row has two windows."""


@dataclass(frozen=True, slots=True)
class RateLimitState:
    """A rate limit as it stands: its row, the limits in force, what is taken of them.

    ``running`` counts the jobs that run, and handlers of attempts that are over; ``admitted`` those
    that may be claimed. ``waiting`` is counted up to ``selectors.COUNT_CAP``. ``starts`` are those in
    the window of the rate, ``resets_at`` when the oldest of them leaves it. ``next_start_at`` is when
    the throttle next allows a start; ``opens_at`` when somebody is let in because of the time.
    """

    row: RateLimit
    limits: RateLimitPolicy
    overridden: bool
    admitted: int
    running: int
    waiting: int
    starts: int
    resets_at: datetime | None
    next_start_at: datetime | None
    opens_at: datetime | None
    full: bool


def state_of(key: str, *, using: str) -> RateLimitState:
    """The state of one key. Raises :class:`NotFound` for one that was never used."""
    row = RateLimit.objects.using(using).filter(pk=key).first()
    if row is None:
        raise no_rate_limit(key)
    return state(row, clock.now(using), using)


def is_unused(key: str, using: str) -> bool:
    """Whether no job has had the key so far, as far as is known, and no job type is declared with it.

    The key of a queue is used once something has named the queue.
    """
    if key.startswith(QUEUE_PREFIX):
        queue = key.removeprefix(QUEUE_PREFIX)
        known = queue in conf.current().queues
        return not known and not Queue.objects.using(using).filter(pk=queue).exists()
    declared = [layer.rate_limit or {} for layer in hooks.job_types().values()]
    if any(policy.get("key") == key for policy in declared):
        return False
    return not RateLimit.objects.using(using).filter(pk=key).values_list("policy", flat=True).first()


def state(row: RateLimit, now: datetime, using: str) -> RateLimitState:
    """The state of a row that was read."""
    return states([row], now, using)[0]


def states(rows: Iterable[RateLimit], now: datetime, using: str) -> list[RateLimitState]:
    """The states of rows that were read, by two statements for each hundred of them."""
    rows = list(rows)
    found: list[RateLimitState] = []
    for begin in range(0, len(rows), _TOGETHER):
        found += _states(rows[begin : begin + _TOGETHER], now, using)
    return found


def _states(rows: Sequence[RateLimit], now: datetime, using: str) -> list[RateLimitState]:
    keys = [row.key for row in rows]
    crowds = rate_limit_keys.crowds(
        keys, waiting=selectors.COUNT_CAP, taken=MAX_CONCURRENCY, using=using
    )
    limits = {row.key: effective(row, now) for row in rows}
    asked = [(key, window, crowds[key].admitted) for key in keys for _, window in limits[key].windows()]
    windows = rate_limit_keys.started(asked, now, using=using)
    started = {(key, window): found for (key, window, _), found in zip(asked, windows, strict=True)}
    return [_state(row, limits[row.key], crowds[row.key], started, now) for row in rows]


def _state(
    row: RateLimit,
    limits: RateLimitPolicy,
    crowd: Crowd,
    started: Mapping[tuple[str, Window], WindowStarts],
    now: datetime,
) -> RateLimitState:
    standing = Standing(crowd.admitted, crowd.running)

    def opening_of(window: Window) -> Opening:
        found = started[row.key, window]
        return opening(window, standing, found.taking, lambda: found.number)

    room = room_by(row, limits, standing, now, opening_of)
    starts, resets_at, next_start_at = 0, None, None
    if limits.rate is not None:
        starts, oldest, _, _ = started[row.key, limits.rate]
        resets_at = None if oldest is None else oldest + limits.rate.period
    if limits.throttle is not None:
        window = spaced(limits.throttle)
        filling = started[row.key, window].filling
        next_start_at = now if filling is None else filling + window.period
    overridden = row.override is not None and (row.override_until is None or row.override_until > now)
    return RateLimitState(
        row=row,
        limits=limits,
        overridden=overridden,
        admitted=standing.admitted,
        running=standing.running,
        waiting=crowd.waiting,
        starts=starts,
        resets_at=resets_at,
        next_start_at=next_start_at,
        opens_at=_opens_at(row, room),
        full=room.places == 0,
    )


def _opens_at(row: RateLimit, room: Room) -> datetime | None:
    known = [moment for moment in (row.due_at, room.opens_at) if moment is not None]
    return max(known, default=None)


@dataclass(frozen=True, slots=True)
class Hold:
    """What holds a job: the key that it waits for, who has the places, how many wait before it.

    ``holders`` are jobs with a place, ten at most; ``ahead`` is counted up to ``selectors.COUNT_CAP``.
    """

    state: RateLimitState
    holders: Sequence[UUID]
    ahead: int
    since: timedelta


def hold_of(job: JobRow, now: datetime, using: str) -> Hold | None:
    """Why a job is held, ``None`` if it is not."""
    if not job.held:
        return None
    places = RateLimitPlace.objects.using(using)
    mine = places.filter(job_id=job.id, status=_Status.WAITING).first()
    if mine is None:
        return None
    row = RateLimit.objects.using(using).filter(pk=mine.key).first() or RateLimit(key=mine.key)
    others = places.filter(key=mine.key)
    waiting = others.filter(status=_Status.WAITING)
    ahead = selectors.capped(waiting.filter(priority__gt=mine.priority))
    same = waiting.filter(priority=mine.priority, enqueued_at__lt=mine.enqueued_at)
    return Hold(
        state(row, now, using),
        holders(mine.key, 10, using),
        min(selectors.COUNT_CAP, ahead + selectors.capped(same)),
        now - mine.enqueued_at,
    )


def holders(key: str, most: int, using: str) -> Sequence[UUID]:
    """Jobs with a place under a key, those that run first."""
    taken = (_Status.RUNNING, _Status.ADMITTED, _Status.ENDING)
    places = RateLimitPlace.objects.using(using).filter(key=key, status__in=taken)
    return list(places.order_by("-status", "id").values_list("job_id", flat=True)[:most])


def next_in_line(key: str, most: int, using: str) -> Sequence[UUID]:
    """Jobs that wait for a place under a key, in the order in which they are let in."""
    places = RateLimitPlace.objects.using(using).filter(key=key, status=_Status.WAITING)
    places = places.order_by("-priority", "enqueued_at", "job_id")
    return list(places.values_list("job_id", flat=True)[:most])
