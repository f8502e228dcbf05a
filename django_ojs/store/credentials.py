"""The row of an API token: read with every request, so the statement is written out.

Composing it for each request would cost more than running it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django_ojs.models import ApiToken
from django_ojs.store.columns import ColumnType, types
from django_ojs.store.dialect import cursor, dialect

_NAMES = (
    *("id", "name", "prefix", "secret_hash", "scopes", "queues"),
    *("expires_at", "revoked_at", "last_used_at"),
)
_COLUMNS = types(ApiToken, _NAMES)
_BY_PREFIX = f"SELECT {', '.join(_NAMES)} FROM {ApiToken._meta.db_table} WHERE prefix = %s"


def token(prefix: str, *, using: str) -> ApiToken | None:
    """The token with this prefix, as it is now; when and by whom it was made is not read."""
    with cursor(using) as cur:
        cur.execute(_BY_PREFIX, [prefix])
        row = cur.fetchone()
    if row is None:
        return None
    decode: Callable[[ColumnType, Any], Any] = dialect(using).decode
    values = [
        json.loads(value) if kind is ColumnType.JSON else decode(kind, value)
        for kind, value in zip(_COLUMNS.values(), row, strict=True)
    ]
    return ApiToken.from_db(using, _NAMES, values)
