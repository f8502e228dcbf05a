"""Delete what retention no longer keeps, in batches led by an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain.ids import uuid7
from django_ojs.domain.job import JobRecord
from django_ojs.domain.states import State
from django_ojs.models import Attempt, AuditEntry, Event, Job, Worker
from django_ojs.services import rollup
from django_ojs.store import locking
from django_ojs.store.contention import atomically

BATCH = 500

_JOBS: Sequence[tuple[str, State, bool | None]] = (
    ("completed", State.COMPLETED, None),
    ("cancelled", State.CANCELLED, None),
    ("discarded", State.DISCARDED, False),
    ("dead_letter", State.DISCARDED, True),
)


def prune(
    *,
    limit: int | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
    using: str | None = None,
) -> Mapping[str, int]:
    """Delete finished jobs with their attempts, events and gone workers past ``OJS["RETENTION"]``.

    Returns how many of each; ``limit`` bounds each kind. Each batch is a transaction of its own.
    """
    using = using or conf.current().database
    now = now or clock.now(using)
    keep = conf.current().retention_ms
    counts: Counter[str] = Counter()
    for name, state, dead in _JOBS:
        if (age := keep[name]) is not None:
            before = now - timedelta(milliseconds=age)
            counts[name] = _jobs(state, dead, before, limit, dry_run, using)
    if (age := keep["events"]) is not None:
        counts["events"] = _events(now - timedelta(milliseconds=age), limit, dry_run, using)
    if (age := keep["audit"]) is not None:
        counts["audit"] = _audit(now - timedelta(milliseconds=age), limit, dry_run, using)
    if (age := keep["stats"]) is not None:
        counts["stats"] = rollup.forget(now - timedelta(milliseconds=age), limit, dry_run, using)
    if (age := keep["workers"]) is not None:
        gone = Worker.objects.using(using).filter(heartbeat_at__lt=now - timedelta(milliseconds=age))
        counts["workers"] = gone.count() if dry_run else gone.delete()[0]
    return counts


def purge(jobs: Sequence[JobRecord], *, using: str) -> None:
    """Delete finished jobs and their attempts; to be called under their locks."""
    ids = [job.id for job in jobs]
    Attempt.objects.using(using).filter(job_id__in=ids)._raw_delete(using)
    Job.objects.using(using).filter(pk__in=ids)._raw_delete(using)


def _jobs(
    state: State,
    dead: bool | None,
    before: datetime,
    limit: int | None,
    dry_run: bool,
    using: str,
) -> int:
    done = 0
    while (room := _room(done, limit)) > 0:
        batch = atomically(using, partial(_batch, state, dead, before, room, dry_run, using))
        done += batch
        if batch < room or dry_run:
            break
    return done


def _batch(
    state: State, dead: bool | None, before: datetime, room: int, dry_run: bool, using: str
) -> int:
    jobs = locking.finished_before(state, before, room, dead_letter=dead, using=using)
    if not dry_run:
        purge(jobs, using=using)
    return len(jobs)


def _events(before: datetime, limit: int | None, dry_run: bool, using: str) -> int:
    """Event ids are UUIDv7: their order is their age, so the primary key is the index."""
    oldest_kept = uuid7(int(before.timestamp() * 1000), 0)
    done = 0
    while (room := _room(done, limit)) > 0:
        old: list[UUID] = list(
            Event.objects.using(using)
            .filter(pk__lt=oldest_kept)
            .order_by("pk")
            .values_list("pk", flat=True)[:room]
        )
        done += len(old)
        if dry_run:
            break
        Event.objects.using(using).filter(pk__in=old)._raw_delete(using)
        if len(old) < room:
            break
    return done


def _audit(before: datetime, limit: int | None, dry_run: bool, using: str) -> int:
    """Its key grows with time: the oldest are looked at, and no more."""
    rows = AuditEntry.objects.using(using)
    oldest = rows.order_by("pk").values_list("pk", "created_at")[: limit or 10 * BATCH]
    old = [key for key, created_at in oldest if created_at < before]
    if not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def _room(done: int, limit: int | None) -> int:
    return BATCH if limit is None else min(BATCH, limit - done)
