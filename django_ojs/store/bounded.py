"""Reads that give up rather than hold up: a time limit on the statements of a list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction


@contextmanager
def time_limit(ms: int, *, using: str, by_index: bool = False) -> Iterator[None]:
    """Let the database cancel statements of the block that take longer; SQLite has no such limit.

    ``by_index`` keeps PostgreSQL's planner from reading a whole table: with half of the rows in a
    window it may think that as cheap as the range of an index.

    A cancelled statement raises ``OperationalError``.
    """
    connection = connections[using]
    if connection.vendor == "postgresql":
        with transaction.atomic(using=using), connection.cursor() as cur:
            cur.execute(
                "SELECT set_config('statement_timeout', %s, true),"
                " set_config('enable_seqscan', %s, true)",
                [f"{ms}ms", "off" if by_index else "on"],
            )
            yield
    elif connection.vendor == "mysql":
        name: str = "max_execution_time"
        value: float = ms
        if getattr(connection, "mysql_is_mariadb", False):
            name, value = "max_statement_time", ms / 1000
        with connection.cursor() as cur:
            cur.execute(f"SET SESSION {name} = %s", [value])
            try:
                yield
            finally:
                cur.execute(f"SET SESSION {name} = DEFAULT")
    else:
        yield
