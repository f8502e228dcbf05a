"""When a schedule is due: cron expressions and intervals, in a time zone (OJS cron 3 to 5). Pure.

Expressions are cronsim's: five fields, or six with seconds first; names of months and days, ``L``,
``LW``, ``5L``, ``5#3``. A day that the day-of-month or the day-of-week field names is enough, if
both are restricted. ``15W``, the weekday nearest to a day of the month, is added here.

cronsim sees wall-clock times only; what becomes of them in a zone is decided here (OJS cron 5.2). A
time that a change of the clock leaves out is not due: it is a tick that is :attr:`~Tick.skipped`. A
time that comes twice is due at the first, unless the hour field begins with ``*``: then the
expression means intervals, and both are.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import takewhile
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest

MAX_EXPRESSION = 255
WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY = "@every "
_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_ABBREVIATIONS = frozenset(["EST", "MST", "HST", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT"])
"""Names of offsets: they are in the database of zones, and are refused (OJS cron 5.1)."""
_LONGEST_SHIFT = timedelta(hours=3)
_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_MONTHS = 600
_WHOLE_DAY = frozenset(range(24))


class Tick(NamedTuple):
    """A moment at which a schedule is due; with ``skipped``, just before a change of the clocks
    that leaves out the times at which it was to be.
    """

    at: datetime
    skipped: bool = False


class Timing(Protocol):
    """A rule for ticks."""

    def after(self, moment: datetime) -> Tick | None:
        """The first tick after a moment, in UTC; ``None`` if there is none in the next decades."""


@dataclass(frozen=True, slots=True)
class Interval:
    """``@every 5m``: as long after the last tick as that, whatever the clock says.

    ``anchor`` is any of the ticks; without one they are counted from the moment that is asked about.
    """

    every: timedelta
    anchor: datetime | None = None

    def after(self, moment: datetime) -> Tick | None:
        """The first tick after ``moment``."""
        past = (moment - self.anchor) % self.every if self.anchor is not None else timedelta()
        return Tick(moment - past + self.every)


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The times of a cron expression in a zone."""

    expression: str
    zone: tzinfo
    intervals: bool
    """Whether times that come twice are due twice."""
    reports_gaps: bool
    """Whether a time that a change of the clock leaves out is missing: not so of every hour."""
    near: int | None = None
    """The day of the month to whose nearest weekday the times are restricted."""

    def after(self, moment: datetime) -> Tick | None:
        """The first tick after ``moment``."""
        back = _shift(moment, self.zone) if self.intervals else timedelta()
        begin = _wall(moment, self.zone) - back - timedelta(seconds=1)
        best: Tick | None = None
        for local in self._local_times(begin):
            ticks = self._ticks(local)
            if best is not None and ticks and ticks[0].at >= best.at:
                break
            later = [tick for tick in ticks if tick.at > moment]
            best = min([*later, *([best] if best else [])], default=None)
        return best

    def _local_times(self, begin: datetime) -> Iterator[datetime]:
        if self.near is None:
            yield from CronSim(self.expression, begin)
            return
        month = begin.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        for _ in range(_MOST_MONTHS):
            if (day := _weekday_near(month, self.near)) is not None:
                due = month.replace(day=day)
                for local in CronSim(self.expression, max(begin, due - timedelta(seconds=1))):
                    if local.date() != due.date():
                        break
                    yield local
            month = (month + timedelta(days=32)).replace(day=1)

    def _ticks(self, local: datetime) -> list[Tick]:
        first = local.replace(tzinfo=self.zone).astimezone(UTC)
        if _wall(first, self.zone) != local:
            return [Tick(_change(local, self.zone), skipped=True)] if self.reports_gaps else []
        second = local.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        return [Tick(first), Tick(second)] if self.intervals and second != first else [Tick(first)]


def _weekday_near(month: datetime, day: int) -> int | None:
    """The day of the weekday nearest to a day, in the same month; ``None`` if the month is shorter."""
    last = monthrange(month.year, month.month)[1]
    if day > last:
        return None
    match month.replace(day=day).isoweekday():
        case 6:
            return day - 1 if day > 1 else day + 2
        case 7:
            return day + 1 if day < last else day - 2
    return day


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    """What the clocks of a zone show."""
    return moment.astimezone(zone).replace(tzinfo=None)


def _shift(moment: datetime, zone: tzinfo) -> timedelta:
    """By how much the clocks of the zone change around a moment."""
    near = (moment - _LONGEST_SHIFT, moment, moment + _LONGEST_SHIFT)
    found = [one.astimezone(zone).utcoffset() or timedelta() for one in near]
    return max(found) - min(found)


