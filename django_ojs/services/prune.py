"""Delete rows past their retention, in short transactions that read one index each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.db.models import Q

from django_ojs import clock, conf
from django_ojs.domain.ids import uuid7
from django_ojs.domain.states import State
from django_ojs.models import Attempt, AuditEntry, Event, Job, MaintenanceRun, Worker
from django_ojs.models.maintenance import PRUNE
from django_ojs.services import queues, rollup
from django_ojs.store import leases, locking
from django_ojs.store.contention import atomically

BATCH = 200

_JOBS: Sequence[tuple[str, State, bool | None]] = (
    ("completed", State.COMPLETED, None),
    ("cancelled", State.CANCELLED, None),
    ("discarded", State.DISCARDED, False),
    ("dead_letter", State.DISCARDED, True),
)
_Delete = Callable[[datetime, int, bool, str], int]
"""Deletes up to so many rows from before a time, or with ``dry_run`` counts them."""


@dataclass(slots=True)
class Pruned:
    """How many rows of each kind were deleted; with ``more``, the time was up before the work."""

    counts: Counter[str] = field(default_factory=Counter)
    more: bool = False


def prune(
    *,
    limit: int | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
    using: str | None = None,
) -> Mapping[str, int]:
    """Delete finished jobs with their attempts, events, gone workers and unused queues past
    ``OJS["RETENTION"]``.

    Returns how many of each; ``limit`` bounds each kind. Each batch of at most 200 rows is a
    transaction of its own.
    """
    return _prune(limit, None, now, dry_run, using or conf.current().database).counts


def prune_for(seconds: float, *, now: datetime | None = None, using: str) -> Pruned:
    """:func:`prune` until ``seconds`` have passed; the transaction in hand is finished."""
    return _prune(None, clock.boottime() + seconds, now, False, using)


def _prune(
    limit: int | None, until: float | None, now: datetime | None, dry_run: bool, using: str
) -> Pruned:
    now = now or clock.now(using)
    done = Pruned()
    if not dry_run:
        leases.forget_beats(using=using)
    for name, before, delete in _due(now):
        done.counts[name] += 0
        while (room := _room(done.counts[name], limit, dry_run)) > 0:
            if until is not None and clock.boottime() >= until:
                done.more = True
                return done
            batch = delete(before, room, dry_run, using)
            done.counts[name] += batch
            if batch < room or dry_run:
                break
    return done


def _room(done: int, limit: int | None, dry_run: bool) -> int:
    most = 10_000 if dry_run else BATCH
    return most if limit is None else min(most, limit - done)


def _due(now: datetime) -> Iterator[tuple[str, datetime, _Delete]]:
    """Each kind with a retention: its name, the cut-off, and the function that deletes it."""
    kinds: dict[str, _Delete] = {name: partial(_jobs, state, dead) for name, state, dead in _JOBS}
    kinds |= {"events": _events, "audit": _audit, "stats": rollup.forget, "workers": _workers}
    kinds["queues"] = partial(_queues, now)
    keep = conf.current().retention_ms
    for name, delete in kinds.items():
        if (age := keep[name]) is not None:
            yield name, now - timedelta(milliseconds=age), delete


def purge(ids: Sequence[UUID], *, using: str) -> None:
    """Delete finished jobs and their attempts; to be called under their locks."""
    Attempt.objects.using(using).filter(job_id__in=ids)._raw_delete(using)
    Job.objects.using(using).filter(pk__in=ids)._raw_delete(using)


def _jobs(
    state: State, dead: bool | None, before: datetime, room: int, dry_run: bool, using: str
) -> int:
    def work() -> int:
        ids = locking.finished_before(state, before, room, dead_letter=dead, using=using)
        if not dry_run:
            purge(ids, using=using)
        return len(ids)

    return atomically(using, work)


def _events(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete events; their ids are UUIDv7, so the primary key is in the order of their age."""
    oldest_kept = uuid7(int(before.timestamp() * 1000), 0)
    rows = Event.objects.using(using)
    old: list[UUID] = list(
        rows.filter(pk__lt=oldest_kept).order_by("pk").values_list("pk", flat=True)[:room]
    )
    if old and not dry_run:
        _mark(before, using)
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def _mark(before: datetime, using: str) -> None:
    """Record since when the events are complete, before any is deleted."""
    runs, now = MaintenanceRun.objects.using(using), clock.now(using)
    stale = runs.filter(Q(watermark_at=None) | Q(watermark_at__lt=before), name=PRUNE)
    if not stale.update(watermark_at=before, last_run_at=now) and not runs.filter(name=PRUNE).exists():
        run = MaintenanceRun(name=PRUNE, last_run_at=now, watermark_at=before)
        runs.bulk_create([run], ignore_conflicts=True)


def _audit(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete audit entries; the key grows with time, so only the oldest are read."""
    rows = AuditEntry.objects.using(using)
    oldest = rows.order_by("pk").values_list("pk", "created_at")[:room]
    old = [key for key, created_at in oldest if created_at < before]
    if old and not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def _workers(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete workers by primary key; there are few."""
    rows = Worker.objects.using(using).filter(heartbeat_at__lt=before)
    old = list(rows.values_list("pk", flat=True)[:room])
    if old and not dry_run:
        # Filtered again by age: a worker may have come back.
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def _queues(now: datetime, before: datetime, room: int, dry_run: bool, using: str) -> int:
    return queues.forget(before, min(room, BATCH), now=now, dry_run=dry_run, using=using)
