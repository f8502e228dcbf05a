"""UUIDv7 (RFC 9562): the ids of jobs and events, in the order of their making; and random ones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from uuid import UUID, SafeUUID

from django_ojs.domain.errors import InvalidRequest

_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)
_LOW_BITS = 62
_RANDOM_BITS = 74
_MOST_MS = (1 << 48) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH
_V4 = (0x4 << 76) | (0b10 << 62)
_V4_FREE = ((1 << 128) - 1) & ~((0xF << 76) | (0b11 << 62))
_new, _set, _UNKNOWN = object.__new__, object.__setattr__, SafeUUID.unknown


def uuid_of(value: int) -> UUID:
    """The UUID of a number of 128 bits, in half of the time that ``UUID`` takes to check it."""
    made = _new(UUID)
    _set(made, "int", value)
    _set(made, "is_safe", _UNKNOWN)
    return made


def stored_uuid(value: UUID | str) -> UUID:
    """What a driver returns for a stored one: a ``UUID``, or its text with hyphens or without."""
    return value if isinstance(value, UUID) else uuid_of(int(value.replace("-", ""), 16))


def uuid4_of(bits: int) -> UUID:
    """The UUIDv4 of 128 random bits."""
    return uuid_of(bits & _V4_FREE | _V4)


def uuid7(ms: int, random_bits: int) -> UUID:
    """The UUIDv7 of a millisecond and 74 random bits (higher bits are ignored)."""
    bits = random_bits & ((1 << _RANDOM_BITS) - 1)
    high, low = bits >> _LOW_BITS, bits & ((1 << _LOW_BITS) - 1)
    value = (min(max(ms, 0), _MOST_MS) << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low
    return uuid_of(value)


def keyed_uuid7(moment: date, key: Sequence[object]) -> UUID:
    """The UUIDv7 of a moment, to the millisecond, and of a key: the same for the same two.

    The key takes the place of the random bits. Its parts are text, integers, ``UUID``s and dates;
    ``1`` and ``"1"`` are different keys, ``("a", "b")`` and ``("ab",)`` too. Raises
    :class:`InvalidRequest`.
    """
    if not isinstance(moment, datetime):
        if not isinstance(moment, date):
            raise InvalidRequest("moment", "must be a datetime or a date")
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if moment.tzinfo is None:
        raise InvalidRequest("moment", "must have a time zone")
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if ms < 0:
        raise InvalidRequest("moment", "must not be before 1970")
    if not key:
        raise InvalidRequest("key", "must have a part")
    digest = sha256(json.dumps([_part(part) for part in key]).encode()).digest()
    return uuid7(ms, int.from_bytes(digest[:10], "big"))


def _part(part: object) -> list[str | int]:
    match part:
        case bool():
            pass
        case str():
            return ["str", str(part)]
        case int():
            return ["int", int(part)]
        case UUID():
            return ["uuid", str(part)]
        case datetime():
            if part.tzinfo is not None:
                try:
                    return ["datetime", part.astimezone(UTC).isoformat()]
                except OverflowError as error:
                    rule = "must have datetimes whose year in UTC is from 1 to 9999"
                    raise InvalidRequest("key", rule) from error
        case date():
            return ["date", part.isoformat()]
    raise InvalidRequest(
        "key", "must have parts of text, integers, UUIDs, dates, or datetimes with a time zone"
    )


class Uuid7Generator:
    """Ids that only grow within this process, however many a millisecond needs.

    The clock going back does not matter; after a fork the child needs a generator of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self, ms: int, random_bits: int) -> UUID:
        """The next id for the millisecond ``ms``."""
        with self._lock:
            ordinal = self._last = self._after(ms, random_bits)
        return uuid7(ordinal >> _RANDOM_BITS, ordinal)

    def several(self, ms: int, random_bits: int, steps: Sequence[int]) -> list[UUID]:
        """The next id for the millisecond ``ms``, and one more for each random step of 32 bits."""
        with self._lock:
            ordinals = [self._after(ms, random_bits)]
            for step in steps:
                ordinals.append(ordinals[-1] + step + 1)
            self._last = ordinals[-1]
        return [uuid7(ordinal >> _RANDOM_BITS, ordinal) for ordinal in ordinals]

    def _after(self, ms: int, random_bits: int) -> int:
        bits = random_bits & ((1 << _RANDOM_BITS) - 1)
        ordinal = (min(max(ms, 0), _MOST_MS) << _RANDOM_BITS) | bits
        return ordinal if ordinal > self._last else self._last + 1 + (bits & 0xFFFFFFFF)


def parse_uuid7(value: object, field: str) -> UUID:
    """A UUIDv7 in lower case with hyphens, or a ``UUID``. Raises :class:`InvalidRequest`."""
    text = str(value) if isinstance(value, UUID) else value
    if not isinstance(text, str) or not _V7.fullmatch(text):
        raise InvalidRequest(field, "must be a lower-case UUIDv7")
    return UUID(text)


def time_of(value: UUID) -> int:
    """The millisecond since 1970 in a UUIDv7."""
    return value.int >> 80


def made_at(value: UUID) -> datetime:
    """The moment in a UUIDv7, at most the year 9999: clients choose ids, whose 48 bits go further than
    a ``datetime`` does.
    """
    return _EPOCH + min(timedelta(milliseconds=time_of(value)), _LONGEST)
