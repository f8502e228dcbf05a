"""Durations and moments as people and clients write them (decision T1, OJS JSON format)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from django_ojs.domain.errors import InvalidRequest

TEN_YEARS_MS = 3653 * 86_400_000
LATEST = timedelta(days=36_525)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_GO = re.compile(
    r"(?=[0-9])(?:[0-9]{1,12}h)?(?:[0-9]{1,12}m(?!s))?(?:[0-9]{1,12}s)?(?:[0-9]{1,15}ms)?", re.ASCII
)
_GO_PART = re.compile(r"([0-9]{1,15})(ms|[smh])", re.ASCII)
_ISO = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,9}))?S)?)?",
    re.ASCII,
)
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,12})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_TIME = "an RFC 3339 time with a zone"
_FORMS = 'whole seconds, "10s", "4m", "1h" or an ISO 8601 duration such as "PT5M"'


def parse_seconds_ms(value: object, field: str, *, allow_zero: bool = False) -> int:
    """A limit whose bare numbers are seconds, in milliseconds.

    Accepts an integer, ``timedelta``, ``"10s"``, ``"500ms"``, ``"1h30m"``, ISO 8601 without years
    and months, and digits; no float, for which the error says what to write.
    Raises :class:`InvalidRequest` for anything else, for zero (unless
    ``allow_zero``) and for more than ten years.
    """
    if type(value) is int:
        return _bounded(value * 1000, field, allow_zero)
    if isinstance(value, timedelta):
        return _bounded(value // timedelta(milliseconds=1), field, allow_zero)
    if isinstance(value, str):
        return _bounded(_text_ms(value, field), field, allow_zero)
    if type(value) is float and 0 < value < TEN_YEARS_MS:
        raise InvalidRequest(field, f'must be {_FORMS}: write "{round(value * 1000)}ms"')
    raise InvalidRequest(field, f"must be {_FORMS}")


def parse_ms(value: object, field: str) -> int | None:
    """A ``*_ms`` limit: a whole number of milliseconds; 0 means unset."""
    if type(value) is not int:
        raise InvalidRequest(field, "must be a whole number of milliseconds")
    return _bounded(value, field, True) or None


def parse_duration_ms(value: object, field: str) -> int:
    """A retry interval: a duration string, ``timedelta`` or seconds; more than zero."""
    if type(value) is float and 0 < value <= TEN_YEARS_MS / 1000:
        return _bounded(round(value * 1000), field, False)
    return parse_seconds_ms(value, field)


def parse_instant(
    value: object, field: str, now: datetime, *, forms: str = f"{_TIME}, {_FORMS}"
) -> tuple[datetime, str | None]:
    """A moment, in UTC: RFC 3339 with a zone, an aware ``datetime``, or a time from ``now``.

    Relative forms are ``timedelta``, ``"+PT2S"``, ``"PT2S"`` and ``"5s"``. The second value is the
    text of an absolute moment as it was written, for echoing. Raises :class:`InvalidRequest`, also
    for what is before 1970 or more than a hundred years ahead; of what has none of the ``forms`` it
    names them.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidRequest(field, "must have a time zone")
        return _utc(value, field, now), None
    if isinstance(value, timedelta):
        return _later(now, _bounded(value // timedelta(milliseconds=1), field, True)), None
    if not isinstance(value, str):
        raise InvalidRequest(field, f"must be {_TIME}, or a duration from now")
    if _RFC3339.fullmatch(value):
        return _absolute(value, field, now), value
    if len(value) > 10 and value[:4].isdigit() and "-" in value[:8]:
        raise InvalidRequest(field, f"must be {_TIME}")
    return _later(now, _bounded(_text_ms(value.removeprefix("+"), field, forms), field, True)), None


def parse_past(
    value: object, field: str, now: datetime, *, forms: str = f"{_TIME}, {_FORMS}"
) -> datetime:
    """A moment to look back to, in UTC: as :func:`parse_instant`, but a duration is before ``now``.

    Raises :class:`InvalidRequest`.
    """
    at, written = parse_instant(value, field, now, forms=forms)
    relative = written is None and not isinstance(value, datetime)
    return now - (at - now) if relative else at


def format_iso(ms: int) -> str:
    """Milliseconds as an ISO 8601 duration in seconds, minutes or hours: ``PT0.5S``, ``PT5M``."""
    if ms and ms % 3_600_000 == 0:
        return f"PT{ms // 3_600_000}H"
    if ms and ms % 60_000 == 0:
        return f"PT{ms // 60_000}M"
    seconds, rest = divmod(ms, 1000)
    return f"PT{seconds}.{f'{rest:03}'.rstrip('0')}S" if rest else f"PT{seconds}S"


def format_instant(moment: datetime) -> str:
    """RFC 3339 in UTC with exactly three digits: ``2026-02-12T10:30:00.123Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _text_ms(text: str, field: str, forms: str = _FORMS) -> int:
    if len(text) <= 40:
        if text.isascii() and text.isdigit():
            return int(text) * 1000
        if _GO.fullmatch(text):
            return sum(int(number) * _UNITS[unit] for number, unit in _GO_PART.findall(text))
        match = _ISO.fullmatch(text)
        if match is not None and any(match.groups()):
            weeks, days, hours, minutes, seconds, fraction = match.groups()
            whole = (
                int(weeks or 0) * 604_800
                + int(days or 0) * 86_400
                + int(hours or 0) * 3600
                + int(minutes or 0) * 60
                + int(seconds or 0)
            )
            return whole * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    raise InvalidRequest(field, f"must be {forms}")


def _bounded(ms: int, field: str, allow_zero: bool) -> int:
    if ms < 0 or (ms == 0 and not allow_zero):
        raise InvalidRequest(field, "must not be negative" if allow_zero else "must be more than 0")
    if ms > TEN_YEARS_MS:
        raise InvalidRequest(field, "must not be more than ten years")
    return ms


def _absolute(text: str, field: str, now: datetime) -> datetime:
    head, _, fraction = text.upper().replace(" ", "T").partition(".")
    if fraction:
        digits = re.match(r"[0-9]+", fraction)
        assert digits is not None
        head += "." + digits[0][:6].ljust(6, "0") + fraction[digits.end() :]
    try:
        return _utc(datetime.fromisoformat(head), field, now)
    except ValueError as error:
        raise InvalidRequest(field, "is not a time that exists") from error


def _utc(moment: datetime, field: str, now: datetime) -> datetime:
    rule = "must be after 1970 and at most a hundred years ahead"
    try:
        utc = moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest(field, rule) from error
    if utc.year < 1970 or utc - now > LATEST:
        raise InvalidRequest(field, rule)
    return utc


def _later(now: datetime, ms: int) -> datetime:
    return now + timedelta(milliseconds=ms)
