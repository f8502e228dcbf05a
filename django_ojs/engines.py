"""Which family of databases a connection belongs to, whatever its backend calls itself."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend


class EngineFamily(StrEnum):
    """Databases that speak one language; the values are the vendors of Django's own backends."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"


_MODULES: Mapping[str, EngineFamily] = {
    "django.db.backends.postgresql.base": EngineFamily.POSTGRESQL,
    "django.db.backends.mysql.base": EngineFamily.MYSQL,
    "django.db.backends.sqlite3.base": EngineFamily.SQLITE,
}


def family_of(connection: BaseDatabaseWrapper) -> EngineFamily:
    """The family of a connection: that of the backend of Django's on which its own is built.

    So a backend with a ``vendor`` of its own, such as that of CockroachDB, belongs to PostgreSQL. One
    that is built on none of them belongs where its ``vendor`` says. Raises ``ImproperlyConfigured`` for
    any other.
    """
    for kind in type(connection).__mro__:
        if (found := _MODULES.get(kind.__module__)) is not None:
            return found
    try:
        return EngineFamily(connection.vendor)
    except ValueError:
        raise ImproperlyConfigured(
            f"django_ojs does not know databases of the vendor {connection.vendor!r}: its backend is "
            "built on none of Django's for PostgreSQL, MariaDB, MySQL and SQLite"
        ) from None


def is_postgresql(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server is PostgreSQL itself or built from its code, not one that only speaks its
    language: with NOTIFY, with the settings of its planner, and with its statistics.
    """
    return connection.vendor == EngineFamily.POSTGRESQL


def keeps_zones(engine: str) -> bool:
    """Whether the databases of a backend, named as in ``DATABASES``, have times with a zone; ``True``
    for what is no backend.
    """
    try:
        backend = load_backend(engine).DatabaseWrapper
    except (ImproperlyConfigured, AttributeError):
        return True
    return bool(backend.features_class.supports_timezones)
