"""What attempts have logged (``OJS["LOGS"]``): stored beside their outcomes, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections

from django_ojs import clock
from django_ojs.domain.leases import Lease
from django_ojs.models import AttemptLog, Job
from django_ojs.store.contention import atomically

_COLUMNS = ("written_at", "text", "lines", "dropped")


class LoggedAttempt(NamedTuple):
    """The last lines of one attempt, how many those are, and how many came before them."""

    lease: Lease
    text: str
    lines: int
    dropped: int


def write(logs: Sequence[LoggedAttempt], *, using: str) -> None:
    """Store what attempts have logged so far, in place of what was stored of them before.

    Nothing is stored for a job that has been deleted. Waits for no row of a job.
    """
    atomically(using, partial(_write, logs, using))


def _write(logs: Sequence[LoggedAttempt], using: str) -> None:
    jobs = Job.objects.using(using).filter(pk__in={log.lease.job_id for log in logs})
    there = set(jobs.values_list("pk", flat=True))
    now = clock.now(using)
    rows = [
        AttemptLog(
            job_id=log.lease.job_id,
            lease_id=log.lease.lease_id,
            written_at=now,
            text=log.text,
            lines=log.lines,
            dropped=log.dropped,
        )
        for log in logs
        if log.lease.job_id in there
    ]
    target: dict[str, Any] = {}
    if connections[using].features.supports_update_conflicts_with_target:
        target["unique_fields"] = ["lease_id"]
    AttemptLog.objects.using(using).bulk_create(
        rows, update_conflicts=True, update_fields=_COLUMNS, **target
    )


def of_job(job_id: UUID, *, most: int, using: str) -> dict[UUID, AttemptLog]:
    """The logs of the last attempts of a job that have one, by their lease."""
    rows = AttemptLog.objects.using(using).filter(job_id=job_id).order_by("-id")[:most]
    return {row.lease_id: row for row in rows}


def forget(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete logs from before a time; the key grows with time, so only the oldest are read."""
    rows = AttemptLog.objects.using(using)
    oldest = rows.order_by("pk").values_list("pk", "written_at")[:room]
    old = [key for key, written_at in oldest if written_at < before]
    if old and not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)
