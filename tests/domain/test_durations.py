"""Durations and moments: what is accepted and what is refused (T1, OJS JSON format)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain.durations import (
    TEN_YEARS_MS,
    format_instant,
    format_iso,
    parse_duration_ms,
    parse_instant,
    parse_ms,
    parse_seconds_ms,
)
from django_ojs.domain.errors import InvalidRequest
from tests.domain.records import NOW, at


class TestSeconds:
    @pytest.mark.parametrize(
        ("value", "ms"),
        [
            (1, 1000),
            (300, 300_000),
            ("300", 300_000),
            ("007", 7000),
            ("10s", 10_000),
            ("4m", 240_000),
            ("1h", 3_600_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1h2m3s4ms", 3_723_004),
            ("PT5M", 300_000),
            ("PT1H30M", 5_400_000),
            ("PT0.5S", 500),
            ("PT1.2345S", 1234),
            ("P1D", 86_400_000),
            ("P1W", 604_800_000),
            ("P1W1DT1H1M1.001S", 694_861_001),
            (timedelta(seconds=2, milliseconds=5), 2005),
            (timedelta(microseconds=1999), 1),
            (TEN_YEARS_MS // 1000, TEN_YEARS_MS),
            ("P3653D", TEN_YEARS_MS),
            (timedelta(days=3653), TEN_YEARS_MS),
        ],
    )
    def test_accepted(self, value: object, ms: int) -> None:
        assert parse_seconds_ms(value, "timeout") == ms

    # Not in this table: what JSON cannot say and what only looks like a duration.
    @pytest.mark.parametrize(
        "value",
        [
            0,
            -1,
            "0",
            "0s",
            "PT0S",
            timedelta(0),
            timedelta(seconds=-1),
            timedelta(microseconds=999),
            "PT0.0004S",
            1.0,
            0.5,
            float("nan"),
            float("inf"),
            True,
            False,
            None,
            [],
            {},
            b"10s",
            "",
            " ",
            " 10s",
            "10s ",
            "10 s",
            "10s\n",
            "\t10",
            "10\x00",
            "+10",
            "-10",
            "+10s",
            "-10s",
            "-PT5M",
            "+PT5M",
            "1_000",
            "1_0s",
            "1,000",
            "1.5",
            "1.5s",
            "1e3",
            "0x10",
            "\u0661\u0660",
            "\u0661\u0660s",
            "\uff11\uff10s",
            "PT\u0661S",
            "\u00b2",
            "\u2460",
            "10\u0455",
            "10S",
            "10M",
            "1H",
            "1H5s",
            "1h5S",
            "10sec",
            "10 seconds",
            "ten",
            "s",
            "1m1h",
            "1s1s",
            "1ms1s",
            "P",
            "PT",
            "P1DT",
            "P1Y",
            "P1M",
            "P1Y2M",
            "PT1M1H",
            "PT1.5H",
            "PT.5S",
            "PT1.S",
            "PT1,5S",
            "pt5m",
            "P5S",
            "5PT",
            "PT5M PT5M",
            "inf",
            "nan",
            "1" * 5000,
            "9" * 41,
        ],
        ids=ascii,
    )
    def test_refused(self, value: object) -> None:
        with pytest.raises(InvalidRequest) as caught:
            parse_seconds_ms(value, "options.timeout")
        assert caught.value.field == "options.timeout"
        assert caught.value.rule
        assert caught.value.code == "invalid_request"

    def test_a_fraction_of_a_second_is_refused_with_what_to_write(self) -> None:
        """JSON has no whole numbers: what a client computes may be off by a rounding error."""
        for value, hint in ((1.5, '"1500ms"'), (0.25, '"250ms"')):
            with pytest.raises(InvalidRequest) as caught:
                parse_seconds_ms(value, "timeout")
            assert caught.value.rule.startswith("must be whole seconds, ")
            assert caught.value.rule.endswith(f": write {hint}")

    @pytest.mark.parametrize(
        "value",
        [
            TEN_YEARS_MS // 1000 + 1,
            10**5000,
            "9" * 40,
            "P3654D",
            "P999999999W",
            "999999999999h",
            timedelta.max,
        ],
        ids=lambda value: str(type(value)),
    )
    def test_beyond_ten_years(self, value: object) -> None:
        with pytest.raises(InvalidRequest, match="ten years"):
            parse_seconds_ms(value, "timeout")

    def test_only_where_zero_is_allowed(self) -> None:
        for zero in (0, "0", "0s", "PT0S", timedelta(0)):
            assert parse_seconds_ms(zero, "grace_period", allow_zero=True) == 0
        for bad in (-1, False, 0.0, "-0", timedelta(seconds=-1)):
            with pytest.raises(InvalidRequest) as caught:
                parse_seconds_ms(bad, "grace_period", allow_zero=True)
            assert caught.value.field == "grace_period"


class TestMilliseconds:
    def test_accepted(self) -> None:
        assert parse_ms(1, "timeout_ms") == 1
        assert parse_ms(TEN_YEARS_MS, "timeout_ms") == TEN_YEARS_MS
        assert parse_ms(0, "timeout_ms") is None

    @pytest.mark.parametrize(
        "value", [-1, 1.0, "1000", "10s", True, False, None, [], TEN_YEARS_MS + 1, 10**400], ids=repr
    )
    def test_refused(self, value: object) -> None:
        with pytest.raises(InvalidRequest) as caught:
            parse_ms(value, "timeout_ms")
        assert caught.value.field == "timeout_ms"


class TestIntervals:
    def test_seconds_may_have_a_fraction(self) -> None:
        assert parse_duration_ms(0.25, "interval") == 250
        assert parse_duration_ms(2, "interval") == 2000
        assert parse_duration_ms("PT0.25S", "interval") == 250

    @pytest.mark.parametrize("value", [0.0, -0.5, 0.0001, 1e300, float("nan"), float("inf"), True])
    def test_refused(self, value: object) -> None:
        with pytest.raises(InvalidRequest) as caught:
            parse_duration_ms(value, "interval")
        assert caught.value.field == "interval"


class TestInstants:
    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            ("2026-02-12T10:30:00Z", NOW),
            ("2026-02-12t10:30:00z", NOW),
            ("2026-02-12 10:30:00Z", NOW),
            ("2026-02-12T10:30:00+00:00", NOW),
            ("2026-02-12T10:30:00-00:00", NOW),
            ("2026-02-12T12:30:00+02:00", NOW),
            ("2026-02-12T05:00:00-05:30", NOW),
            ("2026-02-12T10:30:00.5Z", at(0.5)),
            ("2026-02-12T10:30:00.123456Z", NOW + timedelta(microseconds=123_456)),
            ("2026-02-12T10:30:00.123456789Z", NOW + timedelta(microseconds=123_456)),
            ("2026-02-12T12:30:00.25+02:00", at(0.25)),
            ("2099-12-31T23:59:59Z", datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC)),
            ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
            ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ],
    )
    def test_absolute_and_echoed(self, text: str, moment: datetime) -> None:
        parsed, verbatim = parse_instant(text, "scheduled_at", NOW)
        assert (parsed, verbatim) == (moment, text)
        assert parsed.tzinfo is UTC

    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("+PT2S", 2),
            ("PT2S", 2),
            ("5s", 5),
            ("+5s", 5),
            ("5m", 300),
            ("250ms", 0.25),
            ("7", 7),
            ("P1D", 86_400),
            ("0s", 0),
            (timedelta(minutes=1), 60),
            (timedelta(0), 0),
        ],
    )
    def test_relative(self, value: object, seconds: float) -> None:
        assert parse_instant(value, "scheduled_at", NOW) == (at(seconds), None)

    def test_datetimes(self) -> None:
        local = datetime(2026, 2, 12, 12, 30, tzinfo=timezone(timedelta(hours=2)))
        parsed, verbatim = parse_instant(local, "scheduled_at", NOW)
        assert (parsed, verbatim, parsed.tzinfo) == (NOW, None, UTC)

    @pytest.mark.parametrize(
        "value",
        [
            "2026-02-12T10:30:00",
            "2026-02-12T10:30:00.5",
            "2026-02-12",
            "2026-02-12T10:30Z",
            "2026-02-30T10:30:00Z",
            "2025-02-29T10:30:00Z",
            "2026-13-01T10:30:00Z",
            "2026-00-01T10:30:00Z",
            "2026-02-12T25:00:00Z",
            "2026-02-12T10:60:00Z",
            "2026-02-12T10:30:61Z",
            "2026-02-12T10:30:00+25:00",
            "2026-02-12T10:30:00+0200",
            "2026-02-12T10:30:00 Z",
            "2026-02-12T10:30:00Z\n",
            " 2026-02-12T10:30:00Z",
            "2026-02-12T10:30:00.Z",
            "2026-02-12T10:30:00,5Z",
            "2026-02-12T10:30:00." + "1" * 13 + "Z",
            "2026-02-12T10:30:00UTC",
            "20260212T103000Z",
            "2026-W07-4T10:30:00Z",
            "26-02-12T10:30:00Z",
            "\u0662\u0660\u0662\u0666-02-12T10:30:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "0001-01-01T00:00:00+23:59",
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59-23:59",
            "2226-02-12T10:30:00Z",
            "tomorrow",
            "",
            "+",
            "++5s",
            "-5s",
            "-PT5S",
            "P4000D",
            5,
            5.0,
            True,
            None,
            [],
            {},
            1_770_892_200,
            datetime(2026, 2, 12, 10, 30),
            datetime.max.replace(tzinfo=UTC),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=3))),
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))),
            timedelta(seconds=-1),
            timedelta.max,
        ],
        ids=ascii,
    )
    def test_refused(self, value: object) -> None:
        with pytest.raises(InvalidRequest) as caught:
            parse_instant(value, "options.delay_until", NOW)
        assert caught.value.field == "options.delay_until"
        assert caught.value.rule

    @given(st.text(max_size=45) | st.from_regex(r"[0-9:TZ.+-]{10,40}", fullmatch=True))
    def test_any_text_is_a_moment_or_refused(self, text: str) -> None:
        try:
            moment, verbatim = parse_instant(text, "scheduled_at", NOW)
        except InvalidRequest as refusal:
            told = refusal.field
        else:
            told = "scheduled_at"
            assert moment.tzinfo is UTC
            assert verbatim in (None, text)
        assert told == "scheduled_at"


class TestFormatting:
    @pytest.mark.parametrize(
        ("ms", "text"),
        [
            (0, "PT0S"),
            (1, "PT0.001S"),
            (500, "PT0.5S"),
            (1000, "PT1S"),
            (1500, "PT1.5S"),
            (60_000, "PT1M"),
            (90_000, "PT90S"),
            (300_000, "PT5M"),
            (3_600_000, "PT1H"),
            (86_400_000, "PT24H"),
        ],
    )
    def test_iso(self, ms: int, text: str) -> None:
        assert format_iso(ms) == text

    @given(st.integers(1, TEN_YEARS_MS))
    def test_iso_reads_back_the_same(self, ms: int) -> None:
        assert parse_seconds_ms(format_iso(ms), "x") == ms

    def test_instant_has_three_digits_and_z(self) -> None:
        assert format_instant(NOW) == "2026-02-12T10:30:00.000Z"
        assert format_instant(NOW + timedelta(microseconds=123_999)) == "2026-02-12T10:30:00.123Z"
        local = NOW.astimezone(timezone(timedelta(hours=5)))
        assert format_instant(local) == "2026-02-12T10:30:00.000Z"
        assert format_instant(datetime(1970, 1, 1, tzinfo=UTC)).startswith("1970-01-01T")

    @given(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
    def test_instant_reads_back_to_the_millisecond(self, moment: Any) -> None:
        parsed, _ = parse_instant(format_instant(moment), "x", NOW)
        assert timedelta(0) <= moment - parsed < timedelta(milliseconds=1)


@given(st.text(max_size=45) | st.from_regex(r"[PTWDHMS0-9.smh]{1,30}", fullmatch=True))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        ms = parse_seconds_ms(text, "timeout")
    except InvalidRequest as refusal:
        told = refusal.field
    else:
        told = "timeout"
        assert 0 < ms <= TEN_YEARS_MS
        assert text.isascii()
    assert told == "timeout"
