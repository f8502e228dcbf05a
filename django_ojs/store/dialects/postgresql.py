"""PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, cached_property, lru_cache
from itertools import count
from operator import attrgetter
from typing import Any, cast
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_ojs.boottime import boottime
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialects.base import Dialect, Writer

_DONE, _TUPLES = 1, 2
"""The status of a result without rows, and with rows."""


_ASKED_AFTER = 5
"""Statements that could be prepared, before a session is asked whether it is the server's."""
_PREPARED_AFTER = 2
"""How often a statement is executed before it is prepared."""
_PLANS_FOR = 10.0
"""Seconds after which a session makes its plans anew."""
_NO_SUCH_STATEMENT, _OTHER_COLUMNS = "26000", "0A000"
"""What the server says of a prepared statement that it does not know, and of one that returned another
type before a table was altered.
"""
_PREPARING = "_ojs_preparing"


def prepare_repeated(connection: BaseDatabaseWrapper) -> None:
    """Have this session prepare everything that goes through :meth:`Dialect.repeated`, if it can."""
    setattr(connection, _PREPARING, connection.connection)


@cache
def _cursors() -> tuple[Collection[type], type]:
    """Django's cursors, and one that binds values on the server and has psycopg prepare what it
    executes.
    """
    from django.db.backends.postgresql import base

    usual: Any = (base.Cursor, base.ServerBindingCursor)
    binding: Any = base.ServerBindingCursor

    class PreparingCursor(binding):  # type: ignore[misc]
        on_forgotten: Callable[[], None]

        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            driver = self.connection
            # For this statement only: while it is set, psycopg remembers the text of every statement,
            # with its values where those are bound by the client.
            driver.prepare_threshold = _PREPARED_AFTER
            try:
                return super().execute(query, params, **options)
            except Exception as error:
                state = getattr(error, "sqlstate", None)
                if state not in (_NO_SUCH_STATEMENT, _OTHER_COLUMNS):
                    raise
                driver._prepared.clear()
                if state == _NO_SUCH_STATEMENT:
                    # Somebody had the server forget all (DISCARD ALL), which psycopg did not see.
                    self.on_forgotten()
                if driver.info.transaction_status:
                    raise
            finally:
                driver.prepare_threshold = None
            return super().execute(query, params, **options)

    return usual, PreparingCursor


