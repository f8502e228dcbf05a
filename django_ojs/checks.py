"""System checks for settings and databases under which jobs could be lost or not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands
from django.db import DatabaseError, connections, router
from django.db.utils import load_backend
from django.utils.module_loading import import_string

from django_ojs import clock, conf, hooks
from django_ojs.services.job_defaults import policy_of

Message = checks.CheckMessage
_OURS = ("runworker", "reap_timeouts", "ojs")


def register_all() -> None:
    """Register the checks with Django."""
    checks.register(check_settings, "ojs")
    checks.register(check_commands, "ojs")
    checks.register(check_limits, "ojs")
    checks.register(check_retry_policies, "ojs")
    checks.register(check_database_settings, "ojs")
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


def check_limits(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.E010``, ``ojs.W009``: a timeout is above a total timeout that is set elsewhere.

    Within one dictionary, or one ``@job``, it is rejected immediately.
    """
    config = _config()
    if config is None:
        return []
    found: list[Message] = []
    for name, queue in sorted(config.queues.items()):
        total = config.limits.total_timeout_ms
        if queue.limits.total_timeout_ms is None and _is_below(total, queue.limits.timeout_ms):
            found.append(
                checks.Warning(
                    f"OJS['QUEUES'][{name!r}]: the timeout is above the total_timeout of "
                    "OJS['DEFAULTS'], so no job ever gets that long",
                    hint="Give the queue a total_timeout, or lower its timeout.",
                    id="ojs.W009",
                )
            )
    for name, declared in sorted(hooks.job_types().items()):
        queue = config.queues.get(declared.queue or config.queue, conf.DefaultsLayer())
        total = queue.limits.total_timeout_ms or config.limits.total_timeout_ms
        if declared.limits.total_timeout_ms is None and _is_below(total, declared.limits.timeout_ms):
            found.append(
                checks.Error(
                    f"the job type {name!r}: its timeout is above the total_timeout that OJS gives "
                    "it, so every enqueue is refused",
                    hint="Give the type a total_timeout of its own, or lower its timeout.",
                    id="ojs.E010",
                )
            )
    return found


def _is_below(total: int | None, timeout: int | None) -> bool:
    return total is not None and timeout is not None and total < timeout


