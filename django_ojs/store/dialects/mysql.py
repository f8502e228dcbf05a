"""MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.store.columns import ColumnType
from django_ojs.store.dialects.textual import Textual


def is_galera_node(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server is a node of a Galera cluster, of which two sessions may be with two nodes.
    Executes one statement on MariaDB.
    """
    if not getattr(connection, "mysql_is_mariadb", False):
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION VARIABLES LIKE 'wsrep_on'")
        return cursor.fetchone() not in (None, ("wsrep_on", "OFF"))


class MySQL(Textual):
    """MariaDB 10.6 and MySQL 8."""

    returning = False
    greatest = "GREATEST"
    later = "{at} + INTERVAL ({ms} * 1000) MICROSECOND"
    null_safe_equals = "<=>"
    _as_text = "CONCAT({}, '')"
    insert_ignoring = ("INSERT INTO", " ON DUPLICATE KEY UPDATE {key} = {table}.{key}")
    _for_share = " LOCK IN SHARE MODE"
    current_read = _for_share

    @cached_property
    def lock_shows_latest(self) -> bool:  # type: ignore[override]
        """Under READ COMMITTED, unless the server is a node of a Galera cluster: asked once."""
        connection: Any = self.connection
        return connection.isolation_level == "read committed" and not is_galera_node(connection)

    def claims_apart(self) -> bool:
        """On MariaDB, unless the server is a node of a Galera cluster, which is asked of it."""
        connection: Any = self.connection
        return bool(connection.mysql_is_mariadb and not is_galera_node(connection))

    @property
    def _for_share_now(self) -> str:
        # MySQL knows no way to pass over in the words that MariaDB knows.
        connection: Any = self.connection
        return self._for_share if connection.mysql_is_mariadb else " FOR SHARE"

    def by_index(self, name: str) -> str:
        """Otherwise it may take one that holds the same columns, and read a backlog by it."""
        return f" FORCE INDEX ({name})"

    _types: Mapping[ColumnType, str] = {
        ColumnType.UUID: "CHAR(36)",
        ColumnType.TEXT: "VARCHAR(1024)",
        ColumnType.INT: "BIGINT",
        ColumnType.FLOAT: "DOUBLE",
        ColumnType.BOOL: "TINYINT",
        ColumnType.TIME: "DATETIME(6)",
        ColumnType.JSON: "LONGTEXT",
    }

    def _uuid(self, value: UUID) -> str:
        return str(value) if self.connection.features.has_native_uuid_field else value.hex

    def upsert(self, table: str, key: str, sets: Mapping[str, str]) -> tuple[str, str]:
        """In words that MariaDB and MySQL share."""
        changes = ", ".join(
            f"{column} = " + text.format(old=column, new=f"VALUES({column})", greatest=self.greatest)
            for column, text in sets.items()
        )
        return f"INSERT INTO {table}", f" ON DUPLICATE KEY UPDATE {changes}"

    def record_set(
        self, kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]
    ) -> tuple[str, list[str]]:
        """``JSON_TABLE``. JSON columns are text in it, so that their own nesting is not counted."""
        columns = ", ".join(
            f"c{index} {self._types[kind]} PATH '$[{index}]'" for index, kind in enumerate(kinds)
        )
        return f"JSON_TABLE(%s, '$[*]' COLUMNS({columns})) AS v", [self._rows(kinds, rows)]

    def update(
        self,
        table: str,
        sets: tuple[Sequence[str], Sequence[Any]],
        given: tuple[str, Sequence[Any]],
        on: str,
        where: str,
        returning: str = "",
    ) -> tuple[str, list[Any]]:
        """A multi-table UPDATE; never RETURNING.

        The record set first, and its rows by their key: a small table would be scanned otherwise,
        and the rows that other transactions hold would be waited for.
        """
        source, bound = given
        if not source:
            return super().update(table, sets, given, on, where)
        target = f"{table} AS j FORCE INDEX (PRIMARY)"
        joined = f"{source} STRAIGHT_JOIN {target} ON {on}"
        return f"UPDATE {joined} SET {', '.join(sets[0])} WHERE {where}", [*bound, *sets[1]]
