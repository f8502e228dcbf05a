"""The places of events in the stream."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django_ojs.models import Event
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialect import cursor, dialect

_TABLE = Event._meta.db_table


def unplaced(limit: int, *, using: str) -> list[UUID]:
    """The ids of committed events without a place, the oldest first: one range of an index."""
    rows = (
        Event.objects.using(using)
        .filter(seq__isnull=True)
        .order_by("id")
        .values_list("id", flat=True)[:limit]
    )
    return list(rows)


def place(ids: Sequence[UUID], first: int, *, using: str) -> None:
    """Give the events the places ``first``, ``first + 1`` and so on; one statement.

    To be called under the lock of the stream.
    """
    sql = dialect(using)
    given = sql.record_set(
        [ColumnType.UUID, ColumnType.INT],
        [(event_id, first + index) for index, event_id in enumerate(ids)],
    )
    # By the key alone: by ``seq IS NULL`` MariaDB would wait for the rows of open transactions.
    sets = [f"seq = {sql.value(1, ColumnType.INT)}"]
    statement, bound = sql.update(_TABLE, (sets, ()), given, "j.id = v.c0", "TRUE")
    with cursor(using) as cur:
        cur.execute(statement, bound)
