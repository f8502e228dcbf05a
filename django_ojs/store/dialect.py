"""What the databases spell differently: sets of rows as parameters, and the kinds of columns.

A *record set* is rows bound as one parameter, or one a column, and read by the database as a table,
so that a statement over a thousand rows is as long as one over ten (PostgreSQL stops at 65,535
parameters, SQLite at 32,766).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_ojs.domain.job import JobRecord
from django_ojs.store.columns import JOB, JOB_COLUMNS, Kind

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Dialect(ABC):
    """One database family. Record sets are aliased ``v``, their columns ``c0``, ``c1``..."""

    returning = True
    """Whether UPDATE can say which rows it wrote."""
    notifies = False
    """Whether sessions can be woken by a commit."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.quote = connection.ops.quote_name
        self.statements: dict[Hashable, tuple[str, Sequence[tuple[int, Kind]]]] = {}
        self.quoted = {column: self.quote(column) for column in JOB_COLUMNS}
        self.job_columns = ", ".join(f"j.{column}" for column in self.quoted.values())
        skips = connection.features.has_select_for_update_skip_locked
        self.skip_locked = " FOR UPDATE SKIP LOCKED" if skips else ""
        self.for_update = " FOR UPDATE" if connection.features.has_select_for_update else ""
        self.for_share = self._for_share if connection.features.has_select_for_update else ""
        self.share_unheld = f"{self._for_share_now} SKIP LOCKED" if skips else ""
        decoders = [self._decoder(JOB[column]) for column in JOB_COLUMNS]
        self._decoded = [(index, one) for index, one in enumerate(decoders) if one is not None]

    _for_share = " FOR SHARE"

    @property
    def _for_share_now(self) -> str:
        """The one that can be told not to wait."""
        return self._for_share

    limit = "LIMIT %s"
    """The limit of an ordered range: the parameter is the number of rows."""

    def ranged(self, column: str) -> tuple[str, int]:
        """That the last column before the order has one value, and how many parameters that takes.

        With two the order begins with the column.
        """
        return f"{column} = %s", 1

    def by_index(self, name: str) -> str:
        """The hint that a table is read by this index; empty where the statement leaves no choice."""
        return ""

    @abstractmethod
    def record_set(self, kinds: Sequence[Kind], rows: Sequence[Sequence[Any]]) -> tuple[str, list[str]]:
        """The FROM item for ``rows``, at least one, and its parameters."""

    def value(self, index: int, kind: Kind) -> str:
        """The expression that reads column ``index`` of a record set as ``kind``."""
        return f"v.c{index}"

    def given(
        self, kinds: Sequence[Kind], rows: Sequence[Sequence[Any]]
    ) -> tuple[str, list[Any], list[str]]:
        """Rows for :meth:`update`: the FROM item, its parameters, the expressions of the columns.

        One row needs no FROM item: its values are ordinary parameters, for the condition only, in the
        order given; what one row sets is the caller's own.
        """
        if len(rows) == 1:
            bound = [self.bind(kind, value) for kind, value in zip(kinds, rows[0], strict=True)]
            return "", bound, [self.placeholder(kind) for kind in kinds]
        source, literals = self.record_set(kinds, rows)
        return source, literals, [self.value(index, kind) for index, kind in enumerate(kinds)]

    def bind(self, kind: Kind, value: Any) -> Any:
        """``value`` as an ordinary parameter."""
        return value

    def placeholder(self, kind: Kind) -> str:
        """How an ordinary parameter of ``kind`` is written."""
        return "%s"

    def in_state(self, state: str) -> str:
        """That a row of :meth:`update` is in ``state``."""
        return f"j.state = '{state}'"

    def update(
        self,
        table: str,
        sets: tuple[Sequence[str], Sequence[Any]],
        given: tuple[str, Sequence[Any]],
        on: str,
        where: str,
        returning: str = "",
    ) -> tuple[str, list[Any]]:
        """``UPDATE table j`` and its parameters; RETURNING only where supported.

        ``sets`` and ``given`` (from :meth:`given`) are a text and the parameters in it.
        """
        source, bound = given
        tail = f" RETURNING {returning}" if returning else ""
        among = f" FROM {source}" if source else ""
        statement = f"UPDATE {table} AS j SET {', '.join(sets[0])}{among} WHERE {on} AND {where}{tail}"
        return statement, [*sets[1], *bound]

    def update_free(
        self,
        table: str,
        sets: tuple[Sequence[str], Sequence[Any]],
        given: tuple[str, Sequence[Any]],
        keys: Sequence[UUID],
        on: str,
        where: str,
        returning: str,
    ) -> tuple[str, list[Any]]:
        """As :meth:`update`, of rows with these keys that no other transaction holds.

        Only where ``returning``; SQLite locks no rows.
        """
        return self.update(table, sets, given, on, where, returning)

    def returned(self, columns: str) -> str:
        """Columns of ``j`` as RETURNING spells them."""
        return columns

    def upsert(self, table: str, key: str, sets: Mapping[str, str]) -> tuple[str, str]:
        """The head and the tail of an INSERT that updates the row that is there already.

        ``sets`` are expressions of ``{old}`` and ``{new}``, the values of that column.
        """
        changes = ", ".join(
            f"{column} = "
            + text.format(old=f"{table}.{column}", new=f"excluded.{column}", greatest=self.greatest)
            for column, text in sets.items()
        )
        return f"INSERT INTO {table}", f" ON CONFLICT ({key}) DO UPDATE SET {changes}"

    greatest = "MAX"
    """The function that gives the greater of two values, neither of them NULL."""

    same = "IS"
    """The operator that finds two values equal, or both NULL."""

    insert_ignoring = ("INSERT INTO", " ON CONFLICT DO NOTHING")
    """How to insert what may be there already: the head and the tail of the statement."""

    def tune(self, cur: CursorWrapper) -> None:  # noqa: B027 - most drivers need nothing
        """Make a cursor that reads many jobs as fast as its driver can be."""

    def jobs(self, rows: Iterable[Sequence[Any]]) -> list[JobRecord]:
        """Rows selected as ``job_columns``."""
        if not self._decoded:
            return [JobRecord._make(row) for row in rows]
        records = []
        for row in rows:
            values = list(row)
            for index, decode in self._decoded:
                value = values[index]
                if value is not None:
                    values[index] = decode(value)
            records.append(JobRecord._make(values))
        return records

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

    def update_free(
        self,
        table: str,
        sets: tuple[Sequence[str], Sequence[Any]],
        given: tuple[str, Sequence[Any]],
        keys: Sequence[UUID],
        on: str,
        where: str,
        returning: str,
    ) -> tuple[str, list[Any]]:
        """Locked first, passing over what others hold: an UPDATE alone would wait for it."""
        source, bound = given
        free = f"SELECT k.id FROM {table} k WHERE k.id = ANY(%s) FOR NO KEY UPDATE SKIP LOCKED"
        among = f"free, {source}" if source else "free"
        statement, parameters = self.update(
            table, sets, (among, bound), f"j.id = free.id AND {on}", where, returning
        )
        return f"WITH free AS MATERIALIZED ({free}) {statement}", [list(keys), *parameters]

    notifies = True
    greatest = "GREATEST"
    same = "IS NOT DISTINCT FROM"
    # Hidden from the planner, which takes a tenth of the rows for granted then: it reads in order
    # instead of sorting, with old statistics and without any.
    limit = "LIMIT (SELECT %s::bigint)"

    def ranged(self, column: str) -> tuple[str, int]:
        """A range of one value: an order by the column is kept, and only one index has it.

        By an equation it would be dropped, and any index of these columns would do, as old statistics
        see it.
        """
        return f"{column} BETWEEN %s AND %s", 2

    _types: Mapping[Kind, str] = {
        Kind.UUID: "uuid",
        Kind.TEXT: "text",
        Kind.INT: "bigint",
        Kind.FLOAT: "double precision",
        Kind.BOOL: "boolean",
        Kind.TIME: "timestamptz",
        Kind.JSON: "text",
    }

    def record_set(self, kinds: Sequence[Kind], rows: Sequence[Sequence[Any]]) -> tuple[str, list[str]]:
        """``unnest`` of one array a column.

        In a subquery each, so that the planner does not see their length: taking ten rows for
        granted it goes by the key, where it would read a small table from end to end for hundreds.
        """
        arrays = ", ".join(f"(SELECT %s::{self._types[kind]}[])" for kind in kinds)
        names = ", ".join(f"c{index}" for index in range(len(kinds)))
        columns = zip(*rows, strict=True)
        literals = [_array(kind, column) for kind, column in zip(kinds, columns, strict=True)]
        return f"unnest({arrays}) AS v({names})", literals

    def value(self, index: int, kind: Kind) -> str:
        """JSON travels as text."""
        return f"v.c{index}::jsonb" if kind is Kind.JSON else f"v.c{index}"

    def in_state(self, state: str) -> str:
        """In words that imply no partial index: which of them is small, old statistics do not know."""
        return f"j.state || '' = '{state}'"

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

    def returned(self, columns: str) -> str:
        """It knows neither the alias there nor a qualified name."""
        return columns.replace("j.", "")

    def by_index(self, name: str) -> str:
        """An error when it does not fit."""
        return f" INDEXED BY {name}"

    def record_set(self, kinds: Sequence[Kind], rows: Sequence[Sequence[Any]]) -> tuple[str, list[str]]:
        """``json_each``."""
        columns = ", ".join(
            f"json_extract(value, '$[{index}]') AS c{index}" for index in range(len(kinds))
        )
        return f"(SELECT {columns} FROM json_each(%s)) AS v", [self._rows(kinds, rows)]


