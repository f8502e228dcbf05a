"""System checks for settings and databases under which jobs could be lost or not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands
from django.db import Error, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from django_ojs import clock, conf, hooks
from django_ojs.domain.retry import UNLIMITED
from django_ojs.domain.states import TERMINAL
from django_ojs.engines import EngineFamily, family_of, keeps_zones
from django_ojs.observability.log_levels import check_levels
from django_ojs.services import spanning
from django_ojs.services.job_defaults import policy_of
from django_ojs.services.schedules.declared import declared_twice

Message = checks.CheckMessage
_OURS = ("runworker", "reap_timeouts", "ojs")


def register_all() -> None:
    """Register the checks with Django."""
    checks.register(check_settings, "ojs")
    checks.register(check_commands, "ojs")
    checks.register(check_limits, "ojs")
    checks.register(check_retry_policies, "ojs")
    checks.register(check_unique_policies, "ojs")
    checks.register(check_schedules, "ojs")
    checks.register(check_keys, "ojs")
    checks.register(check_database_settings, "ojs")
    checks.register(check_levels, "ojs")
    checks.register(check_database, checks.Tags.database)
    checks.register(check_reaper, "ojs", deploy=True)
    checks.register(check_one_host, "ojs", deploy=True)


def check_settings(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.E001``: a key or value of ``settings.OJS`` is wrong; one for each."""
    _, wrong = conf.read(getattr(settings, "OJS", {}))
    return [
        checks.Error(
            str(error),
            hint="The keys and their forms: docs/reference/settings.md of the source distribution.",
            id="ojs.E001",
        )
        for error in wrong
    ]


