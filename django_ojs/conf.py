"""Typed settings over ``settings.OJS``; read lazily, re-read when the setting changes.

An unknown key or a bad value is reported by the system check ``ojs.E001``, and raised as
:class:`~django.core.exceptions.ImproperlyConfigured` when the settings are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.events import ROUTINE, Kind
from django_ojs.domain.jsonvalue import MAX_ENVELOPE_BYTES
from django_ojs.domain.limits import CONFIGURABLE, Limits
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.retry import RetryPolicy, parse_policy
from django_ojs.domain.sections import Section, choice, count, flag, optional, text, words

_DAY_MS = 86_400_000
_DEFAULT_KEYS = frozenset({*CONFIGURABLE, "retry", "queue", "priority"})
_RETENTION_MS: Mapping[str, int | None] = {
    "completed": 7 * _DAY_MS,
    "cancelled": 7 * _DAY_MS,
    "discarded": 30 * _DAY_MS,
    "dead_letter": 180 * _DAY_MS,
    "events": 7 * _DAY_MS,
    "workers": _DAY_MS,
    "queues": 7 * _DAY_MS,
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
    "ENQUEUE_BYTES": 64 << 20,
    "LONG_POLLS": 64,
    "LONG_POLLS_PER_TOKEN": 16,
    "STREAMS": 32,
    "STREAMS_PER_TOKEN": 4,
    "MAX_NEW_QUEUES_PER_HOUR": 100,
    "MAX_WORKERS": 1000,
}
_HTTP_KEYS = ("AUTHENTICATION", "DEV_TOKEN", "TEST_DIRECTIVES")
_REDACT: tuple[str, ...] = (
    "pass",
    "token",
    "secret",
    "key",
    "auth",
    "cookie",
    "card",
    "credential",
    "signature",
)
_AUTHENTICATION = (
    "django_ojs.http.authentication.TokenAuthentication",
    "django_ojs.http.authentication.StaffSessionAuthentication",
)


@dataclass(frozen=True, slots=True)
class DefaultsLayer:
    """The defaults that one layer (a job type, a queue) declares: explicit limits, retry, queue,
    priority.
    """

    limits: Limits = field(default_factory=Limits)
    retry: Mapping[str, Any] | None = None
    queue: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """``OJS["HTTP"]``: authentication, and limits.

    ``dev_token`` and ``test_directives`` hold only while ``DEBUG`` is on; ``test_directives`` of
    ``None`` are on then. Rates and caps count per process.
    """

    authentication: tuple[str, ...]
    dev_token: str | None
    test_directives: bool | None
    max_body_bytes: int
    max_batch: int
    enqueue_rate: int
    enqueue_bytes: int
    long_polls: int
    long_polls_per_token: int
    streams: int
    streams_per_token: int
    max_new_queues_per_hour: int
    max_workers: int


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """``OJS["ADMIN"]``: ``read_only`` removes every action; ``redact`` are words that hide a key's
    value; ``search_window`` is how many of the newest jobs a search in arguments looks at.
    """

    read_only: bool
    redact: tuple[str, ...]
    search_window: int


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of ``settings.OJS``, checked and with defaults filled in.

    ``heartbeat_timeout_ms`` is the one in ``DEFAULTS``, if set: it is explicit, the built-in one is
    not.
    """

    database: str
    limits: Limits
    heartbeat_timeout_ms: int | None
    retry: RetryPolicy
    queue: str
    priority: int
    queues: Mapping[str, DefaultsLayer]
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


def _defaults(section: Section, *, queue: bool = True) -> DefaultsLayer:
    ms: dict[str, Any] = {f"{name}_ms": section.read(name, _limit(name), None) for name in CONFIGURABLE}
    limits = Limits(**ms)
    total, timeout = limits.total_timeout_ms, limits.timeout_ms
    if total is not None and timeout is not None and total < timeout:
        section.refuse("total_timeout", "must not be below timeout")
    return DefaultsLayer(
        limits,
        section.read("retry", optional(_retry), None),
        section.read("queue", optional(_queue_name), None) if queue else None,
        section.read("priority", optional(_priority), None),
    )


def job_defaults(options: Mapping[str, Any], job_type: str) -> DefaultsLayer:
    """The options of ``@job``: limits, ``retry``, ``queue`` and ``priority``; ``None`` is not given.

    Accepts the forms of the Python API (seconds, ``timedelta``, ``"10s"``, ISO 8601). Raises
    :class:`InvalidRequest` naming the type and the option, also where two limits contradict each other.
    """
    wrong: list[InvalidRequest] = []
    section = Section(options, f"@job({job_type!r})", _DEFAULT_KEYS, wrong, key_form="{}: {}")
    defaults = _defaults(section)
    if wrong:
        raise wrong[0]
    return defaults


