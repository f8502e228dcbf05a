"""``DATABASE_URL`` to an entry of ``DATABASES``."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

_ENGINES = {
    "sqlite": "sqlite3",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}


def parse(url: str) -> dict[str, Any]:
    """A database from ``sqlite:///path``, ``postgres://user:password@host:port/name`` or ``mysql://``.

    Query parameters become ``OPTIONS``. Raises ``ImproperlyConfigured`` for another scheme.
    """
    parts = urlsplit(url)
    if parts.scheme not in _ENGINES:
        raise ImproperlyConfigured(
            f"DATABASE_URL: unknown scheme {parts.scheme!r}, use sqlite, postgres or mysql"
        )
    engine = _ENGINES[parts.scheme]
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    database: dict[str, Any] = {"ENGINE": f"django.db.backends.{engine}", "OPTIONS": options}
    if engine == "sqlite3":
        options.setdefault("transaction_mode", "IMMEDIATE")
        options.setdefault("timeout", 20)
        options.setdefault("init_command", "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
        return {**database, "NAME": unquote(parts.path[1:]) or "db.sqlite3"}
    if engine == "mysql":
        options.setdefault("charset", "utf8mb4")
        options.setdefault("isolation_level", "read committed")
        _need_mysql_driver()
    return {
        **database,
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


def _need_mysql_driver() -> None:
    """mysqlclient if it is there, else PyMySQL under its name."""
    try:
        import MySQLdb  # noqa: F401
    except ImportError:
        import pymysql

        # Django looks at the version of mysqlclient; PyMySQL's own numbers are lower.
        pymysql.version_info = (2, 2, 8, "final", 0)
        pymysql.install_as_MySQLdb()