def check_commands(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.W002``: another app's command of the same name comes first."""
    return [
        checks.Warning(
            f"the command {name!r} is that of {app}, not of django_ojs",
            hint="Put django_ojs first in INSTALLED_APPS, or use `ojs worker` and `ojs reap`.",
            id="ojs.W002",
        )
        for name, app in sorted(get_commands().items())
        if name in _OURS
        and (app if isinstance(app, str) else app.__module__) != "django_ojs"
        and not str(getattr(app, "__module__", "")).startswith("django_ojs.")
    ]


def _of_settings(find: Callable[..., Iterator[Message]]) -> Callable[..., list[Message]]:
    """A check of settings that can be read; where they cannot, ``ojs.E001`` says why."""

    @wraps(find)
    def check(app_configs: object, **kwargs: Any) -> list[Message]:
        try:
            config = conf.current()
        except ImproperlyConfigured:
            return []
        return list(find(config, **kwargs))

    return check


@_of_settings
def check_limits(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.E010``, ``ojs.W009``: a timeout is above a total timeout that is set elsewhere.

    Within one dictionary, or one ``@job``, it is rejected immediately.
    """
    for name, queue in sorted(config.queues.items()):
        total = config.limits.total_timeout_ms
        if queue.limits.total_timeout_ms is None and _is_below(total, queue.limits.timeout_ms):
            yield checks.Warning(
                f"OJS['QUEUES'][{name!r}]: the timeout is above the total_timeout of "
                "OJS['DEFAULTS'], so no job ever gets that long",
                hint="Give the queue a total_timeout, or lower its timeout.",
                id="ojs.W009",
            )
    for name, declared in sorted(hooks.job_types().items()):
        queue = config.queues.get(declared.queue or config.queue, conf.DefaultsLayer())
        total = queue.limits.total_timeout_ms or config.limits.total_timeout_ms
        if declared.limits.total_timeout_ms is None and _is_below(total, declared.limits.timeout_ms):
            yield checks.Error(
                f"the job type {name!r}: its timeout is above the total_timeout that OJS gives "
                "it, so every enqueue is refused",
                hint="Give the type a total_timeout of its own, or lower its timeout.",
                id="ojs.E010",
            )


@_of_settings
def check_schedules(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.E016``: a schedule of the settings has the name of one that the code declares."""
    for name in declared_twice():
        yield checks.Error(
            f"OJS['CRON'][{name!r}] is declared in code too",
            hint="Remove one of the two, or give one of them another name.",
            id="ojs.E016",
        )


@_of_settings
def check_keys(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.E019``: a rate limit or unique key would span the databases of queues."""
    for problem in spanning.problems():
        yield checks.Error(
            problem,
            hint="A key holds in one database: keep its queues in one, or leave the key out.",
            id="ojs.E019",
        )


@_of_settings
def check_unique_policies(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.W013``: finished jobs are to count for longer than they are kept."""
    for name, declared in sorted(hooks.job_types().items()):
        policy = declared.unique
        if policy is None or policy.period_ms is None:
            continue
        for state in sorted(policy.states & TERMINAL):
            if _is_below(config.retention_ms[state], policy.period_ms):
                yield checks.Warning(
                    f"the job type {name!r}: its jobs that are {state} are to count as equal for "
                    f"longer than OJS['RETENTION'][{str(state)!r}] keeps them",
                    hint="Keep them longer, or shorten the period or throttle.",
                    id="ojs.W013",
                )


def _is_below(total: int | None, timeout: int | None) -> bool:
    return total is not None and timeout is not None and total < timeout


@_of_settings
def check_retry_policies(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.W010``: an initial interval above the longest one; ``ojs.W012``: attempts without end."""
    policies = [("OJS['DEFAULTS']", config.retry, config.limits)]
    policies += [
        (f"OJS['QUEUES'][{name!r}]", policy_of(None, name), queue.limits.over(config.limits))
        for name, queue in sorted(config.queues.items())
        if queue.retry is not None
    ]
    for name, declared in sorted(hooks.job_types().items()):
        if declared.retry is not None:
            queue = config.queues.get(declared.queue or config.queue, conf.DefaultsLayer())
            limits = declared.limits.over(queue.limits).over(config.limits)
            policies.append((f"the job type {name!r}", policy_of(name), limits))
    for where, policy, limits in policies:
        if policy.max_attempts == UNLIMITED and limits.total_timeout_ms is None:
            yield checks.Warning(
                f"{where}: retry.max_attempts is None and there is no total_timeout: a job that "
                "cannot succeed is tried again forever",
                hint="Give it a total_timeout.",
                id="ojs.W012",
            )
        if (contradiction := policy.contradiction()) is not None:
            yield checks.Warning(
                f"{where}: retry.initial_interval: {contradiction}",
                hint="Give max_interval too.",
                id="ojs.W010",
            )


@_of_settings
def check_database_settings(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """Checks of ``settings`` alone, without a connection."""
    if config.database not in settings.DATABASES:
        yield checks.Error(
            f"OJS['DATABASE'] is {config.database!r}, which is not in DATABASES", id="ojs.E002"
        )
        return
    if not settings.USE_TZ:
        yield checks.Error(
            "USE_TZ is False: deadlines need times with a zone",
            hint="Set USE_TZ = True.",
            id="ojs.E003",
        )
    if (alias := config.listen_database) is not None and alias not in settings.DATABASES:
        yield checks.Error(
            f"OJS['LISTEN_DATABASE'] is {alias!r}, which is not in DATABASES", id="ojs.E004"
        )
    if (alias := config.read_database) is not None and alias not in settings.DATABASES:
        yield checks.Error(
            f"OJS['READ_DATABASE'] is {alias!r}, which is not in DATABASES", id="ojs.E017"
        )
    for alias in config.databases.aliases:
        if alias in settings.DATABASES:
            yield from _of_database(alias, settings.DATABASES[alias])
        else:
            yield checks.Error(
                f"OJS['QUEUE_DATABASES'] has {alias!r}, which is not in DATABASES", id="ojs.E018"
            )
    yield from _development_only(config)
    yield from _imports(config)
    yield from _heartbeats(config)


def _of_database(alias: str, database: dict[str, Any]) -> Iterator[Message]:
    engine = str(database.get("ENGINE", ""))
    options = database.get("OPTIONS", {})
    yield from _connection(alias, database, engine)
    if engine.endswith("sqlite3"):
        yield from _sqlite(options)
    if engine.endswith("mysql"):
        yield from _mysql(options)
    yield from _routes(alias)


def _connection(alias: str, database: dict[str, Any], engine: str) -> Iterator[Message]:
    """A database, or options of Django, under which nothing here could work."""
    try:
        clock.server_time(alias)
    except ImproperlyConfigured as error:
        yield checks.Error(
            str(error),
            hint="Keep the jobs in PostgreSQL, MariaDB, MySQL or SQLite: OJS['DATABASE'].",
            id="ojs.E012",
        )
    if database.get("TIME_ZONE") is not None and not keeps_zones(engine):
        yield checks.Error(
            f"DATABASES[{alias!r}]['TIME_ZONE'] is set: the jobs' times are kept in UTC, and "
            "this database would read them in that zone",
            hint="Take it out, or name in OJS['DATABASE'] an alias without it.",
            id="ojs.E011",
        )
    if database.get("AUTOCOMMIT", True) is not True:
        yield checks.Error(
            f"DATABASES[{alias!r}]['AUTOCOMMIT'] is off: nothing would ever be committed",
            hint="Take it out, or name in OJS['DATABASE'] an alias without it.",
            id="ojs.E013",
        )


def _sqlite(options: dict[str, Any]) -> Iterator[Message]:
    if str(options.get("transaction_mode", "")).upper() != "IMMEDIATE":
        yield checks.Warning(
            "SQLite transactions are not IMMEDIATE: concurrent claims, and enqueues with a rate limit,"
            " fail and are repeated",
            hint="Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
            id="ojs.W004",
        )
    if "wal" not in str(options.get("init_command", "")).lower():
        yield checks.Warning(
            "SQLite is not set to write-ahead logging: readers and the writer block each other",
            hint="Set OPTIONS['init_command'] = 'PRAGMA journal_mode=WAL;'.",
            id="ojs.W005",
        )


def _mysql(options: dict[str, Any]) -> Iterator[Message]:
    level = str(options.get("isolation_level", "read committed")).lower()
    if level != "read committed":
        yield checks.Warning(
            f"the isolation level is {level!r}: claims take gap locks and deadlock",
            hint="Set OPTIONS['isolation_level'] = 'read committed'.",
            id="ojs.W006",
        )


def _routes(alias: str) -> Iterator[Message]:
    from django_ojs import models

    wrong = [
        model.__name__
        for name in models.__all__
        if not router.allow_migrate_model(alias, model := getattr(models, name))
    ]
    if wrong:
        yield checks.Error(
            f"a database router keeps {', '.join(wrong)} out of {alias!r}: all models of "
            "django_ojs must be in each database that has jobs",
            hint="Route the app label django_ojs to OJS['DATABASE'], and to OJS['QUEUE_DATABASES'].",
            id="ojs.E005",
        )


def _heartbeats(config: conf.Settings) -> Iterator[Message]:
    limits = [("OJS['DEFAULTS']", config.limits.heartbeat_timeout_ms)]
    limits += [
        (f"OJS['QUEUES'][{name!r}]", queue.limits.heartbeat_timeout_ms)
        for name, queue in config.queues.items()
    ]
    for where, ms in limits:
        if ms is not None and ms < 2000:
            yield checks.Warning(
                f"{where}: a heartbeat timeout below 2 s may fire for healthy jobs",
                hint="Beats are sent four times per timeout; leave them time to arrive.",
                id="ojs.W007",
            )


def _development_only(config: conf.Settings) -> Iterator[Message]:
    given = (
        ("DEV_TOKEN", config.http.dev_token is not None),
        ("TEST_DIRECTIVES", config.http.test_directives),
    )
    for key, is_set in given:
        if is_set and not settings.DEBUG:
            yield checks.Error(
                f"OJS['HTTP'][{key!r}] is set and DEBUG is off",
                hint="It is for development only, and has no effect here. Take it out.",
                id="ojs.E008",
            )


def _imports(config: conf.Settings) -> Iterator[Message]:
    classes = "Name importable authentication classes of REST framework."
    callables = "Name importable functions that take a request and the next middleware."
    others = sorted(set(config.http.authentication) - set(conf.AUTHENTICATION))
    named = [("['HTTP']['AUTHENTICATION']", name, classes) for name in others]
    named += [("['ENQUEUE_MIDDLEWARE']", name, callables) for name in config.enqueue_middleware]
    around = "Name importable functions that take a job's context and the next middleware."
    named += [("['EXECUTION_MIDDLEWARE']", name, around) for name in config.execution_middleware]
    for setting, name, hint in named:
        try:
            import_string(name)
        except ImportError as error:
            yield checks.Error(f"OJS{setting}: {error}", hint=hint, id="ojs.E009")


@_of_settings
def check_database(
    config: conf.Settings, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[Message]:
    """Checks of the server; run by ``check --database``."""
    for alias in config.databases.aliases:
        if alias in (databases or ()):
            yield from _server(connections[alias])


def _server(connection: BaseDatabaseWrapper) -> Iterator[Message]:
    if family_of(connection) is EngineFamily.SQLITE:
        import sqlite3

        if sqlite3.sqlite_version_info < (3, 35):
            yield checks.Error(
                f"SQLite {sqlite3.sqlite_version} lacks UPDATE ... RETURNING",
                hint="3.35 or later is needed.",
                id="ojs.E006",
            )
    elif not connection.features.has_select_for_update_skip_locked:
        yield checks.Error(
            f"{connection.display_name} lacks SELECT ... FOR UPDATE SKIP LOCKED",
            hint="MariaDB 10.6, MySQL 8.0.1 or PostgreSQL is needed.",
            id="ojs.E007",
        )


@_of_settings
def check_one_host(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.W003``: what is deployed keeps its jobs in SQLite."""
    engines = [settings.DATABASES.get(one, {}).get("ENGINE") for one in config.databases.aliases]
    if any(str(engine).endswith("sqlite3") for engine in engines):
        yield checks.Warning(
            "the jobs are in SQLite: one host only, one writer at a time",
            hint="Use PostgreSQL or MariaDB for more than one host.",
            id="ojs.W003",
        )


@_of_settings
def check_reaper(config: conf.Settings, **kwargs: Any) -> Iterator[Message]:
    """``ojs.W008`` (``check --deploy``): no process enforces the timeouts."""
    from django_ojs.services.health import enforcement

    for alias in config.databases.aliases:
        # Other checks say what is wrong with a database.
        if alias not in connections:
            continue
        with suppress(Error, ImproperlyConfigured):
            for problem in enforcement(clock.now(alias), alias):
                yield checks.Warning(problem.problem, hint=problem.remedy, id="ojs.W008")
