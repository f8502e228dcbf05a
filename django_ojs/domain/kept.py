"""Fields of a request that are checked, kept and returned, and do nothing yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django_ojs.domain.durations import parse_duration_ms, parse_ms, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.states import State

KEPT = frozenset({"unique", "rate_limit", "schema", "version", "workflow_timeout"})
NOT_BUILT: Mapping[str, str] = {
    "unique": "kept, not enforced: jobs are not deduplicated by it",
    "rate_limit": "kept, not enforced: no start is held back by it",
    "schema": "kept, not enforced: args are not checked against it",
    "workflow_timeout": "kept, not enforced: there are no workflows",
}
"""The warning for each that is given."""
_DIMENSIONS = ("type", "queue", "args", "meta")
_STATES = tuple(map(str, State))
_CONFLICTS = ("reject", "ignore", "use_existing", "replace", "replace_except_schedule")
_PERIODS = ("second", "minute", "hour", "day")
_ON_LIMIT = ("wait", "reschedule", "drop")
_MOST = 100


def check_kept(extra: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequest` for what could not be meant (``null`` counts as not given)."""
    for name, check in (("unique", _unique), ("rate_limit", _rate_limit)):
        policy = extra.get(name)
        if policy is not None:
            if not isinstance(policy, Mapping):
                raise InvalidRequest(name, "must be an object")
            check({key: value for key, value in policy.items() if value is not None})
    if not isinstance(extra.get("schema"), (str, type(None))):
        raise InvalidRequest("schema", "must be a string")
    version = extra.get("version")
    if isinstance(version, bool) or not isinstance(version, (int, str, type(None))):
        raise InvalidRequest("version", "must be an integer or a string")
    if extra.get("workflow_timeout") is not None:
        parse_seconds_ms(extra["workflow_timeout"], "workflow_timeout")


def _unique(policy: Mapping[str, Any]) -> None:
    _words(policy, "unique", "keys", _DIMENSIONS)
    _words(policy, "unique", "states", _STATES)
    _words(policy, "unique", "args_keys")
    _words(policy, "unique", "meta_keys")
    if not isinstance(policy.get("key"), str):
        _words(policy, "unique", "key")
    if "meta" in policy.get("keys", ()) and not policy.get("meta_keys"):
        raise InvalidRequest("unique.meta_keys", "is required with the key 'meta'")
    if "period" in policy:
        _period(policy["period"], "unique.period")
    if "period_ms" in policy:
        parse_ms(policy["period_ms"], "unique.period_ms")
    _one_of(policy, "unique", "on_conflict", _CONFLICTS)


def _rate_limit(policy: Mapping[str, Any]) -> None:
    key = policy.get("key")
    if "key" in policy and (not isinstance(key, str) or not 0 < len(key) <= 255):
        raise InvalidRequest("rate_limit.key", "must be a string of 1 to 255 characters")
    _count(policy, "rate_limit", "concurrency")
    _above_zero(policy, "rate_limit", "max_per_second", "max_per_minute", "max_per_hour")
    for name in ("rate", "throttle"):
        inner = policy.get(name)
        if isinstance(inner, Mapping):
            _above_zero(inner, f"rate_limit.{name}", "limit")
            if inner.get("period") is not None:
                _period(inner["period"], f"rate_limit.{name}.period", _PERIODS)
        else:
            _above_zero(policy, "rate_limit", name)
    if "period" in policy:
        _period(policy["period"], "rate_limit.period", _PERIODS)
    _one_of(policy, "rate_limit", "on_limit", _ON_LIMIT)


def check_queue_config(config: object) -> None:
    """The ``config`` of a queue. Raises :class:`InvalidRequest`."""
    if not isinstance(config, Mapping):
        raise InvalidRequest("config", "must be an object")
    _count(config, "config", "max_size", "max_depth", "max_size_bytes", "concurrency")


def _words(
    policy: Mapping[str, Any], field: str, name: str, allowed: Collection[str] | None = None
) -> None:
    if name not in policy:
        return
    words = policy[name]
    if not isinstance(words, list) or not 0 < len(words) <= _MOST:
        raise InvalidRequest(f"{field}.{name}", f"must be an array of 1 to {_MOST} strings")
    if not all(isinstance(word, str) and word for word in words):
        raise InvalidRequest(f"{field}.{name}", "must hold strings")
    if allowed is not None and not set(words) <= set(allowed):
        raise InvalidRequest(f"{field}.{name}", f"must be out of {', '.join(allowed)}")


def _count(policy: Mapping[str, Any], field: str, *names: str) -> None:
    for name in names:
        value = policy.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidRequest(f"{field}.{name}", "must be an integer of at least 1")


def _above_zero(policy: Mapping[str, Any], field: str, *names: str) -> None:
    for name in names:
        value = policy.get(name)
        if value is not None and (type(value) not in (int, float) or value <= 0):
            raise InvalidRequest(f"{field}.{name}", "must be a number above 0")


def _period(value: object, field: str, words: Collection[str] = ()) -> None:
    if not (isinstance(value, str) and value in words):
        parse_duration_ms(value, field)


def _one_of(policy: Mapping[str, Any], field: str, name: str, allowed: Collection[str]) -> None:
    if name in policy and policy[name] not in allowed:
        raise InvalidRequest(f"{field}.{name}", f"must be one of {', '.join(allowed)}")
