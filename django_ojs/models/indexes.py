"""Indexes over the rows that are hot, on databases that can; over all rows on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


class HotIndex(models.Index):
    """A partial index where the database has them, otherwise a full one (MariaDB, MySQL).

    The columns must lead with what ``only`` is about, so that the full one is as selective. Unlike
    ``Index.condition`` it is no finding of Django's checks on databases without partial indexes.
    """

    def __init__(self, *, fields: Sequence[str], name: str, only: models.Q) -> None:
        super().__init__(fields=fields, name=name)
        self.only = only

    def _get_condition_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor
    ) -> str | None:
        if not schema_editor.connection.features.supports_partial_indexes:
            return None
        partial = models.Index(fields=self.fields, name=self.name, condition=self.only)
        sql: str | None = partial._get_condition_sql(model, schema_editor)  # type: ignore[attr-defined]
        return sql

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        """What a migration needs to make the index again."""
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "only": self.only}
