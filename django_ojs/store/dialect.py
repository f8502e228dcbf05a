"""What the databases spell differently: sets of rows as one parameter, and the kinds of columns.

A *record set* is a JSON array bound as one parameter and read by the database as a table, so that
a statement over a thousand rows is as long as one over ten (PostgreSQL stops at 65,535 parameters,
SQLite at 32,766).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_ojs.domain.job import JobRecord
from django_ojs.store.columns import JOB, JOB_COLUMNS, Kind

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


class Dialect(ABC):
    """One database family. Record sets are aliased ``v``, their columns ``c0``, ``c1``..."""

    returning = True
    """Whether UPDATE can say which rows it wrote."""
    notifies = False
    """Whether sessions can be woken by a commit."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        quote = connection.ops.quote_name
        self.quoted = {column: quote(column) for column in JOB}
        self.job_columns = ", ".join(f"j.{quote(column)}" for column in JOB_COLUMNS)
        skips = connection.features.has_select_for_update_skip_locked
        self.skip_locked = " FOR UPDATE SKIP LOCKED" if skips else ""
        self.for_update = " FOR UPDATE" if connection.features.has_select_for_update else ""
        self.for_share = self._for_share if connection.features.has_select_for_update else ""
        self._decoders = [self._decoder(JOB[column]) for column in JOB_COLUMNS]

    _for_share = " FOR SHARE"

    @abstractmethod
    def record_set(self, kinds: Sequence[Kind], rows: Iterable[Sequence[Any]]) -> tuple[str, str]:
        """The FROM item for ``rows`` and its one parameter."""

    def value(self, index: int, kind: Kind) -> str:
        """The expression that reads column ``index`` of a record set as ``kind``."""
        return f"v.c{index}"

    def bind(self, kind: Kind, value: Any) -> Any:
        """``value`` as an ordinary parameter."""
        return value

    def placeholder(self, kind: Kind) -> str:
        """How an ordinary parameter of ``kind`` is written."""
        return "%s"

    def update(
        self,
        table: str,
        sets: Sequence[str],
        source: str,
        on: str,
        where: str,
        returning: str = "",
    ) -> str:
        """``UPDATE table j`` from the record set ``source``; RETURNING only where supported."""
        tail = f" RETURNING {returning}" if returning else ""
        return f"UPDATE {table} AS j SET {', '.join(sets)} FROM {source} WHERE {on} AND {where}{tail}"

    insert_ignoring = ("INSERT INTO", " ON CONFLICT DO NOTHING")
    """How to insert what may be there already: the head and the tail of the statement."""

    def tune(self, cur: CursorWrapper) -> None:  # noqa: B027 - most drivers need nothing
        """Make a cursor that reads many jobs as fast as its driver can be."""

    def job(self, row: Sequence[Any]) -> JobRecord:
        """A row selected as ``job_columns``."""
        return JobRecord._make(
            value if value is None or decode is None else decode(value)
            for decode, value in zip(self._decoders, row, strict=True)
        )

    def decode(self, kind: Kind, value: Any) -> Any:
        """One value as it came from a cursor."""
        decoder = self._decoder(kind)
        return value if value is None or decoder is None else decoder(value)

    def _decoder(self, kind: Kind) -> Callable[[Any], Any] | None:
        return None


class Postgres(Dialect):
    """PostgreSQL."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self._time: tuple[int, type] | None = None
        try:
            import psycopg
        except ImportError:
            return
        oid = psycopg.adapters.types["timestamptz"].oid
        loader = psycopg.adapters.get_loader(oid, psycopg.pq.Format.TEXT)
        self._time = None if loader is None else (oid, loader)

    def tune(self, cur: CursorWrapper) -> None:
        """The driver's own loader of times, in C where it has one; Django's is Python.

        Both give aware times; a job has nine of them.
        """
        if self._time is not None:
            cur.cursor.adapters.register_loader(*self._time)

    notifies = True
    _types: Mapping[Kind, str] = {
        Kind.UUID: "uuid",
        Kind.TEXT: "text",
        Kind.INT: "bigint",
        Kind.FLOAT: "double precision",
        Kind.BOOL: "boolean",
        Kind.TIME: "timestamptz",
        Kind.JSON: "text",
    }

    def record_set(self, kinds: Sequence[Kind], rows: Iterable[Sequence[Any]]) -> tuple[str, str]:
        """``json_to_recordset``."""
        names = [f"c{index}" for index in range(len(kinds))]
        columns = ", ".join(
            f"{name} {self._types[kind]}" for name, kind in zip(names, kinds, strict=True)
        )
        parameter = _dump([dict(zip(names, row, strict=True)) for row in rows])
        return f"json_to_recordset(%s::json) AS v({columns})", parameter

    def value(self, index: int, kind: Kind) -> str:
        """JSON travels as text, so that its own nesting is not counted."""
        return f"v.c{index}::jsonb" if kind is Kind.JSON else f"v.c{index}"

    def placeholder(self, kind: Kind) -> str:
        """Casts where the server could not guess."""
        return f"%s::{'jsonb' if kind is Kind.JSON else self._types[kind]}"


class _Textual(Dialect):
    """Databases whose times and JSON are text without a zone."""

    def bind(self, kind: Kind, value: Any) -> Any:
        """Naive UTC text for times, the column's own form for UUIDs."""
        if value is None:
            return None
        if kind is Kind.TIME:
            return str(value.astimezone(UTC).replace(tzinfo=None))
        return self._uuid(value) if kind is Kind.UUID else value

    def _uuid(self, value: UUID) -> str:
        return value.hex

    def _rows(self, kinds: Sequence[Kind], rows: Iterable[Sequence[Any]]) -> str:
        special = [index for index, kind in enumerate(kinds) if kind in (Kind.TIME, Kind.UUID)]
        encoded = []
        for row in rows:
            values = list(row)
            for index in special:
                values[index] = self.bind(kinds[index], values[index])
            encoded.append(values)
        return _dump(encoded)

    def _decoder(self, kind: Kind) -> Callable[[Any], Any] | None:
        return _TEXTUAL_DECODERS.get(kind)