class Postgres(Dialect):
    """PostgreSQL."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self._time: tuple[int, type] | None = None
        self._session: Any = None
        self._executed = 0
        self._planned_until = 0.0
        self._direct: bool | None = None
        self._quick: dict[str, bytes] = {}
        self._names = count()
        try:
            import psycopg
        except ImportError:
            return
        oid = psycopg.adapters.types["timestamptz"].oid
        loader = psycopg.adapters.get_loader(oid, psycopg.pq.Format.TEXT)
        self._time = None if loader is None else (oid, loader)

    @cached_property
    def lock_shows_latest(self) -> bool:  # type: ignore[override]
        """Under READ COMMITTED; the server's default is asked once where settings name no level."""
        from django.db.backends.postgresql.psycopg_any import IsolationLevel

        connection: Any = self.connection
        if "isolation_level" in connection.settings_dict["OPTIONS"]:
            return bool(connection.isolation_level == IsolationLevel.READ_COMMITTED)
        with connection.cursor() as cursor:
            cursor.execute("SHOW default_transaction_isolation")
            return bool(cursor.fetchone() == ("read committed",))

    def fast_loaders(self, cur: CursorWrapper) -> None:
        """The driver's own loader of times, in C where it has one; Django's is Python.

        Both give aware times; a job has nine of them.
        """
        if self._time is not None:
            cur.cursor.adapters.register_loader(*self._time)

    def repeated(self, *, new_rows: bool = False, anywhere: bool = False) -> CursorWrapper:
        """One that binds parameters on the server, where the session prepares statements.

        Not where Django logs queries: psycopg would not know the text of a prepared one.
        """
        connection = self.connection
        connection.ensure_connection()
        driver: Any = connection.connection
        if connection.queries_logged or not self._prepares(driver, new_rows or anywhere):
            return connection.cursor()
        if not new_rows:
            self._renew_plans(driver)
        usual, driver.cursor_factory = driver.cursor_factory, _cursors()[1]
        try:
            cursor: Any = connection.cursor()
        finally:
            driver.cursor_factory = usual
        cursor.cursor.on_forgotten = self._prepares_no_more
        return cast(CursorWrapper, cursor)

    def _renew_plans(self, driver: Any) -> None:
        """Plans are made for tables as large as they are then, and made anew only when those are
        analyzed: a worker that began on a small table would read all of what has come since.
        """
        now = boottime()
        if now < self._planned_until:
            return
        self._planned_until = now + _PLANS_FOR
        connection: Any = self.connection
        with suppress(connection.Database.Error):
            # Below Django: who counts its queries does not count this.
            driver.pgconn.exec_(b"DISCARD PLANS")

    def _prepares_no_more(self) -> None:
        self._direct = False

    def _prepares(self, driver: Any, anywhere: bool = False) -> bool:
        """Whether to prepare a statement: one for any session, or another where that was asked for
        (:func:`prepare_repeated`).
        """
        if not anywhere and getattr(self.connection, _PREPARING, None) is not driver:
            return False
        if self._session is not driver:
            self._session, self._executed, self._direct, self._quick = driver, 0, None, {}
            self._planned_until = boottime() + _PLANS_FOR
        if self._direct is None:
            self._executed += 1
            # A request that has its own session does not wait for the answer.
            if self._executed > _ASKED_AFTER:
                self._direct = self._is_direct(driver)
        return bool(self._direct)

    def _is_direct(self, driver: Any) -> bool | None:
        """Whether the driver can prepare, and no pooler shares the session; ``None`` if the server
        does not say.

        pgbouncer gives each client a process id, to cancel by, that is not the server's. A
        ``prepare_threshold`` of the project's own is kept: then its cursors prepare as it says. So is
        a cursor that somebody has put in the place of Django's, to trace what is executed.
        """
        connection: Any = self.connection
        shared = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
        if shared or getattr(driver, "prepare_threshold", 0) is not None:
            return False
        if driver.cursor_factory not in _cursors()[0]:
            return False
        try:
            # Below Django: who counts its queries does not count this.
            found = driver.pgconn.exec_(b"SELECT pg_backend_pid()")
        except connection.Database.Error:
            # It is broken, or in pipeline mode.
            return None
        if found.status != _TUPLES:
            return None
        return bool(int(found.get_value(0, 0)) == driver.info.backend_pid)

    def quick_row(self, driver: Any, statement: str, *, again: bool) -> Sequence[Any] | None:
        """By the library below psycopg: a third of the processor time, five times a second."""
        if self._time is None or not hasattr(driver, "pgconn"):
            return None
        found = self._execute(driver, statement, again and self._prepares(driver))
        if found.status != _TUPLES or found.ntuples != 1:
            return None
        row: list[Any] = []
        for index in range(found.nfields):
            value = found.get_value(0, index)
            if value is None:
                row.append(None)
            elif found.ftype(index) == self._time[0]:
                row.append(datetime.fromisoformat(value.decode()))
            else:
                row.append(int(value))
        return row

    def _execute(self, driver: Any, statement: str, prepared: bool) -> Any:
        """The result of a statement, or the error; what was prepared and fails is forgotten."""
        text = statement.encode()
        if not prepared:
            return driver.pgconn.exec_(text)
        name = self._quick.pop(statement, None)
        if name is None:
            name = b"ojs_%d" % next(self._names)
            found = driver.pgconn.prepare(name, text)
            if found.status != _DONE:
                return found
        found = driver.pgconn.exec_prepared(name, None)
        if found.status == _TUPLES:
            self._quick[statement] = name
        return found

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
        free = f"SELECT k.id FROM {table} k WHERE k.id = ANY(%s::uuid[]) FOR NO KEY UPDATE SKIP LOCKED"
        among = f"free, {source}" if source else "free"
        statement, parameters = self.update(
            table, sets, (among, bound), f"j.id = free.id AND {on}", where, returning
        )
        keyed = _array(ColumnType.UUID, keys)
        return f"WITH free AS MATERIALIZED ({free}) {statement}", [keyed, *parameters]

    def size_of(self, quoted: str) -> str:
        """Of the text that is read, not of what is stored, which may be compressed."""
        return f"octet_length(j.{quoted}::text)"

    def if_small(self, name: str, most: int) -> str:
        """What is large as it is stored is not read for its size."""
        stored = f"pg_column_size(j.{self.quoted[name]})"
        return f"CASE WHEN {stored} <= {most} THEN {super().if_small(name, most)} END"

    def claims_apart(self) -> bool:
        return True

    notifies = True
    inserts_what_it_updates = True
    updates_what_it_locks = True
    place = "ctid"
    greatest = "GREATEST"
    later = "{at} + {ms} * interval '1 millisecond'"
    null_safe_equals = "IS NOT DISTINCT FROM"
    # Hidden from the planner, which takes a tenth of the rows for granted then: it reads in order
    # instead of sorting, with old statistics and without any.
    limit = "LIMIT (SELECT %s::bigint)"

    def at_places(self, places: str) -> str:
        """One array, so that each is read by itself, however many there are taken to be."""
        return f"j.{self.place} = ANY(ARRAY({places}))"

    def ranged(self, column: str) -> tuple[str, int]:
        """A range of one value: an order by the column is kept, and only one index has it.

        By an equation it would be dropped, and any index of these columns would do, as old statistics
        see it.
        """
        return f"{column} BETWEEN %s AND %s", 2

    _types: Mapping[ColumnType, str] = {
        ColumnType.UUID: "uuid",
        ColumnType.TEXT: "text",
        ColumnType.INT: "bigint",
        ColumnType.FLOAT: "double precision",
        ColumnType.BOOL: "boolean",
        ColumnType.TIME: "timestamptz",
        ColumnType.JSON: "text",
    }

    def writer(self, kind: ColumnType) -> Writer | None:
        """Times and UUIDs as text, which the server reads as what the column holds: the driver has
        less to do.
        """
        return _WRITERS.get(kind)

    def record_set(
        self, kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]
    ) -> tuple[str, list[str]]:
        """``unnest`` of one array a column.

        In a subquery each, so that the planner does not see their length: taking ten rows for
        granted it goes by the key, where it would read a small table from end to end for hundreds.
        """
        arrays = ", ".join(f"(SELECT %s::{self._types[kind]}[])" for kind in kinds)
        names = ", ".join(f"c{index}" for index in range(len(kinds)))
        columns = zip(*rows, strict=True)
        literals = [_array(kind, column) for kind, column in zip(kinds, columns, strict=True)]
        return f"unnest({arrays}) AS v({names})", literals

    def one_of(self, column: str, ids: Sequence[UUID]) -> tuple[str, list[Any]]:
        """One array, of which the planner does not see the length, as in :meth:`record_set`."""
        return f"{column} = ANY((SELECT %s::uuid[])::uuid[])", [_array(ColumnType.UUID, ids)]

    def value(self, index: int, kind: ColumnType) -> str:
        """JSON travels as text."""
        return f"v.c{index}::jsonb" if kind is ColumnType.JSON else f"v.c{index}"

    def in_state(self, state: str) -> str:
        """In words that imply no partial index: which of them is small, old statistics do not know."""
        return f"j.state || '' = '{state}'"

    def placeholder(self, kind: ColumnType) -> str:
        """Casts where the server could not guess."""
        return f"%s::{'jsonb' if kind is ColumnType.JSON else self._types[kind]}"


# A new job has its time in three columns.
_WRITERS: Mapping[ColumnType, Writer] = {
    ColumnType.UUID: attrgetter("hex"),
    ColumnType.TIME: lru_cache(maxsize=16)(str),
}


def _array(kind: ColumnType, column: Iterable[Any]) -> str:
    """An array literal of PostgreSQL."""
    if kind is ColumnType.UUID:
        # The most frequent; without a call for each.
        values = ["NULL" if value is None else f"{value.int:032x}" for value in column]
        return "{" + ",".join(values) + "}"
    write = _ELEMENTS.get(kind, str)
    return "{" + ",".join(["NULL" if value is None else write(value) for value in column]) + "}"


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


_ELEMENTS: Mapping[ColumnType, Callable[[Any], str]] = {
    ColumnType.TEXT: _quoted,
    ColumnType.JSON: _quoted,
    ColumnType.TIME: lru_cache(maxsize=64)(datetime.isoformat),
}
