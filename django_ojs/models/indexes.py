"""Indexes in a stated order; over the rows that are hot, on databases that can, and over all rows on
the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

from django_ojs.engines import EngineFamily, family_of


class OrderedIndex(models.Index):
    """An index that names the order of each of its columns in SQL.

    YugabyteDB hashes the first column of an index that names none, which then can be read neither in
    order nor by range. Everywhere else ``ASC`` is what no word means.
    """

    def __init__(self, *, fields: Sequence[str], name: str, condition: models.Q | None = None) -> None:
        super().__init__(fields=fields, name=name, condition=condition)
        self.fields_orders = [(field, order or "ASC") for field, order in self.fields_orders]


class HotIndex(OrderedIndex):
    """A partial index where the database has them, otherwise a full one (MariaDB, MySQL).

    ``only`` is the condition. ``within`` are columns that it fixes to one value: they lead the full
    index, which is as selective by them, and are left out of the partial one. There they would do
    harm: PostgreSQL takes what the condition implies for granted and does not use it to search, so
    that an index led by such a column is read from end to end. ``beside`` are columns at the end of the
    partial index only, which answers from itself by them; in a full one every job would write them.

    Unlike ``Index.condition`` it is no finding of Django's checks where there are no partial indexes.
    """

    def __init__(
        self,
        *,
        fields: Sequence[str],
        name: str,
        only: models.Q,
        within: Sequence[str] = (),
        beside: Sequence[str] = (),
    ) -> None:
        super().__init__(fields=[*within, *fields], name=name)
        self.only = only
        self.within = list(within)
        self.beside = list(beside)

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        """The statement that makes the index on this database."""
        if not schema_editor.connection.features.supports_partial_indexes:
            return super().create_sql(model, schema_editor, using, **kwargs)
        fields = [*self.fields[len(self.within) :], *self.beside]
        partial = OrderedIndex(fields=fields, name=self.name, condition=self.only)
        statement = partial.create_sql(model, schema_editor, using, **kwargs)
        if family_of(schema_editor.connection) is EngineFamily.SQLITE:
            # SQLite compares words: claims say NOT held, and Django writes "held" = 0 from 6.1 on.
            condition = str(statement.parts["condition"])
            parts: dict[str, Any] = statement.parts
            parts["condition"] = re.sub(r'("\w+") = 0\b', r"NOT \1", condition)
        return statement

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        """What a migration needs to make the index again."""
        path, args, kwargs = super().deconstruct()
        kwargs |= {"fields": self.fields[len(self.within) :], "only": self.only}
        more = {"within": self.within, "beside": self.beside}
        return path, args, kwargs | {name: columns for name, columns in more.items() if columns}