class SQLite(_Textual):
    """SQLite 3.35 and later (UPDATE FROM, RETURNING)."""

    def record_set(self, kinds: Sequence[Kind], rows: Iterable[Sequence[Any]]) -> tuple[str, str]:
        """``json_each``."""
        columns = ", ".join(
            f"json_extract(value, '$[{index}]') AS c{index}" for index in range(len(kinds))
        )
        return f"(SELECT {columns} FROM json_each(%s)) AS v", self._rows(kinds, rows)


class MySQL(_Textual):
    """MariaDB 10.6 and MySQL 8."""

    returning = False
    insert_ignoring = ("INSERT INTO", " ON DUPLICATE KEY UPDATE {key} = {table}.{key}")
    _for_share = " LOCK IN SHARE MODE"
    _types: Mapping[Kind, str] = {
        Kind.UUID: "CHAR(36)",
        Kind.TEXT: "VARCHAR(1024)",
        Kind.INT: "BIGINT",
        Kind.FLOAT: "DOUBLE",
        Kind.BOOL: "TINYINT",
        Kind.TIME: "DATETIME(6)",
        Kind.JSON: "LONGTEXT",
    }

    def _uuid(self, value: UUID) -> str:
        return str(value) if self.connection.features.has_native_uuid_field else value.hex

    def record_set(self, kinds: Sequence[Kind], rows: Iterable[Sequence[Any]]) -> tuple[str, str]:
        """``JSON_TABLE``."""
        columns = ", ".join(
            f"c{index} {self._types[kind]} PATH '$[{index}]'" for index, kind in enumerate(kinds)
        )
        return f"JSON_TABLE(%s, '$[*]' COLUMNS({columns})) AS v", self._rows(kinds, rows)

    def update(
        self,
        table: str,
        sets: Sequence[str],
        source: str,
        on: str,
        where: str,
        returning: str = "",
    ) -> str:
        """A multi-table UPDATE; never RETURNING.

        The record set first, and its rows by their key: a small table would be scanned otherwise,
        and the rows that other transactions hold would be waited for.
        """
        target = f"{table} AS j FORCE INDEX (PRIMARY)"
        return f"UPDATE {source} STRAIGHT_JOIN {target} ON {on} SET {', '.join(sets)} WHERE {where}"


def _aware(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC)


def _as_uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


_ATTRIBUTE = "_ojs_dialect"
_TEXTUAL_DECODERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.TIME: _aware,
    Kind.UUID: _as_uuid,
    Kind.BOOL: bool,
}
_FAMILIES: Mapping[str, type[Dialect]] = {"postgresql": Postgres, "sqlite": SQLite, "mysql": MySQL}


def dialect(using: str) -> Dialect:
    """The dialect of the connection ``using`` in this thread."""
    connection = connections[using]
    found: Dialect | None = getattr(connection, _ATTRIBUTE, None)
    if found is None:
        found = _FAMILIES[connection.vendor](connection)
        setattr(connection, _ATTRIBUTE, found)
    return found


def cursor(using: str) -> CursorWrapper:
    """A cursor on the connection ``using``; use it as a context manager."""
    return connections[using].cursor()


def in_list(values: Sequence[Any]) -> str:
    """``(%s, %s, ...)`` for a bounded list of parameters."""
    return "(" + ", ".join(["%s"] * len(values)) + ")"
