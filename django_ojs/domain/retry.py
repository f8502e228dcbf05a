"""Retry policies: their wire forms, the delay of a retry, and what is never retried (OJS retry)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

from django_ojs.domain.durations import format_iso, parse_duration_ms, parse_ms
from django_ojs.domain.errors import InvalidRequest, InvalidRetryPolicy, UnknownRetryKey
from django_ojs.domain.jsonvalue import MAX_META_BYTES, encode, sanitise_text
from django_ojs.domain.suggestions import did_you_mean

Strategy = Literal["exponential", "linear", "polynomial", "constant"]
Exhaustion = Literal["discard", "dead_letter"]
MAX_ATTEMPTS = 100_000
UNLIMITED = 2**31 - 1
"""``max_attempts`` of a job that is tried again without end: asked for as ``None`` (decision R1)."""
MAX_PATTERNS = 100
_STRATEGIES: Mapping[str, Strategy] = {
    "exponential": "exponential",
    "linear": "linear",
    "polynomial": "polynomial",
    "constant": "constant",
    "none": "constant",
    "fixed": "constant",
}
_NAMES: Mapping[str, str] = {
    "maxAttempts": "max_attempts",
    "initialInterval": "initial_interval",
    "initial_delay_ms": "initial_interval_ms",
    "base_delay_ms": "initial_interval_ms",
    "backoffCoefficient": "backoff_coefficient",
    "multiplier": "backoff_coefficient",
    "maxInterval": "max_interval",
    "max_delay_ms": "max_interval_ms",
    "nonRetryableErrors": "non_retryable_errors",
    "onExhaustion": "on_exhaustion",
    "backoff_type": "backoff_strategy",
    "strategy": "backoff_strategy",
    "backoff": "backoff_strategy",
    "backoffStrategy": "backoff_strategy",
}
"""Other names that clients give to a field."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed job is tried again. Intervals are milliseconds.

    ``max_attempts`` counts executions; 0 and 1 both mean one, :data:`UNLIMITED` no limit (decision R1).
    """

    max_attempts: int = 3
    initial_interval_ms: int = 1000
    backoff_coefficient: float = 2.0
    max_interval_ms: int = 300_000
    jitter: bool = True
    non_retryable_errors: tuple[str, ...] = ()
    on_exhaustion: Exhaustion = "discard"
    backoff_strategy: Strategy = "exponential"

    def to_wire(self) -> dict[str, Any]:
        """The policy with all eight fields, as OJS writes it and as it is stored."""
        return {
            "max_attempts": self.max_attempts,
            "initial_interval": format_iso(self.initial_interval_ms),
            "backoff_coefficient": self.backoff_coefficient,
            "max_interval": format_iso(self.max_interval_ms),
            "jitter": self.jitter,
            "non_retryable_errors": list(self.non_retryable_errors),
            "on_exhaustion": self.on_exhaustion,
            "backoff_strategy": self.backoff_strategy,
        }

    def capped(self) -> RetryPolicy:
        """The policy as it is followed: an initial interval above ``max_interval`` is lowered to it."""
        if self.initial_interval_ms <= self.max_interval_ms:
            return self
        return replace(self, initial_interval_ms=self.max_interval_ms)

    def contradiction(self) -> str | None:
        """What :meth:`capped` changes, in words about the initial interval; ``None`` for nothing."""
        if self.initial_interval_ms <= self.max_interval_ms:
            return None
        initial, most = format_iso(self.initial_interval_ms), format_iso(self.max_interval_ms)
        return f"{initial} is above max_interval, so the first delay is capped at {most}"


DEFAULT = RetryPolicy()


_KEYS = frozenset({*DEFAULT.to_wire(), "initial_interval_ms", "max_interval_ms", *_NAMES})
"""Every name of a field."""


@lru_cache(maxsize=2048)
def from_stored(text: str) -> RetryPolicy:
    """A policy from the JSON text in which it is stored; keys that are not known are ignored."""
    return _parse(_given(json.loads(text), "retry"), DEFAULT)


def to_stored(policy: RetryPolicy) -> str:
    """The JSON text in which a policy is stored."""
    return json.dumps(policy.to_wire())


def parse_policy(value: object, field: str = "retry", base: RetryPolicy = DEFAULT) -> RetryPolicy:
    """A full or partial policy in any of its spellings, merged over ``base`` (decision R6).

    Intervals are ISO 8601 or Go-style durations, ``timedelta`` or seconds; ``*_ms`` names are
    milliseconds, where 0 means unset. ``non_retryable_errors`` may hold classes of exceptions, which
    stand for their names. ``max_attempts`` of ``None`` is no limit; any other field that is
    ``None`` counts as not given. An interval given here may contradict one of ``base``: another layer
    may change either (:meth:`RetryPolicy.capped`). Raises :class:`InvalidRetryPolicy` naming the
    field, for example ``retry.max_attempts``, also where both intervals are given and ``max_interval``
    is the shorter one, and its subclass :class:`UnknownRetryKey`.
    """
    if isinstance(value, Mapping):
        for key in value:
            if key not in _KEYS:
                raise _unknown(str(key), field)
    given = _given(value, field)
    policy = _parse(given, base)
    if _both_intervals(given) and policy.contradiction() is not None:
        raise InvalidRetryPolicy(f"{field}.max_interval", "must not be below initial_interval")
    return policy


def given_fields(value: Mapping[str, Any]) -> frozenset[str]:
    """The fields that a partial policy gives, whatever it calls them; intervals in any unit."""
    return frozenset(str(name).removesuffix("_ms") for name in _given(value, "retry"))


def _unknown(key: str, field: str) -> UnknownRetryKey:
    shown = sanitise_text(key, 100)
    hint = did_you_mean(shown, DEFAULT.to_wire(), "fields", _KEYS)
    return UnknownRetryKey(f"{field}.{shown}", f"is no field of a retry policy: {hint}")


def _given(value: object, field: str) -> Mapping[str, tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise InvalidRetryPolicy(field, "must be an object")
    given: dict[str, tuple[str, Any]] = {}
    for key, item in value.items():
        name = _NAMES.get(key, key)
        if item is not None or name == "max_attempts":
            given.setdefault(name, (f"{field}.{key}", item))
    return given


def _both_intervals(given: Mapping[str, tuple[str, Any]]) -> bool:
    return all(_interval(given, name) is not None for name in ("initial_interval", "max_interval"))


def _parse(given: Mapping[str, tuple[str, Any]], base: RetryPolicy) -> RetryPolicy:
    try:
        return _merged(given, base)
    except InvalidRetryPolicy:
        raise
    except InvalidRequest as error:
        raise InvalidRetryPolicy(error.field, error.rule) from error


def _merged(given: Mapping[str, tuple[str, Any]], base: RetryPolicy) -> RetryPolicy:
    initial = _interval(given, "initial_interval")
    longest = _interval(given, "max_interval")
    return RetryPolicy(
        max_attempts=_attempts(given, base.max_attempts),
        initial_interval_ms=base.initial_interval_ms if initial is None else initial,
        backoff_coefficient=_coefficient(given, base.backoff_coefficient),
        max_interval_ms=base.max_interval_ms if longest is None else longest,
        jitter=_jitter(given, base.jitter),
        non_retryable_errors=_patterns(given, base.non_retryable_errors),
        on_exhaustion=cast(
            Exhaustion, _one_of(given, "on_exhaustion", _EXHAUSTIONS, base.on_exhaustion)
        ),
        backoff_strategy=cast(
            Strategy, _one_of(given, "backoff_strategy", _STRATEGIES, base.backoff_strategy)
        ),
    )


_EXHAUSTIONS = {"discard": "discard", "dead_letter": "dead_letter"}


def _interval(given: Mapping[str, tuple[str, Any]], key: str) -> int | None:
    if key in given:
        return parse_duration_ms(given[key][1], given[key][0])
    if f"{key}_ms" in given:
        name, value = given[f"{key}_ms"]
        return parse_ms(value, name)
    return None


def _attempts(given: Mapping[str, tuple[str, Any]], default: int) -> int:
    name, value = given.get("max_attempts", ("", default))
    if value is None:
        return UNLIMITED
    if type(value) is not int or not (0 <= value <= MAX_ATTEMPTS or value == UNLIMITED):
        rule = f"must be an integer from 0 to {MAX_ATTEMPTS}, or None (null) for no limit"
        raise InvalidRetryPolicy(name, rule)
    return value


def _coefficient(given: Mapping[str, tuple[str, Any]], default: float) -> float:
    name, value = given.get("backoff_coefficient", ("", default))
    if type(value) not in (int, float) or not 1.0 <= value <= 1e6:
        raise InvalidRetryPolicy(name, "must be a number from 1.0 to 1000000")
    return float(value)


def _jitter(given: Mapping[str, tuple[str, Any]], default: bool) -> bool:
    name, value = given.get("jitter", ("", default))
    if type(value) is not bool:
        raise InvalidRetryPolicy(name, "must be true or false")
    return value


def _patterns(given: Mapping[str, tuple[str, Any]], default: tuple[str, ...]) -> tuple[str, ...]:
    name, value = given.get("non_retryable_errors", ("", default))
    value = _named(value)
    if not isinstance(value, (list, tuple)) or len(value) > MAX_PATTERNS:
        raise InvalidRetryPolicy(name, f"must be a list of at most {MAX_PATTERNS} strings")
    if not all(isinstance(item, str) and 0 < len(item) <= 255 for item in value):
        raise InvalidRetryPolicy(name, "must hold strings of 1 to 255 characters")
    encode(value, name, max_bytes=MAX_META_BYTES)
    return tuple(value)


def class_name(kind: type) -> str:
    """The name by which policies and errors call a class of exceptions."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _named(patterns: Any) -> Any:
    """The patterns with the names of classes of exceptions in place of the classes."""
    if not isinstance(patterns, (list, tuple)):
        return patterns
    return [
        class_name(one) if isinstance(one, type) and issubclass(one, BaseException) else one
        for one in patterns
    ]


