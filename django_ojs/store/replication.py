"""How far a replica is behind its primary, as servers tell ordinary accounts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Max

from django_ojs.models import MaintenanceRun

UNKNOWN = float("inf")
"""The lag of a replica on which nothing of the primary has arrived."""


def lag(primary: str, replica: str) -> float:
    """By how many seconds ``replica`` is behind ``primary``.

    On a standby of PostgreSQL the age, by the primary's clock, of the last transaction that it has
    replayed; 0 if it has replayed everything. Elsewhere the distance between the newest runs of
    maintenance that both know, so no finer than the reaper's scans. Raises ``DatabaseError`` if either
    does not answer.
    """
    if connections[primary].vendor == connections[replica].vendor == "postgresql":
        found = _standby(primary, replica)
        if found is not None:
            return found
    newest, known = _last_run(primary), _last_run(replica)
    if newest is None:
        return 0.0
    return UNKNOWN if known is None else max(0.0, (newest - known).total_seconds())


def _standby(primary: str, replica: str) -> float | None:
    """``None`` unless the one is a primary and the other a standby."""
    standby, wrote, now = _row(
        primary,
        "SELECT pg_is_in_recovery(),"
        " CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn()::text END, clock_timestamp()",
    )
    if standby:
        return None
    standby, level, seconds = _row(
        replica,
        "SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn() >= %s::pg_lsn,"
        " extract(epoch FROM %s::timestamptz - pg_last_xact_replay_timestamp())",
        [wrote, now],
    )
    if not standby:
        return None
    if level:
        return 0.0
    return UNKNOWN if seconds is None else max(0.0, float(seconds))


def _row(using: str, statement: str, parameters: list[Any] | None = None) -> tuple[Any, ...]:
    with connections[using].cursor() as cur:
        cur.execute(statement, parameters)
        return tuple(cur.fetchone())


def _last_run(using: str) -> datetime | None:
    found: datetime | None = MaintenanceRun.objects.using(using).aggregate(last=Max("last_run_at"))[
        "last"
    ]
    return found
