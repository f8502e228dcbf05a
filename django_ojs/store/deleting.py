"""Deleting jobs: for good, with their attempts and what those have logged."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django_ojs.models import Attempt, AttemptLog, Job
from django_ojs.store.dialect import cursor, dialect

_TABLES = (
    (AttemptLog._meta.db_table, "job_id"),
    (Attempt._meta.db_table, "job_id"),
    (Job._meta.db_table, "id"),
)


def jobs(ids: Sequence[UUID], *, using: str) -> None:
    """Delete finished jobs, their attempts and the logs of these; to be called under their locks."""
    if not ids:
        return
    sql = dialect(using)
    with cursor(using) as cur:
        for table, column in _TABLES:
            those, bound = sql.one_of(column, ids)
            cur.execute(f"DELETE FROM {table} WHERE {those}", bound)
