"""The limits of a request: seconds, durations or ``*_ms``, at the top level or in ``options``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django_ojs.domain.durations import parse_ms, parse_seconds_ms

NAMES = (
    "timeout",
    "grace_period",
    "heartbeat_timeout",
    "total_timeout",
    "enqueue_ttl",
    "attempt_ttl",
    "visibility_timeout",
)
CONFIGURABLE = NAMES[:-1]
"""Those that settings, job types and edits may set."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in milliseconds; ``None`` is unset. ``timeout_given_in_ms`` is what T3 asks about."""

    timeout_ms: int | None = None
    grace_period_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    total_timeout_ms: int | None = None
    enqueue_ttl_ms: int | None = None
    attempt_ttl_ms: int | None = None
    visibility_timeout_ms: int | None = None
    timeout_given_in_ms: bool = False

    def over(self, base: Limits) -> Limits:
        """These limits, with those of ``base`` where one is unset."""
        unset = [f"{name}_ms" for name in NAMES if getattr(self, f"{name}_ms") is None]
        return replace(self, **{name: getattr(base, name) for name in unset})


NO_LIMITS = Limits()
KEYS = frozenset(NAMES) | {f"{name}_ms" for name in NAMES}
"""Every name of a limit in a request."""


def parse_limits(source: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Limits:
    """The limits of a request; ``options`` wins over the top level, ``x_ms`` over ``x``.

    Raises :class:`InvalidRequest` naming the field as it was written.
    """
    places = [("options.", options), ("", source)] if options else [("", source)]
    if not any(KEYS & place.keys() for _, place in places if place):
        return NO_LIMITS
    found: dict[str, Any] = {}
    for name in NAMES:
        for prefix, place in places:
            value = _one(place or {}, prefix, name)
            if value is not None:
                found[f"{name}_ms"] = value[0]
                if name == "timeout":
                    found["timeout_given_in_ms"] = value[1]
                break
    return Limits(**found)


def _one(place: Mapping[str, Any], prefix: str, name: str) -> tuple[int, bool] | None:
    value = place.get(f"{name}_ms")
    if value is not None:
        ms = parse_ms(value, f"{prefix}{name}_ms")
        if ms is not None:
            return ms, True
    value = place.get(name)
    if value is None:
        return None
    zero = name == "grace_period"
    return parse_seconds_ms(value, prefix + name, allow_zero=zero), False
