"""Typed settings over ``settings.OJS``; read lazily, re-read when the setting changes.

An unknown key or a bad value is reported by the system check ``ojs.E001``, and raised as
:class:`~django.core.exceptions.ImproperlyConfigured` when the settings are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_ojs.domain import events, schedule
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.envelope import check_priority, from_call
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import MAX_ENVELOPE_BYTES
from django_ojs.domain.limits import CONFIGURABLE, Limits
from django_ojs.domain.names import queue_name
from django_ojs.domain.queue_databases import QueueDatabases, parse_patterns, queue_databases
from django_ojs.domain.rate_limit import stored_rate_limit
from django_ojs.domain.retry import RetryPolicy, parse_policy, with_names
from django_ojs.domain.schedule import ScheduleSpec
from django_ojs.domain.sections import (
    Section,
    choice,
    count,
    flag,
    flag_or,
    modules,
    optional,
    secret,
    text,
    words,
)
from django_ojs.domain.unique import UNIQUE_OPTIONS, UniquePolicy, declared

SPARSE = "sparse"
"""The value of ``NOTIFY`` with which a commit need not notify if another one just has."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""The values of ``LOGS`` with which something is kept."""
_DAY_MS = 86_400_000
_RETENTION_MS: Mapping[str, int | None] = {
    "completed": 7 * _DAY_MS,
    "cancelled": 7 * _DAY_MS,
    "discarded": 30 * _DAY_MS,
    "dead_letter": 180 * _DAY_MS,
    "workflows": 7 * _DAY_MS,
    "events": 7 * _DAY_MS,
    "logs": 30 * _DAY_MS,
    "workers": _DAY_MS,
    "queues": 7 * _DAY_MS,
    "rate_limits": 7 * _DAY_MS,
    "cron": 30 * _DAY_MS,
    "audit": 365 * _DAY_MS,
    "stats": 30 * _DAY_MS,
}
AUTHENTICATION = (
    "django_ojs.http.authentication.TokenAuthentication",
    "django_ojs.http.authentication.StaffSessionAuthentication",
)
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


