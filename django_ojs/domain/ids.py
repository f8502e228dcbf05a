"""UUIDv7 (RFC 9562): the ids of jobs and events, in the order of their making."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from uuid import UUID

from django_ojs.domain.errors import InvalidRequest

_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)
_LOW_BITS = 62
_RANDOM_BITS = 74
_MOST_MS = (1 << 48) - 1


def uuid7(ms: int, random_bits: int) -> UUID:
    """The UUIDv7 of a millisecond and 74 random bits (higher bits are ignored)."""
    bits = random_bits & ((1 << _RANDOM_BITS) - 1)
    high, low = bits >> _LOW_BITS, bits & ((1 << _LOW_BITS) - 1)
    value = (min(max(ms, 0), _MOST_MS) << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low
    return UUID(int=value)


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
