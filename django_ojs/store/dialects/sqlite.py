"""SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_ojs.store.columns import ColumnType
from django_ojs.store.dialects.textual import Textual


class SQLite(Textual):
    """SQLite 3.35 and later (UPDATE FROM, RETURNING)."""

    # It only knows milliseconds. Rounded up, so that no job is read before it is overdue.
    later = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', {at}, (({ms} + 1) / 1000.0) || ' seconds')"

    def returned(self, columns: str) -> str:
        """It knows neither the alias there nor a qualified name."""
        return columns.replace("j.", "")

    def by_index(self, name: str) -> str:
        """An error when it does not fit."""
        return f" INDEXED BY {name}"

    def record_set(
        self, kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]
    ) -> tuple[str, list[str]]:
        """``json_each``."""
        columns = ", ".join(
            f"json_extract(value, '$[{index}]') AS c{index}" for index in range(len(kinds))
        )
        return f"(SELECT {columns} FROM json_each(%s)) AS v", [self._rows(kinds, rows)]
