"""The dialect of a connection, and its cursors."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_ojs.engines import EngineFamily, family_of, is_postgresql
from django_ojs.store.dialects.base import Dialect
from django_ojs.store.dialects.base import in_list as in_list
from django_ojs.store.dialects.compatible import PostgresCompatible
from django_ojs.store.dialects.mysql import MySQL
from django_ojs.store.dialects.postgresql import Postgres
from django_ojs.store.dialects.sqlite import SQLite

_ATTRIBUTE = "_ojs_dialect"
_FAMILIES: Mapping[EngineFamily, type[Dialect]] = {
    EngineFamily.POSTGRESQL: Postgres,
    EngineFamily.MYSQL: MySQL,
    EngineFamily.SQLITE: SQLite,
}


def dialect(using: str) -> Dialect:
    """The dialect of the connection ``using`` in this thread.

    Raises ``ImproperlyConfigured`` for a database that is of no known family, or whose rows cannot be
    locked as claims need it.
    """
    connection = connections[using]
    found: Dialect | None = getattr(connection, _ATTRIBUTE, None)
    if found is None:
        # MySQL's features ask the server, over a connection of their own where none is open yet.
        connection.ensure_connection()
        found = _kind(connection)(connection)
        setattr(connection, _ATTRIBUTE, found)
    return found


def _kind(connection: BaseDatabaseWrapper) -> type[Dialect]:
    family = family_of(connection)
    if family is not EngineFamily.SQLITE and not connection.features.has_select_for_update_skip_locked:
        raise ImproperlyConfigured(
            f"{connection.display_name} lacks SELECT ... FOR UPDATE SKIP LOCKED, without which two "
            "workers would wait for each other"
        )
    if family is EngineFamily.POSTGRESQL and not is_postgresql(connection):
        return PostgresCompatible
    return _FAMILIES[family]


def cursor(using: str) -> CursorWrapper:
    """A cursor on the connection ``using``; use it as a context manager."""
    return connections[using].cursor()


def repeated(using: str, *, anywhere: bool = False) -> CursorWrapper:
    """As :func:`cursor`, for a statement that workers execute again and again in a few forms: their
    sessions have the server parse and plan it once, and ``anywhere`` other sessions too (ADR 56).
    """
    return dialect(using).repeated(anywhere=anywhere)
