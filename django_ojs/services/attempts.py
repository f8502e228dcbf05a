"""The state of attempts: which leases hold, why others were lost, how long handlers may clean up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease, RenewedLease
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import Stop, TimeoutKind, out_of_time, stop_of, total_deadline
from django_ojs.models import Attempt
from django_ojs.services import overdue
from django_ojs.services.commit import commit
from django_ojs.store import leases, locking
from django_ojs.store.contention import in_transaction

_REASONS = {
    "timeout": "timeout",
    "total_timeout": "total_timeout",
    "stalled": "stalled",
    "visibility_timeout": "stalled",
    "cancelled": "cancelled",
}
"""The reason given to a handler that must stop, by the outcome of its attempt; ``lost`` for others."""


class LeaseCheck(NamedTuple):
    """The leases that hold; why the others do not, by lease id; the server's time."""

    kept: list[RenewedLease]
    reasons: dict[UUID, str]
    now: datetime


def check(held: Sequence[Lease], *, using: str | None = None) -> LeaseCheck:
    """Read which of these leases hold, after ending the attempts whose total timeout has passed.

    Renews nothing; jobs whose row, or whose workflow, another transaction holds are left to the reaper.
    One statement while every lease holds and none is over.
    """
    using = using or conf.current().database
    kept = leases.find(held, using=using)
    now = clock.now(using)
    over = [lease.job_id for lease in kept if lease.deadline_at <= now]
    ended = _end(over, now, using=using) if over else 0
    if ended:
        kept = leases.find(held, using=using)
    found = {lease.lease_id for lease in kept}
    gone = [lease for lease in held if lease.lease_id not in found]
    return LeaseCheck(kept, reasons(gone, using=using), now)


@in_transaction
def _end(ids: Sequence[UUID], now: datetime, *, using: str = "") -> int:
    """End the jobs whose total timeout has passed."""
    locked = locking.jobs(ids, skip_locked=True, using=using).values()
    over = [job for job in locked if out_of_time(job, now) is TimeoutKind.TOTAL]
    ended, _ = overdue.ends(over, now=now, using=using)
    commit(list(ended.values()), now=now, using=using)
    return len(ended)


def reasons(gone: Sequence[Lease], *, using: str) -> dict[UUID, str]:
    """Why leases were lost, by lease id: the reason of :class:`SoftStop`."""
    if not gone:
        return {}
    wanted = {lease.lease_id for lease in gone}
    rows = Attempt.objects.using(using).filter(
        job_id__in={lease.job_id for lease in gone}, lease_id__in=wanted
    )
    outcomes = dict(rows.values_list("lease_id", "outcome"))
    return {lease_id: _REASONS.get(outcomes.get(lease_id, ""), "lost") for lease_id in wanted}


def stop_in_grace(job: JobRow, attempt: Attempt | None, now: datetime) -> Stop | None:
    """The grace period after the total timeout, if the attempt is in it: its outcome is settled, or
    about to be, and its handler may still clean up.

    ``attempt`` is the row of the attempt, ``None`` while it is the open one.
    """
    started_at, total_at = job.started_at, total_deadline(job)
    if attempt is not None:
        claimed_since = attempt.lease_seq != job.lease_seq or job.state == State.ACTIVE
        if attempt.outcome != "total_timeout" or claimed_since:
            return None
        started_at, total_at = attempt.started_at, attempt.deadline_at
    elif out_of_time(job, now) is not TimeoutKind.TOTAL:
        return None
    assert started_at is not None
    stop = stop_of(job, started_at=started_at, total_at=total_at)
    return stop if now < stop.until else None


def told_to_stop(
    worker_id: str,
    principal: str,
    named: Iterable[tuple[JobRow, UUID | None]],
    *,
    now: datetime,
    using: str,
) -> dict[UUID, tuple[str, Stop | None]]:
    """Why a worker must stop jobs whose lease it has lost, and the grace period if there is one.

    The worker is identified by name and credential. ``named`` are the jobs and the leases that it sent,
    if any; an unknown reason is ``lost``.
    """
    asked = list(named)
    ended = _last_of(worker_id, principal, [job.id for job, _ in asked], using) if asked else {}
    told: dict[UUID, tuple[str, Stop | None]] = {}
    for job, lease_id in asked:
        row = ended.get(job.id)
        mine = (job.worker_id, job.lease_principal) == (worker_id, principal)
        if job.state == State.ACTIVE and mine:
            row, current = None, job.lease_id
        else:
            current = None if row is None else row.lease_id
        if current is None or lease_id not in (None, current):
            told[job.id] = ("lost", None)
            continue
        stop = stop_in_grace(job, row, now)
        reason = "lost" if row is None else _REASONS.get(row.outcome, "lost")
        told[job.id] = (reason if stop is None else stop.reason, stop)
    return told


def _last_of(worker_id: str, principal: str, ids: Iterable[UUID], using: str) -> Mapping[UUID, Attempt]:
    """The last ended attempt of each job, where it was this worker's."""
    rows = Attempt.objects.using(using).filter(job_id__in=list(ids)).order_by("lease_seq")
    last = {row.job_id: row for row in rows.defer("error", "late_report")}
    whose = (worker_id, principal)
    return {job_id: row for job_id, row in last.items() if (row.worker_id, row.principal) == whose}
