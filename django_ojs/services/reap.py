"""Enforce the five timeouts, whatever the workers do (OJS timeouts 7.1).

Any number of reapers at once is safe: rows that another one holds are skipped, and every decision is
made under the row's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.domain.job import JobRecord
from django_ojs.domain.timeouts import OUTAGE_GRACE, Clock, after, fired
from django_ojs.services.commit import commit
from django_ojs.store import locking, selectors
from django_ojs.store.contention import atomically
from django_ojs.store.selectors import Watched

BATCH = 200


@dataclass(slots=True)
class Reaped:
    """What one pass did: jobs by timeout kind, the worst lateness, and when to look again."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness_ms: int = 0
    next_due: datetime | None = None
    jobs: list[UUID] = field(default_factory=list)


def reap(
    *,
    limit: int | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
    using: str | None = None,
) -> Reaped:
    """End everything that is overdue, up to ``limit`` jobs; with ``dry_run`` only say what is.

    Works in transactions of at most 200 jobs. ``next_due`` is the earliest moment at which
    something that exists now can fall due.
    """
    using = using or conf.current().database
    reaped = Reaped()
    _reap_deadlines(reaped, limit, now, dry_run, using)
    _reap_active(reaped, limit, now, dry_run, using)
    return reaped


def _reap_deadlines(
    reaped: Reaped, limit: int | None, now: datetime | None, dry_run: bool, using: str
) -> None:
    """What ``deadline_at`` says: execution, total and enqueue TTL."""
    first = selectors.next_deadline(using=using)
    moment = now or clock.now(using)
    while first is not None and first <= moment:
        room = _room(reaped, limit)
        if not room:
            break
        read = partial(locking.past_deadline, moment, room, using=using)
        done = atomically(using, partial(_decide, read, reaped, moment, dry_run, using))
        if dry_run or not done:
            break
        first = selectors.next_deadline(using=using)
        moment = now or clock.now(using)
    if first is not None and first > moment:
        reaped.next_due = first


def _reap_active(
    reaped: Reaped, limit: int | None, now: datetime | None, dry_run: bool, using: str
) -> None:
    """What beats move: stalled attempts and visibility leases."""
    moment = now or clock.now(using)
    watched = selectors.running(using=using)
    due_at = {row.id: due for row in watched if (due := beat_due(row)) is not None}
    overdue = sorted((due, job_id) for job_id, due in due_at.items() if due <= moment)
    for start in range(0, len(overdue), BATCH):
        room = _room(reaped, limit)
        if not room:
            break
        ids = [job_id for _, job_id in overdue[start : start + room]]
        read = partial(_locked_list, ids, using)
        atomically(using, partial(_decide, read, reaped, moment, dry_run, using))
    later = [due for due in due_at.values() if due > moment]
    reaped.next_due = min([*later, *([reaped.next_due] if reaped.next_due else [])], default=None)


def _locked_list(ids: Sequence[UUID], using: str) -> list[JobRecord]:
    return list(locking.jobs(ids, skip_locked=True, using=using).values())


def _decide(
    read: Callable[[], list[JobRecord]], reaped: Reaped, now: datetime, dry_run: bool, using: str
) -> int:
    moves = []
    for job in read():
        due = fired(job, now)
        move = lifecycle.overdue(job, now=now, jitter=clock.jitter())
        if due is None or move is None:
            continue
        reaped.counts[str(due.clock)] += 1
        grace = job.grace_period_ms if due.clock is Clock.EXECUTION else 0
        reaped.lateness_ms = max(reaped.lateness_ms, due.elapsed_ms - due.limit_ms - grace)
        reaped.jobs.append(job.id)
        moves.append(move)
    if not dry_run:
        commit(moves, now=now, using=using)
    return len(moves)


def _room(reaped: Reaped, limit: int | None) -> int:
    return BATCH if limit is None else max(0, min(BATCH, limit - sum(reaped.counts.values())))


def beat_due(row: Watched) -> datetime | None:
    """When the beats of a running job are overdue, ``None`` if none were promised."""
    moments = []
    if row.lease_expires_at is not None:
        moments.append(row.lease_expires_at)
    if row.heartbeat_armed and (row.heartbeat_explicit or row.lease_expires_at is None):
        moments.append(after(row.heartbeat_at, row.heartbeat_timeout_ms))
    return min(moments, default=None)


def recover(*, now: datetime, using: str) -> int:
    """After an outage: give the living time to be heard (decision T9). Returns the jobs helped."""

    def work() -> int:
        moves = [
            lifecycle.recover(job, execution_until=now + OUTAGE_GRACE, now=now)
            for job in locking.active(using=using)
        ]
        commit(moves, now=now, using=using)
        return len(moves)

    return atomically(using, work)


def longest_heartbeat_timeout(*, using: str) -> timedelta:
    """The longest heartbeat timeout among running jobs; zero when nothing runs."""
    limits = (row.heartbeat_timeout_ms for row in selectors.running(using=using))
    return timedelta(milliseconds=max(limits, default=0))
