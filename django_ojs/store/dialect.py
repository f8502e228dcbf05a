"""The dialect of a connection, and its cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections
from django.db.backends.utils import CursorWrapper

from django_ojs.store.dialects.base import Dialect
from django_ojs.store.dialects.mysql import MySQL
from django_ojs.store.dialects.postgresql import Postgres
from django_ojs.store.dialects.sqlite import SQLite

_ATTRIBUTE = "_ojs_dialect"
_FAMILIES: Mapping[str, type[Dialect]] = {"postgresql": Postgres, "sqlite": SQLite, "mysql": MySQL}


def dialect(using: str) -> Dialect:
    """The dialect of the connection ``using`` in this thread."""
    connection = connections[using]
    found: Dialect | None = getattr(connection, _ATTRIBUTE, None)
    if found is None:
        # MySQL's features ask the server, over a connection of their own where none is open yet.
        connection.ensure_connection()
        found = _FAMILIES[connection.vendor](connection)
        setattr(connection, _ATTRIBUTE, found)
    return found


def cursor(using: str) -> CursorWrapper:
    """A cursor on the connection ``using``; use it as a context manager."""
    return connections[using].cursor()


def in_list(values: Sequence[Any]) -> str:
    """``(%s, %s, ...)`` for a bounded list of parameters."""
    return "(" + ", ".join(["%s"] * len(values)) + ")"