def check_retry_policies(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.W010``: an initial interval above the longest one."""
    config = _config()
    if config is None:
        return []
    policies = [("OJS['DEFAULTS']", config.retry)]
    policies += [
        (f"OJS['QUEUES'][{name!r}]", policy_of(None, name))
        for name, queue in sorted(config.queues.items())
        if queue.retry is not None
    ]
    policies += [
        (f"the job type {name!r}", policy_of(name))
        for name, declared in sorted(hooks.job_types().items())
        if declared.retry is not None
    ]
    return [
        checks.Warning(
            f"{where}: retry.initial_interval: {contradiction}",
            hint="Give max_interval too.",
            id="ojs.W010",
        )
        for where, policy in policies
        if (contradiction := policy.contradiction()) is not None
    ]


def check_commands(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.W002``: another app's command of the same name comes first."""
    return [
        checks.Warning(
            f"the command {name!r} is that of {app}, not of django_ojs",
            hint="Put django_ojs before that app in INSTALLED_APPS.",
            id="ojs.W002",
        )
        for name, app in sorted(get_commands().items())
        if name in _OURS
        and (app if isinstance(app, str) else app.__module__) != "django_ojs"
        and not str(getattr(app, "__module__", "")).startswith("django_ojs.")
    ]


def check_database_settings(app_configs: object, **kwargs: Any) -> list[Message]:
    """Checks of ``settings`` alone, without a connection."""
    config = _config()
    if config is None:
        return []
    if config.database not in settings.DATABASES:
        return [
            checks.Error(
                f"OJS['DATABASE'] is {config.database!r}, which is not in DATABASES",
                id="ojs.E002",
            )
        ]
    found: list[Message] = []
    if not settings.USE_TZ:
        found.append(
            checks.Error(
                "USE_TZ is False: deadlines need times with a zone",
                id="ojs.E003",
                hint="Set USE_TZ = True.",
            )
        )
    if (alias := config.listen_database) is not None and alias not in settings.DATABASES:
        found.append(
            checks.Error(
                f"OJS['LISTEN_DATABASE'] is {alias!r}, which is not in DATABASES", id="ojs.E004"
            )
        )
    found += _clock_of(config.database)
    database = settings.DATABASES[config.database]
    engine = str(database.get("ENGINE", ""))
    options = database.get("OPTIONS", {})
    found += _connection(config.database, database, engine)
    if engine.endswith("sqlite3"):
        found += _sqlite(options)
    if engine.endswith("mysql"):
        found += _mysql(options)
    found += _routes(config.database)
    found += _development_only(config)
    found += _authentication(config)
    found += _heartbeats(config)
    return found


def _clock_of(alias: str) -> list[Message]:
    try:
        clock.server_time(alias)
    except ImproperlyConfigured as error:
        return [
            checks.Error(
                str(error),
                hint="Keep the jobs in PostgreSQL, MariaDB, MySQL or SQLite: OJS['DATABASE'].",
                id="ojs.E012",
            )
        ]
    return []


def _connection(alias: str, database: dict[str, Any], engine: str) -> list[Message]:
    """Options of Django under which nothing here could work."""
    found: list[Message] = []
    if database.get("TIME_ZONE") is not None and not _keeps_zones(engine):
        found.append(
            checks.Error(
                f"DATABASES[{alias!r}]['TIME_ZONE'] is set: the jobs' times are kept in UTC, and "
                "this database would read them in that zone",
                hint="Take it out, or name in OJS['DATABASE'] an alias without it.",
                id="ojs.E011",
            )
        )
    if database.get("AUTOCOMMIT", True) is not True:
        found.append(
            checks.Error(
                f"DATABASES[{alias!r}]['AUTOCOMMIT'] is off: nothing would ever be committed",
                hint="Take it out, or name in OJS['DATABASE'] an alias without it.",
                id="ojs.E013",
            )
        )
    return found


def _keeps_zones(engine: str) -> bool:
    try:
        backend = load_backend(engine).DatabaseWrapper
    except (ImproperlyConfigured, AttributeError):
        return True  # Django says what is wrong with it
    return bool(backend.features_class.supports_timezones)


def _sqlite(options: dict[str, Any]) -> list[Message]:
    found: list[Message] = []
    if str(options.get("transaction_mode", "")).upper() != "IMMEDIATE":
        found.append(
            checks.Warning(
                "SQLite transactions are not IMMEDIATE: concurrent claims fail and are repeated",
                hint="Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
                id="ojs.W004",
            )
        )
    if "wal" not in str(options.get("init_command", "")).lower():
        found.append(
            checks.Warning(
                "SQLite is not set to write-ahead logging: readers and the writer block each other",
                hint="Set OPTIONS['init_command'] = 'PRAGMA journal_mode=WAL;'.",
                id="ojs.W005",
            )
        )
    return found


def _mysql(options: dict[str, Any]) -> list[Message]:
    level = str(options.get("isolation_level", "read committed")).lower()
    if level == "read committed":
        return []
    return [
        checks.Warning(
            f"the isolation level is {level!r}: claims take gap locks and deadlock",
            hint="Set OPTIONS['isolation_level'] = 'read committed'.",
            id="ojs.W006",
        )
    ]


def _routes(alias: str) -> list[Message]:
    from django_ojs import models

    wrong = [
        model.__name__
        for name in models.__all__
        if not router.allow_migrate_model(alias, model := getattr(models, name))
    ]
    if not wrong:
        return []
    return [
        checks.Error(
            f"a database router keeps {', '.join(wrong)} out of {alias!r}: all models of "
            "django_ojs must be in one database",
            hint="Route the app label django_ojs to OJS['DATABASE'].",
            id="ojs.E005",
        )
    ]


def _heartbeats(config: conf.Settings) -> list[Message]:
    limits = [("OJS['DEFAULTS']", config.limits.heartbeat_timeout_ms)]
    limits += [
        (f"OJS['QUEUES'][{name!r}]", queue.limits.heartbeat_timeout_ms)
        for name, queue in config.queues.items()
    ]
    return [
        checks.Warning(
            f"{where}: a heartbeat timeout below 2 s may fire for healthy jobs",
            hint="Beats are sent four times per timeout; leave them time to arrive.",
            id="ojs.W007",
        )
        for where, ms in limits
        if ms is not None and ms < 2000
    ]


def _development_only(config: conf.Settings) -> list[Message]:
    if settings.DEBUG:
        return []
    given = (
        ("DEV_TOKEN", config.http.dev_token is not None),
        ("TEST_DIRECTIVES", config.http.test_directives),
    )
    return [
        checks.Error(
            f"OJS['HTTP'][{key!r}] is set and DEBUG is off",
            hint="It is for development only, and has no effect here. Take it out.",
            id="ojs.E008",
        )
        for key, is_set in given
        if is_set
    ]


def _authentication(config: conf.Settings) -> list[Message]:
    found: list[Message] = []
    for name in config.http.authentication:
        try:
            import_string(name)
        except ImportError as error:
            found.append(
                checks.Error(
                    f"OJS['HTTP']['AUTHENTICATION']: {error}",
                    hint="Name importable authentication classes of REST framework.",
                    id="ojs.E009",
                )
            )
    return found


def check_database(
    app_configs: object, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[Message]:
    """Checks of the server; run by ``check --database``."""
    config = _config()
    if config is None or config.database not in (databases or ()):
        return []
    connection = connections[config.database]
    if connection.vendor == "sqlite":
        import sqlite3

        if sqlite3.sqlite_version_info >= (3, 35):
            return []
        return [
            checks.Error(
                f"SQLite {sqlite3.sqlite_version} lacks UPDATE ... RETURNING",
                hint="3.35 or later is needed.",
                id="ojs.E006",
            )
        ]
    if not connection.features.has_select_for_update_skip_locked:
        return [
            checks.Error(
                f"{connection.display_name} lacks SELECT ... FOR UPDATE SKIP LOCKED",
                hint="MariaDB 10.6, MySQL 8.0.1 or PostgreSQL is needed.",
                id="ojs.E007",
            )
        ]
    return []


def check_one_host(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.W003``: what is deployed keeps its jobs in SQLite."""
    config = _config()
    database = settings.DATABASES.get(config.database, {}) if config is not None else {}
    if not str(database.get("ENGINE", "")).endswith("sqlite3"):
        return []
    return [
        checks.Warning(
            "the jobs are in SQLite: one host only, one writer at a time",
            hint="Use PostgreSQL or MariaDB for more than one host.",
            id="ojs.W003",
        )
    ]


def check_reaper(app_configs: object, **kwargs: Any) -> list[Message]:
    """``ojs.W008`` (``check --deploy``): no process enforces the timeouts."""
    from django_ojs.services.reaper import health_problems

    config = _config()
    if config is None:
        return []
    try:
        problems = health_problems(clock.now(config.database), config.database)
    except DatabaseError:
        return []
    return [
        checks.Warning(
            str(problem),
            hint="Run a worker with maintenance tasks, or `reap_timeouts` from a timer.",
            id="ojs.W008",
        )
        for problem in problems
    ]


def _config() -> conf.Settings | None:
    """The settings, or ``None`` where ``ojs.E001`` says what is wrong with them."""
    try:
        return conf.current()
    except ImproperlyConfigured:
        return None
