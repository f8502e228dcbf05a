"""What SQLite, MariaDB and MySQL have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any
from uuid import UUID

from django_ojs.domain.ids import stored_uuid
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.dialects.base import Dialect, Writer

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Textual(Dialect):
    """Databases whose times and JSON are text without a zone."""

    def bind(self, kind: ColumnType, value: Any) -> Any:
        """Naive UTC text for times, the column's own form for UUIDs."""
        if value is None:
            return None
        if kind is ColumnType.TIME:
            return str(value.astimezone(UTC).replace(tzinfo=None))
        return self._uuid(value) if kind is ColumnType.UUID else value

    def writer(self, kind: ColumnType) -> Writer | None:
        """As :meth:`bind`."""
        return partial(self.bind, kind) if kind in (ColumnType.TIME, ColumnType.UUID) else None

    _as_text = "{} || ''"

    def _read(self, column: str) -> str:
        """Times as text: drivers and Django make naive times of them, which then have no zone."""
        read = super()._read(column)
        return self._as_text.format(read) if JOB[column] is ColumnType.TIME else read

    def _uuid(self, value: UUID) -> str:
        return value.hex

    def _rows(self, kinds: Sequence[ColumnType], rows: Iterable[Sequence[Any]]) -> str:
        columns = list(zip(*rows, strict=True))
        for index, kind in enumerate(kinds):
            if kind is ColumnType.TIME:
                # Many rows have the same.
                columns[index] = tuple(map(cache(partial(self.bind, kind)), columns[index]))
            elif kind is ColumnType.UUID:
                # MariaDB's own type is read without hyphens too.
                columns[index] = tuple(
                    [None if value is None else f"{value.int:032x}" for value in columns[index]]
                )
        return _dump(list(zip(*columns, strict=True)))

    def _decoder(self, kind: ColumnType) -> Callable[[Any], Any] | None:
        return _TEXTUAL_DECODERS.get(kind)


def _aware(value: datetime | str) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(f"{value}+00:00")
    return value.replace(tzinfo=UTC)


_TEXTUAL_DECODERS: Mapping[ColumnType, Callable[[Any], Any]] = {
    ColumnType.TIME: _aware,
    ColumnType.UUID: stored_uuid,
    ColumnType.BOOL: bool,
}