@dataclass(frozen=True, slots=True)
class DefaultsLayer:
    """The defaults that one layer (a job type, a queue) declares: explicit limits, retry, queue,
    priority, what a worker does that is cut off from the database (``continue`` or ``stop``), rate
    limit. That of a queue is for all its jobs together. A job type also declares a unique policy, and
    the names of its arguments by position.
    """

    limits: Limits = field(default_factory=Limits)
    retry: Mapping[str, Any] | None = None
    queue: str | None = None
    priority: int | None = None
    on_partition: str | None = None
    rate_limit: Mapping[str, Any] | None = None
    unique: UniquePolicy | None = None
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """``OJS["HTTP"]``: authentication, and limits.

    ``metrics_token`` may read ``/metrics`` and nothing else. ``dev_token`` and ``test_directives`` hold
    only while ``DEBUG`` is on; ``test_directives`` of ``None`` are on then. Rates and caps count per
    process.
    """

    authentication: tuple[str, ...] = AUTHENTICATION
    dev_token: str | None = None
    metrics_token: str | None = None
    test_directives: bool | None = None
    max_body_bytes: int = MAX_ENVELOPE_BYTES
    max_batch: int = 1000
    enqueue_rate: int = 1000
    enqueue_bytes: int = 64 << 20
    long_polls: int = 64
    long_polls_per_token: int = 16
    streams: int = 32
    streams_per_token: int = 4
    max_new_queues_per_hour: int = 100
    max_workers: int = 1000


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """``OJS["ADMIN"]``: ``read_only`` removes every action; ``redact`` are words that hide a key's
    value; ``search_window`` is how many rows a search looks at, ``None`` what suits the database.
    """

    read_only: bool
    redact: tuple[str, ...]
    search_window: int | None


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of ``settings.OJS``, checked and with defaults filled in.

    ``heartbeat_timeout_ms`` is the one in ``DEFAULTS``, if set: it is explicit, the built-in one is
    not. ``database`` is ``databases.default``, or that of the block of :func:`on`.
    """

    database: str
    databases: QueueDatabases
    read_database: str | None
    limits: Limits
    heartbeat_timeout_ms: int | None
    retry: RetryPolicy
    queue: str
    priority: int
    on_partition: str
    queues: Mapping[str, DefaultsLayer]
    autodiscover: tuple[str, ...]
    stored_events: frozenset[str]
    logs: str | None
    enqueue_middleware: tuple[str, ...]
    execution_middleware: tuple[str, ...]
    strict_timeouts: bool
    unfenced_ack: str
    retention_ms: Mapping[str, int | None]
    notify: bool | str
    listen_database: str | None
    executor_max_jobs: int
    async_slots: int
    prefetch_ms: int
    background_threads: tuple[str, ...]
    http: HttpSettings
    admin: AdminSettings
    schedules: Mapping[str, ScheduleSpec]


def _defaults(
    section: Section, *, queue: bool = True, rate_limit: bool = True, unique: bool = False
) -> DefaultsLayer:
    ms: dict[str, Any] = {f"{name}_ms": section.read(name, _limit(name), None) for name in CONFIGURABLE}
    limits = Limits(**ms)
    total, timeout = limits.total_timeout_ms, limits.timeout_ms
    if total is not None and timeout is not None and total < timeout:
        section.refuse("total_timeout", "must not be below timeout")
    layer = DefaultsLayer(
        limits,
        section.read("retry", optional(_retry), None),
        section.read("queue", optional(queue_name), None) if queue else None,
        section.read("priority", optional(check_priority), None),
        section.read("on_partition", optional(choice("continue", "stop")), None),
        section.read("rate_limit", optional(stored_rate_limit), None) if rate_limit else None,
        _unique(section) if unique else None,
    )
    section.close()
    return layer


def _unique(section: Section) -> UniquePolicy | None:
    unique, throttle, debounce = (
        section.read(name, lambda item, where: item, None) for name in UNIQUE_OPTIONS
    )
    try:
        return declared(unique, throttle, debounce, name=section.name("{}")) or None
    except InvalidRequest as error:
        section.wrong.append(error)
        return None


def job_defaults(
    options: Mapping[str, Any], job_type: str, *, decorator: str = "@job"
) -> DefaultsLayer:
    """The options of ``@job``, or another decorator: limits, ``retry``, ``queue``, ``priority``,
    ``on_partition``, ``rate_limit``, ``unique``, ``throttle`` and ``debounce``; ``None`` is not given.

    Accepts the forms of the Python API (seconds, ``timedelta``, ``"10s"``, ISO 8601). Raises
    :class:`InvalidRequest` naming the type and the option, also where two limits contradict each other.
    """
    wrong: list[InvalidRequest] = []
    section = Section(options, f"{decorator}({job_type!r})", wrong, key_form="{}: {}")
    defaults = _defaults(section, unique=True)
    if wrong:
        raise wrong[0]
    return defaults


def read(value: object) -> tuple[Settings, list[InvalidRequest]]:
    """``settings.OJS``, with defaults for what is wrong in it, and all that is wrong."""
    wrong: list[InvalidRequest] = []
    whole = Section(value, "OJS", wrong)
    defaults = _defaults(whole.section("DEFAULTS"), rate_limit=False)
    database = whole.read("DATABASE", text, "default")
    settings = Settings(
        database=database,
        databases=queue_databases(database, whole.read("QUEUE_DATABASES", parse_patterns, {})),
        read_database=whole.read("READ_DATABASE", optional(text), None),
        limits=defaults.limits.over(
            Limits(timeout_ms=1_800_000, grace_period_ms=30_000, heartbeat_timeout_ms=60_000)
        ),
        heartbeat_timeout_ms=defaults.limits.heartbeat_timeout_ms,
        retry=RetryPolicy() if defaults.retry is None else parse_policy(defaults.retry),
        queue=defaults.queue or "default",
        priority=defaults.priority or 0,
        on_partition=defaults.on_partition or "continue",
        queues=_queues(whole.section("QUEUES")),
        autodiscover=whole.read("AUTODISCOVER", modules, ("jobs", "tasks")),
        stored_events=whole.read("EVENTS", events.stored, events.problems()),
        logs=whole.read("LOGS", optional(choice(*LOG_LEVELS)), None),
        enqueue_middleware=whole.read("ENQUEUE_MIDDLEWARE", words("dotted names of callables"), ()),
        execution_middleware=whole.read("EXECUTION_MIDDLEWARE", words("dotted names of callables"), ()),
        strict_timeouts=whole.read("STRICT_TIMEOUTS", flag, False),
        unfenced_ack=whole.read("UNFENCED_ACK", choice("auto", "deny", "allow"), "auto"),
        retention_ms=_retention(whole.section("RETENTION")),
        notify=whole.read("NOTIFY", flag_or(SPARSE), cast("bool | str", SPARSE)),
        listen_database=whole.read("LISTEN_DATABASE", optional(text), None),
        executor_max_jobs=whole.read("EXECUTOR_MAX_JOBS", count(1), 5000),
        async_slots=whole.read("ASYNC_SLOTS", slots, 0),
        prefetch_ms=whole.read("PREFETCH_MS", count(0), 100),
        background_threads=whole.read("BACKGROUND_THREADS", words("beginnings of names"), ()),
        http=_http(whole.section("HTTP")),
        admin=_admin(whole.section("ADMIN")),
        schedules=_schedules(whole.section("CRON")),
    )
    whole.close()
    return settings, wrong


def slots(item: object, where: str) -> int:
    """Read ``ASYNC_SLOTS``. Raises :class:`InvalidRequest`."""
    if not isinstance(item, int) or isinstance(item, bool) or not (item == 0 or 2 <= item <= 1000):
        raise InvalidRequest(where, "must be 0, for none, or a number from 2 to 1000")
    return item


def _queues(section: Section) -> dict[str, DefaultsLayer]:
    for name in section.keys:
        try:
            queue_name(name, section.name(name))
        except InvalidRequest as error:
            section.wrong.append(error)
    return {name: _defaults(section.section(name), queue=False) for name in section.keys}


def _schedules(section: Section) -> dict[str, ScheduleSpec]:
    return {name: spec for name in section.keys if (spec := section.read(name, _schedule(name), None))}


def _schedule(name: str) -> Callable[[Any, str], ScheduleSpec | None]:
    def parse(item: object, where: str) -> ScheduleSpec:
        if not isinstance(item, Mapping):
            raise InvalidRequest(where, "must be a dict")
        given = dict(item)
        timed = {key: given.pop(key) for key in schedule.OPTIONS if key in given}
        expression, kind = given.pop("schedule", None), given.pop("type", name)
        args, kwargs = given.pop("args", ()), given.pop("kwargs", None)
        try:
            envelope = from_call(kind, args, now=schedule.NO_TIME, kwargs=kwargs, **given)
            return schedule.make(name, expression, envelope, timed)
        except TypeError as error:
            raise InvalidRequest(where, str(error)) from None
        except InvalidRequest as error:
            raise InvalidRequest(f"{where}[{error.field!r}]", error.rule) from None

    return parse


def _http(section: Section) -> HttpSettings:
    parse: dict[str, Callable[[Any, str], Any]] = {
        "authentication": words("dotted class names"),
        "dev_token": secret,
        "metrics_token": secret,
        "test_directives": flag,
    }
    given: dict[str, Any] = {
        one.name: section.read(one.name.upper(), parse.get(one.name, count(1)), one.default)
        for one in fields(HttpSettings)
    }
    section.close()
    return HttpSettings(**given)


def _admin(section: Section) -> AdminSettings:
    admin = AdminSettings(
        section.read("READ_ONLY", flag, False),
        tuple(word.lower() for word in section.read("REDACT", words("words"), _REDACT)),
        section.read("SEARCH_WINDOW", optional(count(1)), None),
    )
    section.close()
    return admin


def _retention(section: Section) -> dict[str, int | None]:
    keep = {
        key: section.read(key, optional(parse_seconds_ms), default)
        for key, default in _RETENTION_MS.items()
    }
    section.close()
    return keep


def _limit(name: str) -> Callable[[Any, str], int | None]:
    zero = name == "grace_period"
    return optional(lambda item, where: parse_seconds_ms(item, where, allow_zero=zero))


def _retry(item: object, where: str) -> Mapping[str, Any]:
    parse_policy(item, field=where)
    return with_names(cast(Mapping[str, Any], item))


@cache
def _load() -> Settings:
    settings, wrong = read(getattr(django_settings, "OJS", {}))
    if wrong:
        raise ImproperlyConfigured("; ".join(map(str, wrong)))
    return settings


_chosen: ContextVar[str | None] = ContextVar("django_ojs.database", default=None)


@cache
def _load_on(alias: str) -> Settings:
    settings = _load()
    if alias == settings.database:
        return settings
    # Both are of the default database.
    return replace(settings, database=alias, read_database=None, listen_database=None)


def current() -> Settings:
    """The settings in force. Raises ``ImproperlyConfigured`` when ``settings.OJS`` is wrong."""
    alias = _chosen.get()
    return _load() if alias is None else _load_on(alias)


@contextmanager
def on(alias: str) -> Iterator[None]:
    """In the block, whatever names no database happens in this one; queues stay where they are."""
    token = _chosen.set(alias)
    try:
        yield
    finally:
        _chosen.reset(token)


def read_again() -> None:
    """Have the settings read again when they are used next."""
    _load.cache_clear()
    _load_on.cache_clear()


def _forget(*, setting: str, **_: object) -> None:
    if setting == "OJS":
        read_again()


setting_changed.connect(_forget, dispatch_uid="django_ojs.conf")
