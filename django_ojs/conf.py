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
from django_ojs.domain.envelope import check_queue_name
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.events import ROUTINE, Kind
from django_ojs.domain.jsonvalue import MAX_ENVELOPE_BYTES
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
    "audit": 365 * _DAY_MS,
    "stats": 30 * _DAY_MS,
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
        "PREFETCH_MS",
        "BACKGROUND_THREADS",
        "HTTP",
        "ADMIN",
    }
)
_HTTP_COUNTS = {
    "MAX_BODY_BYTES": MAX_ENVELOPE_BYTES,
    "MAX_BATCH": 1000,
    "ENQUEUE_RATE": 1000,
    "LONG_POLLS": 64,
    "LONG_POLLS_PER_TOKEN": 16,
    "STREAMS": 32,
    "STREAMS_PER_TOKEN": 4,
}
_REDACT = ("pass", "token", "secret", "key", "auth", "cookie", "card", "credential", "signature")
_AUTHENTICATION = (
    "django_ojs.http.authentication.TokenAuthentication",
    "django_ojs.http.authentication.StaffSessionAuthentication",
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a job gets that says nothing itself: limits (explicit ones only), retry, priority."""

    limits: Limits = field(default_factory=Limits)
    retry: Mapping[str, Any] | None = None
    queue: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """``OJS["HTTP"]``: who may come in, and how much of everything.

    ``dev_token`` and ``test_directives`` hold only while ``DEBUG`` is on; ``test_directives`` of
    ``None`` are on then. The caps of long polls and streams count per process.
    """

    authentication: tuple[str, ...]
    dev_token: str | None
    test_directives: bool | None
    max_body_bytes: int
    max_batch: int
    enqueue_rate: int
    long_polls: int
    long_polls_per_token: int
    streams: int
    streams_per_token: int


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """``OJS["ADMIN"]``: ``read_only`` takes every action away; ``redact`` are words that hide a key's
    value; ``search_window`` is how many of the newest jobs a search in arguments looks at.
    """

    read_only: bool
    redact: tuple[str, ...]
    search_window: int


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of ``settings.OJS``, checked and with defaults filled in.

    ``heartbeat_timeout_ms`` is the one in ``DEFAULTS``, if there is one: it binds, as the built-in
    one does not.
    """

    database: str
    limits: Limits
    heartbeat_timeout_ms: int | None
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
    prefetch_ms: int
    background_threads: tuple[str, ...]
    http: HttpSettings
    admin: AdminSettings


def parse_defaults(value: object, where: str, *, keys: frozenset[str] = frozenset()) -> Defaults:
    """Limits, ``retry``, ``queue`` and ``priority`` of a job type, a queue or ``DEFAULTS``.

    Accepts the forms of the Python API (seconds, ``timedelta``, ``"10s"``, ISO 8601). Raises
    :class:`InvalidRequest` naming the key, also where two limits contradict each other.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(where, "must be a dict")
    unknown = set(value) - _LIMIT_KEYS - {"retry", "priority"} - keys
    if unknown:
        raise InvalidRequest(where, f"unknown key {sorted(map(str, unknown))[0]!r}")
    given = {key: item for key, item in value.items() if item is not None}
    limits = parse_limits({key: given[key] for key in _LIMIT_KEYS if key in given})
    total, timeout = limits.total_timeout_ms, limits.timeout_ms
    if total is not None and timeout is not None and total < timeout:
        raise InvalidRequest(f"{where}.total_timeout", "must not be below timeout")
    queue = given.get("queue")
    if queue is not None:
        queue = _queue_name(queue, f"{where}.queue")
    retry = given.get("retry")
    if retry is not None:
        parse_policy(retry, field=f"{where}.retry")
    priority = given.get("priority")
    if priority is not None and (type(priority) is not int or not -100 <= priority <= 100):
        raise InvalidRequest(f"{where}.priority", "must be an integer from -100 to 100")
    return Defaults(limits, retry, queue, priority)


def _queue_name(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(field, "must be a string")
    return check_queue_name(value, field)


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
        heartbeat_timeout_ms=defaults.limits.heartbeat_timeout_ms,
        retry=RetryPolicy() if defaults.retry is None else parse_policy(defaults.retry),
        queue=defaults.queue or "default",
        priority=defaults.priority or 0,
        queues={
            _queue_name(name, f"OJS['QUEUES'][{name!r}]"): parse_defaults(
                item, f"OJS['QUEUES'][{name!r}]"
            )
            for name, item in queues.items()
        },
        autodiscover=_autodiscover(value.get("AUTODISCOVER", ("jobs", "tasks"))),
        stored_events=_events(value.get("EVENTS", "problems")),
        strict_timeouts=_flag(value, "STRICT_TIMEOUTS", False),
        unfenced_ack=_choice(value, "UNFENCED_ACK", ("auto", "deny", "allow")),
        retention_ms=_retention(value.get("RETENTION", {})),
        notify=_flag(value, "NOTIFY", True),
        listen_database=_alias(value, "LISTEN_DATABASE"),
        executor_max_jobs=_count(value, "EXECUTOR_MAX_JOBS", 5000),
        prefetch_ms=_count(value, "PREFETCH_MS", 100, least=0),
        background_threads=_prefixes(value.get("BACKGROUND_THREADS", ())),
        http=_http(value.get("HTTP", {})),
        admin=_admin(value.get("ADMIN", {})),
    )


def _http(value: object) -> HttpSettings:
    if not isinstance(value, Mapping):
        raise InvalidRequest("OJS['HTTP']", "must be a dict")
    unknown = set(value) - set(_HTTP_COUNTS) - {"AUTHENTICATION", "DEV_TOKEN", "TEST_DIRECTIVES"}
    if unknown:
        raise InvalidRequest(f"OJS['HTTP'][{sorted(map(str, unknown))[0]!r}]", "is not a setting")
    classes = value.get("AUTHENTICATION", _AUTHENTICATION)
    if not isinstance(classes, (list, tuple)) or not all(isinstance(c, str) for c in classes):
        raise InvalidRequest("OJS['HTTP']['AUTHENTICATION']", "must be a list of dotted class names")
    dev_token = value.get("DEV_TOKEN") or None
    if dev_token is not None and not isinstance(dev_token, str):
        raise InvalidRequest("OJS['HTTP']['DEV_TOKEN']", "must be a string or None")
    counts = {key.lower(): _count(value, key, least) for key, least in _HTTP_COUNTS.items()}
    directives = _flag(value, "TEST_DIRECTIVES", False) if "TEST_DIRECTIVES" in value else None
    return HttpSettings(tuple(classes), dev_token, directives, **counts)


def _admin(value: object) -> AdminSettings:
    if not isinstance(value, Mapping):
        raise InvalidRequest("OJS['ADMIN']", "must be a dict")
    unknown = set(value) - {"READ_ONLY", "REDACT", "SEARCH_WINDOW"}
    if unknown:
        raise InvalidRequest(f"OJS['ADMIN'][{sorted(map(str, unknown))[0]!r}]", "is not a setting")
    words = value.get("REDACT", _REDACT)
    if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) and w for w in words):
        raise InvalidRequest("OJS['ADMIN']['REDACT']", "must be a list of words")
    return AdminSettings(
        _flag(value, "READ_ONLY", False),
        tuple(word.lower() for word in words),
        _count(value, "SEARCH_WINDOW", 100_000),
    )


def _text(value: Mapping[str, Any], key: str, default: str) -> str:
    item = value.get(key, default)
    if not isinstance(item, str) or not item:
        raise InvalidRequest(f"OJS[{key!r}]", "must be a non-empty string")
    return item


def _alias(value: Mapping[str, Any], key: str) -> str | None:
    return None if value.get(key) is None else _text(value, key, "")


def _autodiscover(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) for name in value
    ):
        raise InvalidRequest("OJS['AUTODISCOVER']", "must be a list of module names")
    return tuple(value)


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


def _count(value: Mapping[str, Any], key: str, default: int, *, least: int = 1) -> int:
    item = value.get(key, default)
    if type(item) is not int or item < least:
        raise InvalidRequest(f"OJS[{key!r}]", f"must be an integer of at least {least}")
    return item


def _prefixes(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(p, str) and p for p in value):
        raise InvalidRequest("OJS['BACKGROUND_THREADS']", "must be a list of beginnings of names")
    return tuple(value)


def _events(value: object) -> frozenset[str]:
    every = frozenset(str(kind) for kind in Kind)
    if value == "all":
        return every
    problems = every - ROUTINE
    if value == "problems":
        return problems
    kinds = value if isinstance(value, (list, tuple, set, frozenset)) else (None,)
    if all(isinstance(kind, str) and kind in every for kind in kinds):
        return problems | frozenset(map(str, kinds))
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