def read(value: object) -> tuple[Settings, list[InvalidRequest]]:
    """``settings.OJS``, with defaults for what is wrong in it, and all that is wrong."""
    wrong: list[InvalidRequest] = []
    whole = Section(value, "OJS", _KEYS, wrong)
    defaults = _defaults(whole.section("DEFAULTS", _DEFAULT_KEYS))
    settings = Settings(
        database=whole.read("DATABASE", text, "default"),
        limits=defaults.limits.over(
            Limits(timeout_ms=1_800_000, grace_period_ms=30_000, heartbeat_timeout_ms=60_000)
        ),
        heartbeat_timeout_ms=defaults.limits.heartbeat_timeout_ms,
        retry=RetryPolicy() if defaults.retry is None else parse_policy(defaults.retry),
        queue=defaults.queue or "default",
        priority=defaults.priority or 0,
        queues=_queues(whole.section("QUEUES")),
        autodiscover=whole.read("AUTODISCOVER", _autodiscover, ("jobs", "tasks")),
        stored_events=whole.read("EVENTS", _events, _events("problems", "")),
        strict_timeouts=whole.read("STRICT_TIMEOUTS", flag, False),
        unfenced_ack=whole.read("UNFENCED_ACK", choice("auto", "deny", "allow"), "auto"),
        retention_ms=_retention(whole.section("RETENTION", _RETENTION_MS)),
        notify=whole.read("NOTIFY", flag, True),
        listen_database=whole.read("LISTEN_DATABASE", optional(text), None),
        executor_max_jobs=whole.read("EXECUTOR_MAX_JOBS", count(1), 5000),
        prefetch_ms=whole.read("PREFETCH_MS", count(0), 100),
        background_threads=whole.read("BACKGROUND_THREADS", words("beginnings of names"), ()),
        http=_http(whole.section("HTTP", {*_HTTP_COUNTS, *_HTTP_KEYS})),
        admin=_admin(whole.section("ADMIN", ("READ_ONLY", "REDACT", "SEARCH_WINDOW"))),
    )
    return settings, wrong


def _queues(section: Section) -> dict[str, DefaultsLayer]:
    for name in section.keys:
        try:
            _queue_name(name, section.name(name))
        except InvalidRequest as error:
            section.wrong.append(error)
    return {
        name: _defaults(section.section(name, _DEFAULT_KEYS - {"queue"}), queue=False)
        for name in section.keys
    }


def _http(section: Section) -> HttpSettings:
    counts = {
        key.lower(): section.read(key, count(1), default) for key, default in _HTTP_COUNTS.items()
    }
    return HttpSettings(
        section.read("AUTHENTICATION", words("dotted class names"), _AUTHENTICATION),
        section.read("DEV_TOKEN", _dev_token, None),
        section.read("TEST_DIRECTIVES", flag, None),
        **counts,
    )


def _admin(section: Section) -> AdminSettings:
    return AdminSettings(
        section.read("READ_ONLY", flag, False),
        tuple(word.lower() for word in section.read("REDACT", words("words"), _REDACT)),
        section.read("SEARCH_WINDOW", count(1), 100_000),
    )


def _retention(section: Section) -> dict[str, int | None]:
    return {
        key: section.read(key, optional(parse_seconds_ms), default)
        for key, default in _RETENTION_MS.items()
    }


def _limit(name: str) -> Callable[[Any, str], int | None]:
    zero = name == "grace_period"
    return optional(lambda item, where: parse_seconds_ms(item, where, allow_zero=zero))


def _retry(item: object, where: str) -> Mapping[str, Any]:
    parse_policy(item, field=where)
    return cast(Mapping[str, Any], item)


def _priority(item: object, where: str) -> int:
    if type(item) is not int or not -100 <= item <= 100:
        raise InvalidRequest(where, "must be an integer from -100 to 100")
    return item


def _queue_name(item: object, where: str) -> str:
    if not isinstance(item, str):
        raise InvalidRequest(where, "must be a string")
    return check_queue_name(item, where)


def _dev_token(item: object, where: str) -> str | None:
    if item and not isinstance(item, str):
        raise InvalidRequest(where, "must be a string or None")
    return cast(str, item) or None


def _autodiscover(item: object, where: str) -> tuple[str, ...]:
    if not isinstance(item, (list, tuple)) or not all(
        isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) for name in item
    ):
        raise InvalidRequest(where, "must be a list of module names")
    return tuple(item)


def _events(item: object, where: str) -> frozenset[str]:
    every = frozenset(str(kind) for kind in Kind)
    if item == "all":
        return every
    problems = every - ROUTINE
    if item == "problems":
        return problems
    kinds = item if isinstance(item, (list, tuple, set, frozenset)) else (None,)
    if all(isinstance(kind, str) and kind in every for kind in kinds):
        return problems | frozenset(map(str, kinds))
    raise InvalidRequest(where, "must be 'all', 'problems' or a list of event kinds")


@cache
def _load() -> Settings:
    settings, wrong = read(getattr(django_settings, "OJS", {}))
    if wrong:
        raise ImproperlyConfigured("; ".join(map(str, wrong)))
    return settings


def current() -> Settings:
    """The settings in force. Raises ``ImproperlyConfigured`` when ``settings.OJS`` is wrong."""
    return _load()


def _forget(*, setting: str, **_: object) -> None:
    if setting == "OJS":
        _load.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_ojs.conf")
