"""Typed settings over ``settings.OJS``; read lazily, re-read when the setting changes.

An unknown key or a bad value is reported by the system check ``ojs.E001``, and raised as
:class:`~django.core.exceptions.ImproperlyConfigured` by whoever needs the settings first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.events import ROUTINE, Kind
from django_ojs.domain.limits import Limits, parse_limits
from django_ojs.domain.retry import RetryPolicy, parse_policy

_DAY_MS = 86_400_000
_LIMIT_KEYS = frozenset(
    {"timeout", "grace_period", "heartbeat_timeout", "total_timeout", "enqueue_ttl"}
)
_RETENTION_MS = {
    "completed": 7 * _DAY_MS,
    "cancelled": 7 * _DAY_MS,
    "discarded": 30 * _DAY_MS,
    "dead_letter": 180 * _DAY_MS,
    "events": 7 * _DAY_MS,
    "workers": _DAY_MS,
}
_KEYS = frozenset(
    {
        "DATABASE",
        "DEFAULTS",
        "QUEUES",
        "AUTODISCOVER",
        "EVENTS",
        "STRICT_TIMEOUTS",
        "UNFENCED_ACK",
        "RETENTION",
        "NOTIFY",
        "LISTEN_DATABASE",
        "EXECUTOR_MAX_JOBS",
    }
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a job gets that says nothing itself: limits (explicit ones only), retry, priority."""

    limits: Limits = field(default_factory=Limits)
    retry: Mapping[str, Any] | None = None
    queue: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of ``settings.OJS``, checked and with defaults filled in."""

    database: str
    limits: Limits
    retry: RetryPolicy
    queue: str
    priority: int
    queues: Mapping[str, Defaults]
    autodiscover: tuple[str, ...]
    stored_events: frozenset[str]
    strict_timeouts: bool
    unfenced_ack: str
    retention_ms: Mapping[str, int | None]
    notify: bool
    listen_database: str | None
    executor_max_jobs: int


def parse_defaults(value: object, where: str, *, keys: frozenset[str] = frozenset()) -> Defaults:
    """Limits, ``retry``, ``queue`` and ``priority`` of a job type, a queue or ``DEFAULTS``.

    Accepts the forms of the Python API (seconds, ``timedelta``, ``"10s"``, ISO 8601). Raises
    :class:`InvalidRequest` naming the key.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(where, "must be a dict")
    unknown = set(value) - _LIMIT_KEYS - {"retry", "priority"} - keys
    if unknown:
        raise InvalidRequest(where, f"unknown key {sorted(map(str, unknown))[0]!r}")
    given = {key: item for key, item in value.items() if item is not None}
    limits = parse_limits({key: given[key] for key in _LIMIT_KEYS if key in given})
    retry = given.get("retry")
    if retry is not None:
        parse_policy(retry, field=f"{where}.retry")
    priority = given.get("priority")
    if priority is not None and (type(priority) is not int or not -100 <= priority <= 100):
        raise InvalidRequest(f"{where}.priority", "must be an integer from -100 to 100")
    return Defaults(limits, retry, given.get("queue"), priority)


def parse(value: object) -> Settings:
    """``settings.OJS`` as :class:`Settings`. Raises :class:`InvalidRequest` naming the key."""
    if not isinstance(value, Mapping):
        raise InvalidRequest("OJS", "must be a dict")
    unknown = set(value) - _KEYS
    if unknown:
        raise InvalidRequest(f"OJS[{sorted(map(str, unknown))[0]!r}]", "is not a setting")
    defaults = parse_defaults(value.get("DEFAULTS", {}), "OJS['DEFAULTS']", keys=frozenset({"queue"}))
    queues = value.get("QUEUES", {})
    if not isinstance(queues, Mapping):
        raise InvalidRequest("OJS['QUEUES']", "must be a dict of dicts")
    return Settings(
        database=_text(value, "DATABASE", "default"),
        limits=defaults.limits.over(
            Limits(timeout_ms=1_800_000, grace_period_ms=30_000, heartbeat_timeout_ms=60_000)
        ),
        retry=RetryPolicy() if defaults.retry is None else parse_policy(defaults.retry),
        queue=defaults.queue or "default",
        priority=defaults.priority or 0,
        queues={
            str(name): parse_defaults(item, f"OJS['QUEUES'][{name!r}]") for name, item in queues.items()
        },
        autodiscover=tuple(value.get("AUTODISCOVER", ("jobs", "tasks"))),
        stored_events=_events(value.get("EVENTS", "problems")),
        strict_timeouts=_flag(value, "STRICT_TIMEOUTS", False),
        unfenced_ack=_choice(value, "UNFENCED_ACK", ("auto", "deny", "allow")),
        retention_ms=_retention(value.get("RETENTION", {})),
        notify=_flag(value, "NOTIFY", True),
        listen_database=value.get("LISTEN_DATABASE"),
        executor_max_jobs=_count(value, "EXECUTOR_MAX_JOBS", 5000),
    )


def _text(value: Mapping[str, Any], key: str, default: str) -> str:
    item = value.get(key, default)
    if not isinstance(item, str) or not item:
        raise InvalidRequest(f"OJS[{key!r}]", "must be a non-empty string")
    return item


def _flag(value: Mapping[str, Any], key: str, default: bool) -> bool:
    item = value.get(key, default)
    if not isinstance(item, bool):
        raise InvalidRequest(f"OJS[{key!r}]", "must be True or False")
    return item


def _choice(value: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    item = value.get(key, choices[0])
    if item not in choices:
        raise InvalidRequest(f"OJS[{key!r}]", f"must be one of {', '.join(choices)}")
    return str(item)


def _count(value: Mapping[str, Any], key: str, default: int) -> int:
    item = value.get(key, default)
    if type(item) is not int or item < 1:
        raise InvalidRequest(f"OJS[{key!r}]", "must be an integer of at least 1")
    return item


def _events(value: object) -> frozenset[str]:
    every = frozenset(str(kind) for kind in Kind)
    if value == "all":
        return every
    problems = every - ROUTINE
    if value == "problems":
        return problems
    if isinstance(value, (list, tuple, set, frozenset)) and every.issuperset(value):
        return problems | frozenset(value)
    raise InvalidRequest("OJS['EVENTS']", "must be 'all', 'problems' or a list of event kinds")


def _retention(value: object) -> Mapping[str, int | None]:
    if not isinstance(value, Mapping) or set(value) - set(_RETENTION_MS):
        allowed = ", ".join(_RETENTION_MS)
        raise InvalidRequest("OJS['RETENTION']", f"must be a dict with keys out of {allowed}")
    given = {
        str(key): None if item is None else parse_seconds_ms(item, f"OJS['RETENTION'][{key!r}]")
        for key, item in value.items()
    }
    return {**_RETENTION_MS, **given}


@cache
def _load() -> Settings:
    try:
        return parse(getattr(django_settings, "OJS", {}))
    except InvalidRequest as error:
        raise ImproperlyConfigured(str(error)) from error


def current() -> Settings:
    """The settings in force. Raises ``ImproperlyConfigured`` when ``settings.OJS`` is wrong."""
    return _load()


def _forget(*, setting: str, **_: object) -> None:
    if setting == "OJS":
        _load.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_ojs.conf")