def with_names(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """A policy that may list classes of exceptions, as one that can be written as JSON."""
    keys = policy.keys() & {"non_retryable_errors", "nonRetryableErrors"}
    return {**policy, **{key: _named(policy[key]) for key in keys}} if keys else policy


def _one_of(
    given: Mapping[str, tuple[str, Any]], key: str, choices: Mapping[str, str], default: str
) -> str:
    name, value = given.get(key, ("", default))
    if not isinstance(value, str) or value not in choices:
        raise InvalidRetryPolicy(name, f"must be one of {', '.join(choices)}")
    return choices[value]


def delay_ms(policy: RetryPolicy, attempt: int, jitter: float) -> int:
    """The delay before retry number ``attempt`` (the number of attempts made; decision R2).

    ``jitter`` is a number in [0, 1) drawn by the caller. Capped, jittered within [0.5, 1.5) and
    capped again; never overflows.
    """
    n = max(1, attempt)
    initial, most = policy.initial_interval_ms, policy.max_interval_ms
    growth = _log_growth(policy, n)
    # Compared as logarithms, so that no power is computed that does not fit.
    fits = growth < math.log(max(most, 1) / initial)
    raw = initial * _factor(policy, n) if fits else float(most)
    effective = min(raw, float(most))
    if policy.jitter:
        effective = min(effective * (0.5 + jitter), float(most))
    return int(effective + 1e-6)


def _log_growth(policy: RetryPolicy, n: int) -> float:
    match policy.backoff_strategy:
        case "constant":
            return 0.0
        case "linear":
            return math.log(n)
        case "exponential":
            return (n - 1) * math.log(policy.backoff_coefficient)
        case "polynomial":
            return policy.backoff_coefficient * math.log(n)


def _factor(policy: RetryPolicy, n: int) -> float:
    match policy.backoff_strategy:
        case "constant":
            return 1.0
        case "linear":
            return float(n)
        case "exponential":
            return float(policy.backoff_coefficient ** (n - 1))
        case "polynomial":
            return float(n**policy.backoff_coefficient)


def matches(patterns: Iterable[str], names: Iterable[str], bases: Iterable[str] = ()) -> bool:
    """Whether one of the names is listed: exactly, or under a prefix ``auth.*`` (decision R3).

    Base classes are listed exactly only: every error of Python is a subclass of one in ``builtins.*``.
    """
    known = list(names)
    exact = {*known, *bases}
    for pattern in patterns:
        if pattern.endswith(".*"):
            prefix = pattern[:-1]
            if any(name.startswith(prefix) for name in known):
                return True
        elif pattern in exact:
            return True
    return False