def _change(local: datetime, zone: tzinfo) -> datetime:
    """Just before the change of the clocks that leaves out a time: no other tick is there."""
    after = local.replace(tzinfo=zone).astimezone(UTC)
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0) - timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def timing_of(expression: str, timezone: str) -> Timing:
    """The ticks of an expression. Raises :class:`InvalidRequest` naming ``expression`` or
    ``timezone``.
    """
    zone = zone_of(timezone)
    text = " ".join(expression.split())
    if text.lower().startswith(EVERY):
        return Interval(timedelta(milliseconds=_interval_ms(text[len(EVERY) :])))
    fields = WORDS.get(text.lower(), text).split()
    if text.startswith("@") and len(fields) != 5:
        known = ", ".join([*WORDS, "@every"])
        raise InvalidRequest("expression", f"must be one of {known}, or have five or six fields")
    if not 5 <= len(fields) <= 6:
        raise InvalidRequest(
            "expression", "must have five fields (minute hour day month weekday), or six, seconds first"
        )
    if len(fields) == 5:
        fields.insert(0, "0")
    near = _near(fields)
    if near is not None:
        fields[3] = "*"
    hours = _parsed(fields)
    return CronTimes(
        " ".join(fields),
        zone,
        intervals=fields[2].startswith("*"),
        reports_gaps=hours != _WHOLE_DAY,
        near=near,
    )


def _near(fields: list[str]) -> int | None:
    """The day of ``15W``, which stands alone as in Quartz; ``None`` without a ``W``."""
    days = fields[3].upper()
    if "W" not in days.replace("LW", ""):
        return None
    match = re.fullmatch(r"([1-9]|[12][0-9]|3[01])W", days)
    if match is None or fields[5] != "*":
        raise InvalidRequest(
            "expression",
            f"day-of-month: {fields[3]!r} is not understood: the nearest weekday is one day from 1 to "
            "31 with a W, and no day of the week beside it",
        )
    return int(match[1])


def _parsed(fields: list[str]) -> frozenset[int]:
    """Check the fields; the hours that they name."""
    try:
        found = CronSim(" ".join(fields), _SOME_TIME).hours
    except CronSimError as error:
        raise InvalidRequest("expression", _said(str(error), fields)) from None
    return frozenset(int(str(hour)) for hour in found)


def _said(error: str, fields: list[str]) -> str:
    for name, field in zip(_FIELDS, fields, strict=True):
        if error == f"Bad {name}":
            return f"{name}: {field!r} is out of range, or not understood"
    return error


def _interval_ms(text: str) -> int:
    ms = parse_seconds_ms(text.strip(), "expression")
    if ms < 1000:
        raise InvalidRequest("expression", "@every must be at least 1s")
    return ms


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones()) - _ABBREVIATIONS


def zone_of(name: str) -> tzinfo:
    """A zone by its IANA name. Raises :class:`InvalidRequest` for other names, for offsets
    (``+05:00``) and abbreviations (``EST``).
    """
    if name == "UTC":
        return UTC
    if name not in _zone_names():
        raise InvalidRequest(
            "timezone", "must be an IANA name such as 'Europe/Berlin': no offset, no abbreviation"
        )
    return ZoneInfo(name)


def check_expression(value: object, timezone: object) -> Timing:
    """:func:`timing_of` what a client sent."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_EXPRESSION:
        raise InvalidRequest(
            "expression", f"must be a cron expression of at most {MAX_EXPRESSION} characters"
        )
    if not isinstance(timezone, str):
        raise InvalidRequest("timezone", "must be a string")
    timing = timing_of(value, timezone)
    if timing.after(_SOME_TIME) is None:
        raise InvalidRequest("expression", "is never due")
    return timing


def firing(timing: Timing, after: datetime) -> Iterator[datetime]:
    """The moments after one at which jobs are enqueued, in their order."""
    while (tick := timing.after(after)) is not None:
        after = tick.at
        if not tick.skipped:
            yield tick.at


def latest(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """The last moment at which a job is enqueued, after one and not after another."""
    back = timedelta(minutes=2)
    while True:
        begin = max(after, until - back)
        found = None
        for moment in firing(timing, begin):
            if moment > until:
                break
            found = moment
        if found is not None or begin == after:
            return found
        back *= 30


def firing_until(timing: Timing, after: datetime, until: datetime) -> Iterator[datetime]:
    """The moments after one, and before another, at which jobs are enqueued, in their order."""
    return takewhile(lambda moment: moment < until, firing(timing, after))
