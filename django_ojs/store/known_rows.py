"""Rows that are read with every request over HTTP, so the statements are written out.

Composing them for each request would cost more than running them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from django.db import models

from django_ojs.models import ApiToken, Worker
from django_ojs.store.columns import ColumnType, types
from django_ojs.store.dialect import dialect, repeated

M = TypeVar("M", bound=models.Model)


class KnownRow(Generic[M]):
    """Reads one row of a model by the unique key ``by``; columns that are not named are deferred."""

    def __init__(self, model: type[M], names: Sequence[str], *, by: Sequence[str]) -> None:
        self._model, self._names = model, tuple(names)
        self._kinds = tuple(types(model, names).values())
        keys = " AND ".join(f"{name} = %s" for name in by)
        self._statement = f"SELECT {', '.join(names)} FROM {model._meta.db_table} WHERE {keys}"

    def read(self, *keys: str, using: str) -> M | None:
        """The row as it is now."""
        with repeated(using, anywhere=True) as cur:
            cur.execute(self._statement, keys)
            row = cur.fetchone()
        if row is None:
            return None
        decode: Callable[[ColumnType, Any], Any] = dialect(using).decode
        values = [
            json.loads(value) if kind is ColumnType.JSON else decode(kind, value)
            for kind, value in zip(self._kinds, row, strict=True)
        ]
        return self._model.from_db(using, self._names, values)


TOKEN = KnownRow(
    ApiToken,
    (
        *("id", "name", "prefix", "secret_hash", "scopes", "queues"),
        *("expires_at", "revoked_at", "last_used_at"),
    ),
    by=["prefix"],
)
"""An API token; when and by whom it was made is not read."""

WORKER = KnownRow(
    Worker, [field.attname for field in Worker._meta.concrete_fields], by=["principal", "name"]
)
"""A worker."""
