"""When a schedule is due (OJS cron 3 to 5): against the rule itself, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from django_ojs.domain.cron import (
    CronTimes,
    Interval,
    check_expression,
    firing,
    firing_until,
    latest,
    timing_of,
    zone_of,
)
from django_ojs.domain.errors import InvalidRequest
from tests.support import not_none

ZONES = (
    *("Europe/Berlin", "Europe/London", "Atlantic/Azores", "America/New_York", "America/Havana"),
    *(
        "America/Santiago",
        "Africa/Casablanca",
        "Africa/Cairo",
        "Antarctica/Troll",
        "Australia/Lord_Howe",
    ),
    *("Pacific/Chatham", "Asia/Beirut"),
)
EXPRESSIONS = (
    *("30 2 * * *", "*/15 * * * *", "0 * * * *", "0 */2 * * *", "15,45 1-3 * * *", "0 0 * * *"),
    *("*/20 2 * * *", "30 0,1,2,3 * * sun", "0 30 2 * * *", "10 */3 1 * mon"),
)
DAY = timedelta(hours=26)
MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    moment = at("2026-01-01")
    while moment < at("2027-01-01"):
        before, moment = moment.astimezone(zone).utcoffset(), moment + timedelta(minutes=30)
        if moment.astimezone(zone).utcoffset() != before:
            yield moment


def by_the_rule(timing: CronTimes, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """Each minute that the fields name; once, unless the expression means intervals."""
    fields = CronSim(timing.expression, at("2026-01-01"))
    found, seen = [], set[datetime]()
    moment = after - timedelta(hours=30)
    while moment <= until:
        local = moment.astimezone(zone).replace(tzinfo=None)
        named = local.minute in fields.minutes and local.hour in fields.hours
        if named and local.month in fields.months and fields.match_day(local.date()):
            again = local in seen and not timing.intervals
            seen.add(local)
            if moment > after and not again:
                found.append(moment)
        moment += MINUTE
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ZONES)
def test_times_are_those_of_the_rule_around_every_change_of_the_clock(name: str) -> None:
    zone = ZoneInfo(name)
    moments = list(changes(zone))
    assert moments, "a zone without changes shows nothing"
    for change in moments:
        after, until = change - DAY, change + DAY
        for expression in EXPRESSIONS:
            timing = timing_of(expression, name)
            assert isinstance(timing, CronTimes)
            wanted = by_the_rule(timing, zone, after, until)
            found = list(takewhile(until.__ge__, firing(timing, after)))
            assert found == wanted, (expression, change)
            for late in (after + timedelta(hours=h, minutes=7) for h in range(20, 34)):
                following = [moment for moment in wanted if moment > late][:1]
                assert [m for m in islice(firing(timing, late), 1) if m <= until] == following


def test_a_time_in_the_gap_is_a_tick_that_is_skipped_just_before_the_change() -> None:
    daily = timing_of("30 2 * * *", "Europe/Berlin")
    tick = not_none(daily.after(at("2026-03-28T12:00")))
    assert tick == (at("2026-03-29T01:00") - timedelta(microseconds=1), True)
    assert not_none(daily.after(tick.at)) == (at("2026-03-30T00:30"), False)


def test_all_times_in_a_gap_are_one_tick() -> None:
    timing = timing_of("0,30 2,3 * * *", "America/New_York")
    ticks, moment = [], at("2026-03-08T00:00")
    for _ in range(3):
        moment, skipped = not_none(timing.after(moment))
        ticks.append((moment.isoformat()[11:19], skipped))
    assert ticks == [("06:59:59", True), ("07:00:00", False), ("07:30:00", False)]


def test_a_fixed_time_that_comes_twice_is_due_at_the_first() -> None:
    timing = timing_of("30 2 * * *", "Europe/Berlin")
    two = list(islice(firing(timing, at("2026-10-24T12:00")), 2))
    assert two == [at("2026-10-25T00:30"), at("2026-10-26T01:30")]


def test_intervals_run_through_both_hours() -> None:
    timing = timing_of("*/30 * * * *", "Europe/Berlin")
    found = list(islice(firing(timing, at("2026-10-24T23:59")), 5))
    assert found == [at("2026-10-25T00:00") + n * timedelta(minutes=30) for n in range(5)]


def test_seconds_come_first() -> None:
    first = next(firing(timing_of("15 30 2 * * *", "UTC"), at("2026-01-01")))
    assert first == at("2026-01-01T02:30:15")


@pytest.mark.parametrize(
    ("expression", "moments"),
    [
        ("@yearly", ["2027-01-01", "2028-01-01"]),
        ("@annually", ["2027-01-01"]),
        ("@monthly", ["2026-02-01"]),
        ("@weekly", ["2026-01-04"]),
        ("@DAILY", ["2026-01-02"]),
        ("@midnight", ["2026-01-02"]),
        ("@hourly", ["2026-01-01T13:00"]),
        ("0 0 L * *", ["2026-01-31", "2026-02-28"]),
        ("0 0 LW * *", ["2026-01-30", "2026-02-27"]),
        # 15: Thursday, Sunday, Sunday, Wednesday. 1: Sunday, Sunday, and Saturday in August.
        ("0 0 15W * *", ["2026-01-15", "2026-02-16", "2026-03-16", "2026-04-15"]),
        ("0 0 1w * *", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01"]),
        ("0 0 1W 8 *", ["2026-08-03", "2027-08-02"]),
        ("0 0 31W * *", ["2026-01-30", "2026-03-31", "2026-05-29", "2026-07-31"]),
        ("0 6,18 30W 5-8 *", ["2026-05-29T06:00", "2026-05-29T18:00", "2026-06-30T06:00"]),
        ("0 0 * * 5L", ["2026-01-30", "2026-02-27"]),
        ("0 0 * * fri#3", ["2026-01-16", "2026-02-20"]),
        ("0 0 1 * mon", ["2026-01-05", "2026-01-12", "2026-01-19", "2026-01-26", "2026-02-01"]),
        ("0 0 * JAN sun", ["2026-01-04"]),
        ("0 0 * * 7", ["2026-01-04"]),
        ("0 0 31 1-3 *", ["2026-01-31", "2026-03-31"]),
        ("0 0 29 2 *", ["2028-02-29"]),
        ("  0   0 * *   * ", ["2026-01-02"]),
        ("@every 90m", ["2026-01-01T14:00", "2026-01-01T15:30"]),
        ("@every 1h30m", ["2026-01-01T14:00"]),
        ("@every PT1S", ["2026-01-01T12:30:01"]),
    ],
)
def test_forms(expression: str, moments: list[str]) -> None:
    found = islice(firing(check_expression(expression, "UTC"), at("2026-01-01T12:30")), len(moments))
    assert list(found) == [at(one) for one in moments]


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("", "must be a cron expression of at most 255 characters"),
        (" ", "must be a cron expression of at most 255 characters"),
        (5, "must be a cron expression of at most 255 characters"),
        ("0 " * 128, "must be a cron expression of at most 255 characters"),
        ("* * * *", "must have five fields"),
        ("1 2 3 4 5 6 7", "must have five fields"),
        ("not a valid cron", "must have five fields"),
        ("99 25 32 13 8", "minute: '99' is out of range"),
        ("0 24 * * *", "hour: '24' is out of range"),
        ("0 0 32 * *", "day-of-month: '32' is out of range"),
        ("0 0 * 13 *", "month: '13' is out of range"),
        ("0 0 * * 8", "day-of-week: '8' is out of range"),
        ("60 0 0 * * *", "second: '60' is out of range"),
        ("*/0 * * * *", "minute: '*/0' is out of range"),
        ("5-1 * * * *", "minute: '5-1' is out of range"),
        ("0 0 31 2 *", "day-of-month: '31' is out of range"),
        ("0 0 ? * *", "day-of-month: '?' is out of range"),
        ("0 0 ٣ * *", "day-of-month: '٣' is out of range"),
        ("0 0 0W * *", "day-of-month: '0W' is not understood: the nearest weekday"),
        ("0 0 32W * *", "day-of-month: '32W' is not understood"),
        ("0 0 W15 * *", "day-of-month: 'W15' is not understood"),
        ("0 0 1,15W * *", "day-of-month: '1,15W' is not understood"),
        ("0 0 15W * mon", "no day of the week beside it"),
        ("0 0 31W 2 *", "is never due"),
        ("@reboot", "must be one of @yearly"),
        ("@every 0s", "must be more than 0"),
        ("@every 500ms", "@every must be at least 1s"),
        ("@every soon", "must be whole seconds"),
    ],
)
def test_what_is_refused_and_why(expression: object, rule: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_expression(expression, "UTC")
    assert refused.value.field == "expression"
    assert rule in refused.value.rule


@pytest.mark.parametrize(
    "zone",
    ["+05:00", "UTC+5", "EST", "CST6CDT", "../../etc/passwd", "Mars/Base", "", "europe/berlin", 3],
)
def test_zones_are_those_of_the_database_by_name(zone: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_expression("@daily", zone)
    assert refused.value.field == "timezone"


def test_utc_needs_no_database_of_zones() -> None:
    assert zone_of("UTC") is UTC


def test_an_interval_counts_from_the_last_tick() -> None:
    timing = timing_of("@every 5m", "Europe/Berlin")
    assert timing == Interval(timedelta(minutes=5))
    anchored = Interval(timedelta(minutes=5), at("2026-01-01T12:01"))
    for moment, following in (
        ("11:52", "11:56"),
        ("11:56", "12:01"),
        ("12:01", "12:06"),
        ("12:59", "13:01"),
    ):
        assert anchored.after(at(f"2026-01-01T{moment}")) == (at(f"2026-01-01T{following}"), False)


def test_the_last_one_that_was_missed_is_found_near_and_far() -> None:
    every_second = timing_of("* * * * * *", "UTC")
    end = at("2026-05-01T12:00:00")
    assert latest(every_second, at("2026-01-01"), end) == end
    yearly = timing_of("@yearly", "UTC")
    assert latest(yearly, at("2025-12-31"), end) == at("2026-01-01")
    assert latest(yearly, at("2026-01-01"), end) is None


def test_the_moments_between_two() -> None:
    hourly = timing_of("@hourly", "UTC")
    found = firing_until(hourly, at("2026-01-01T01:00"), at("2026-01-01T04:00"))
    assert list(found) == [at("2026-01-01T02:00"), at("2026-01-01T03:00")]
