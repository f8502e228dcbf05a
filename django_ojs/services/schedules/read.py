"""A schedule as people look at it: where it stands, and what is ahead of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django_ojs.domain.cron import zone_of
from django_ojs.domain.errors import InvalidRequest
from django_ojs.models import Schedule
from django_ojs.services.schedules import fire, rows

MOST_AHEAD = 1000


class Ahead(NamedTuple):
    """A time ahead; ``local`` is what the clocks of its zone show. They leave out a ``skipped`` one."""

    at: datetime
    local: datetime
    skipped: bool
    shifted: timedelta
    """By how much the clocks have changed since the time before."""


def ahead(row: Schedule, count: int, after: datetime) -> list[Ahead]:
    """The next ``count`` ticks after a time, also of a schedule that is off."""
    found: list[Ahead] = []
    try:
        zone = zone_of(row.timezone)
        tick = rows.next_tick(row, after)
    except InvalidRequest:  # Its zone is gone, say.
        return []
    before = after.astimezone(zone).utcoffset()
    while tick is not None and len(found) < count:
        local = tick.at.astimezone(zone)
        offset = local.utcoffset()
        shifted = (offset or timedelta()) - (before or timedelta())
        found.append(Ahead(tick.at, local, tick.skipped, shifted))
        before = offset
        tick = rows.next_tick(row, tick.at)
    return found


def is_late(row: Schedule, now: datetime) -> bool:
    """Whether it is due for so long that nobody seems to look after it."""
    return row.due_at is not None and now - row.due_at > fire.LATE
