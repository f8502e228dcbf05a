"""What the databases spell differently: sets of rows as parameters, and the kinds of columns.

A *record set* is rows bound as one parameter, or one a column, and read by the database as a table,
so that a statement over a thousand rows is as long as one over ten (PostgreSQL stops at 65,535
parameters, SQLite at 32,766).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_ojs.domain.job import LARGE, JobRow
from django_ojs.store.columns import JOB, JOB_COLUMNS, ColumnType

Writer = Callable[[Any], Any]
_Decoder = tuple[int, Callable[[Any], Any], bool]


def in_list(values: Sequence[Any]) -> str:
    """``(%s, %s, ...)`` for a bounded list of parameters."""
    return "(" + ", ".join(["%s"] * len(values)) + ")"


def _literal(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"


def _decoded(rows: Iterable[Sequence[Any]], decoders: Sequence[_Decoder]) -> Iterable[Sequence[Any]]:
    if not decoders:
        return rows
    # By column, since many of them hold nothing.
    columns = list(zip(*rows, strict=True))
    # Of a claim, and of a batch that was enqueued, all have the same times.
    once = cache(cache)
    for index, decode, repeats in decoders if columns else ():
        column = columns[index]
        empty = column.count(None)
        if empty == len(column):
            continue
        if repeats:
            decode = once(decode)
        if empty:
            columns[index] = tuple([None if value is None else decode(value) for value in column])
        else:
            columns[index] = tuple(map(decode, column))
    return zip(*columns, strict=True)


class Dialect(ABC):
    """One database family. Record sets are aliased ``v``, their columns ``c0``, ``c1``..."""

    returning = True
    """Whether UPDATE supports RETURNING."""
    notifies = False
    """Whether sessions can be woken by a commit."""
    lock_shows_latest = True
    """Whether who has locked a row then reads what all have committed who had locked it before: not by
    the snapshot of a transaction that is older than the lock, nor on another node than they.
    """
    inserts_what_it_updates = False
    """Whether one statement can update rows and insert others from what it has updated."""
    updates_what_it_locks = False
    """Whether one statement can lock rows in an order, passing over others, and update them."""

    place = "id"
    """The column by which a row is found that was found before in the same statement."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.quote = connection.ops.quote_name
        self.statements: dict[Hashable, tuple[str, Sequence[tuple[int, Writer | None]]]] = {}
        self.quoted = {column: self.quote(column) for column in JOB_COLUMNS}
        self.job_columns = ", ".join(map(self._read, JOB_COLUMNS))
        skips = connection.features.has_select_for_update_skip_locked
        self.skip_locked = " FOR UPDATE SKIP LOCKED" if skips else ""
        self.for_update = " FOR UPDATE" if connection.features.has_select_for_update else ""
        self.for_share = self._for_share if connection.features.has_select_for_update else ""
        self.share_unheld = f"{self._for_share_now} SKIP LOCKED" if skips else ""
        self._of_jobs = self._decoders([JOB[column] for column in JOB_COLUMNS])

    _for_share = " FOR SHARE"

    @property
    def _for_share_now(self) -> str:
        """The one that can be told not to wait."""
        return self._for_share

    def claims_apart(self) -> bool:
        """Whether a worker claims on a connection of its own, while another writes its reports.

        Not where there is one writer at a time, nor where two connections may be with two nodes, of
        which one does not know yet what was claimed on the other.
        """
        return False

    def find_by_key(self) -> None:
        """Find rows by their keys from now on: this server refuses ``ctid``, as YugabyteDB does."""
        self.place = Dialect.place

    def at_places(self, places: str) -> str:
        """That ``j`` is at one of the places that a SELECT returns."""
        return f"j.{self.place} IN ({places})"

    current_read = ""
    """How a read passes by the snapshot of its transaction; empty where it need not, or cannot."""

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
    def record_set(
        self, kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]
    ) -> tuple[str, list[str]]:
        """The FROM item for ``rows``, at least one, and its parameters."""

    def value(self, index: int, kind: ColumnType) -> str:
        """The expression that reads column ``index`` of a record set as ``kind``."""
        return f"v.c{index}"

    def row_source(
        self, kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]
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

    def bind(self, kind: ColumnType, value: Any) -> Any:
        """``value`` as an ordinary parameter."""
        return value

    def one_of(self, column: str, ids: Sequence[UUID]) -> tuple[str, list[Any]]:
        """That a column has one of these ids, at least one; and the parameters."""
        return f"{column} IN {in_list(ids)}", [self.bind(ColumnType.UUID, one) for one in ids]

    def writer(self, kind: ColumnType) -> Writer | None:
        """What makes the parameter for a column of a new row from a value that is not null; ``None``
        where that is the value itself.
        """
        return None

    def columns_without(self, names: Collection[str]) -> str:
        """``job_columns``, with something empty in place of those that are not read."""
        if not names:
            return self.job_columns
        return ", ".join(
            _literal(LARGE[name]) if name in names else self._read(name) for name in JOB_COLUMNS
        )

    def _read(self, column: str) -> str:
        """How a column of ``j`` is read."""
        return f"j.{self.quoted[column]}"

    def text_size(self, columns: Iterable[str]) -> str:
        """How much text JSON columns of ``j`` hold together: bytes, or characters."""
        return " + ".join(f"COALESCE({self.size_of(self.quoted[name])}, 0)" for name in columns)

    def size_of(self, quoted: str) -> str:
        """The same of one column."""
        return f"length(j.{quoted})"

    def if_small(self, name: str, most: int) -> str:
        """A JSON column of ``j`` where it has no more text than that, otherwise NULL."""
        quoted = self.quoted[name]
        return f"CASE WHEN {self.size_of(quoted)} <= {most} THEN j.{quoted} END"

    def placeholder(self, kind: ColumnType) -> str:
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

    later = ""
    """The time that is ``{ms}`` after ``{at}``; not before it where times are coarser."""

    greatest = "MAX"
    """The function that gives the greater of two values, neither of them NULL."""

    null_safe_equals = "IS"
    """The operator that finds two values equal, or both NULL."""

    insert_ignoring = ("INSERT INTO", " ON CONFLICT DO NOTHING")
    """How to insert what may be there already: the head and the tail of the statement."""

    def repeated(self, *, new_rows: bool = False, anywhere: bool = False) -> CursorWrapper:
        """A cursor for a statement that is executed again and again in a few forms.

        ``new_rows`` if it inserts, ``anywhere`` if it is to be prepared in sessions of web servers and
        handlers too: its plan depends neither on values nor on settings of the session.
        """
        return self.connection.cursor()

    def fast_loaders(self, cur: CursorWrapper) -> None:  # noqa: B027 - most drivers need nothing
        """Make a cursor that reads many jobs as fast as its driver can be."""

    def quick_row(self, driver: Any, statement: str, *, again: bool) -> Sequence[Any] | None:
        """One row of times and numbers, past what a driver does for each statement, if it lets us.

        ``None`` where it does not, or the statement failed: then it is for a cursor. ``again`` if the
        same statement is to come again and again.
        """
        return None

    def jobs(self, rows: Iterable[Sequence[Any]]) -> list[JobRow]:
        """Rows selected as ``job_columns``."""
        return list(map(JobRow._make, _decoded(rows, self._of_jobs)))

    def decoded_rows(
        self, kinds: Sequence[ColumnType], rows: Iterable[Sequence[Any]]
    ) -> Iterable[Sequence[Any]]:
        """Rows of columns of these kinds as they came from a cursor, with the values they stand for."""
        return _decoded(rows, self._decoders(kinds))

    def _decoders(self, kinds: Sequence[ColumnType]) -> list[_Decoder]:
        """Those that are needed, with the place of their column and whether its values are repeated."""
        return [
            (index, decode, kind is ColumnType.TIME)
            for index, kind in enumerate(kinds)
            if (decode := self._decoder(kind)) is not None
        ]

    def decode(self, kind: ColumnType, value: Any) -> Any:
        """One value as it came from a cursor."""
        decoder = self._decoder(kind)
        return value if value is None or decoder is None else decoder(value)

    def _decoder(self, kind: ColumnType) -> Callable[[Any], Any] | None:
        return None