class MySQL(_Textual):
    """MariaDB 10.6 and MySQL 8."""

    returning = False
    greatest = "GREATEST"
    same = "<=>"
    insert_ignoring = ("INSERT INTO", " ON DUPLICATE KEY UPDATE {key} = {table}.{key}")
    _for_share = " LOCK IN SHARE MODE"

    @property
    def _for_share_now(self) -> str:
        # MySQL knows no way to pass over in the words that MariaDB knows.
        connection: Any = self.connection
        return self._for_share if connection.mysql_is_mariadb else " FOR SHARE"

    def by_index(self, name: str) -> str:
        """Otherwise it may take one that holds the same columns, and read a backlog by it."""
        return f" FORCE INDEX ({name})"

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

    def upsert(self, table: str, key: str, sets: Mapping[str, str]) -> tuple[str, str]:
        """In words that MariaDB and MySQL share."""
        changes = ", ".join(
            f"{column} = " + text.format(old=column, new=f"VALUES({column})", greatest=self.greatest)
            for column, text in sets.items()
        )
        return f"INSERT INTO {table}", f" ON DUPLICATE KEY UPDATE {changes}"

    def record_set(self, kinds: Sequence[Kind], rows: Sequence[Sequence[Any]]) -> tuple[str, list[str]]:
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


def _array(kind: Kind, column: Iterable[Any]) -> str:
    """An array literal of PostgreSQL."""
    write = _ELEMENTS.get(kind, str)
    return "{" + ",".join(["NULL" if value is None else write(value) for value in column]) + "}"


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _hex(value: UUID) -> str:
    return f"{value.int:032x}"


_ELEMENTS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.UUID: _hex,
    Kind.TEXT: _quoted,
    Kind.JSON: _quoted,
    Kind.TIME: datetime.isoformat,
}


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
