"""Times and durations as people give them in a shell: in days too, as in ``5d``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_ojs import clock
from django_ojs.domain.durations import parse_instant, parse_past, parse_seconds_ms

EXPIRY = "an RFC 3339 time, or a time from now such as 90d, 12h or PT12H"
PAST = "an RFC 3339 time, or how long ago, such as 2d, 12h or PT12H"
_DAYS = re.compile(r"([0-9]{1,5})d", re.ASCII)


def on_the_wire(text: str) -> str:
    """Days in ISO 8601, since the durations of requests have no ``d``; everything else as it is."""
    days = _DAYS.fullmatch(text)
    return f"P{days[1]}D" if days else text


def span_ms(text: str, option: str, *, allow_zero: bool = False) -> int:
    """A duration, in milliseconds. Raises :class:`InvalidRequest`."""
    return parse_seconds_ms(on_the_wire(text), option, allow_zero=allow_zero)


def moment(text: str, option: str, alias: str) -> datetime:
    """A time; a duration is from now. Raises :class:`InvalidRequest`."""
    return parse_instant(on_the_wire(text), option, clock.now(alias), forms=EXPIRY)[0]


def past_moment(text: str, option: str, alias: str) -> datetime:
    """A time; a duration is before now. Raises :class:`InvalidRequest`."""
    return parse_past(on_the_wire(text), option, clock.now(alias), forms=PAST)


def expiry_of(options: Mapping[str, Any], never: str, alias: str) -> datetime | bool | None:
    """The new expiry: ``None`` for the word ``never``, ``False`` where none was named."""
    text = options["expires_at"]
    if text is None:
        return False
    return None if text == never else moment(text, "--expires-at", alias)
