"""What the holder of a lease may write: heartbeats, progress and checkpoints (OJS timeouts 9)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError, Error, connections
from django.db.models import F, Value

from django_ojs import clock, conf
from django_ojs.domain.durations import format_instant
from django_ojs.domain.events import Kind, job_event
from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.leases import Lease, RenewedLease
from django_ojs.domain.timeouts import after
from django_ojs.models import Attempt, Job
from django_ojs.services import attempts
from django_ojs.services.commit import publish
from django_ojs.services.judging import in_time
from django_ojs.signals import by_kind
from django_ojs.store import leases, locking, selectors
from django_ojs.store.contention import (
    RowHeld,
    alone,
    atomically,
    impatient,
    in_transaction,
    is_held,
)

logger = logging.getLogger("django_ojs")

MAX_CHECKPOINT_BYTES = 1 << 20


def beat(
    held: Sequence[Lease], *, visibility_ms: int | None = None, using: str | None = None
) -> list[RenewedLease]:
    """Renew leases; returns those that still hold, with the deadline each must keep.

    A lease that is not in the answer is lost, and its handler must be stopped: the job was cancelled,
    reaped or claimed by another worker, or its time is up (:func:`in_time`). Never moves an execution
    deadline (decision T2). ``visibility_ms`` is the visibility lease for jobs that do not set their own
    (decision T10). One statement, two on databases without UPDATE ... RETURNING; one more with
    visibility leases.

    It never waits for a lock: the heartbeat of a lease whose row is locked is written to a table of its
    own, which the reaper reads too (ADR 0015). So is every heartbeat while the table of jobs is locked.
    """
    using = using or conf.current().database
    now = clock.stamp(using)
    renewed = _sign_of_life(held, {}, {}, (), now, using, visibility_ms)
    # A heartbeat for an attempt whose time is up is harmless: its deadline stays.
    return in_time(renewed, now, using=using)


def announce(renewed: Sequence[RenewedLease], *, using: str | None = None) -> None:
    """Publish ``job.heartbeat`` for renewed leases, if these events are stored or have receivers.

    To be called after :func:`beat`: an error is logged, and costs no lease.
    """
    using = using or conf.current().database
    stored = Kind.HEARTBEAT in conf.current().stored_events
    if not renewed or not (stored or by_kind[Kind.HEARTBEAT].receivers):
        return
    try:
        ids = [lease.job_id for lease in renewed]
        jobs = selectors.jobs(ids, without=LARGE, using=using)
        job_events = [
            job_event(
                Kind.HEARTBEAT, job, worker_id=job.worker_id, visible_until=_visible_until(job, lease)
            )
            for lease in renewed
            if (job := jobs.get(lease.job_id)) is not None and job.lease_id == lease.lease_id
        ]
        now = clock.now(using)
        atomically(using, partial(publish, job_events, now=now, using=using))
    except Error:
        logger.warning("job.heartbeat could not be published", exc_info=True)


def _visible_until(job: JobRow, lease: RenewedLease) -> str:
    """When the attempt ends if no further heartbeat comes (OJS events 4.1)."""
    silence = lease.lease_visibility_ms or (job.heartbeat_timeout_ms if job.heartbeat_armed else None)
    if silence is None:
        return format_instant(lease.deadline_at)
    return format_instant(min(lease.deadline_at, after(lease.heartbeat_at, silence)))


def _sign_of_life(
    held: Sequence[Lease],
    shared: Mapping[str, Any],
    varying: Mapping[str, Sequence[Any]],
    counted: Sequence[str],
    now: datetime,
    using: str,
    visibility_ms: int | None = None,
) -> list[RenewedLease]:
    """Renew the leases, and write other columns under them where the rows are not locked."""

    def work() -> list[RenewedLease]:
        alive = {"heartbeat_at": now, "heartbeat_armed": True, **shared}
        renewed = leases.write(held, alive, varying, counted, using=using)
        passed_over: list[RenewedLease] = []
        if len(renewed) < len(held):
            written = {Lease(lease.job_id, lease.lease_id) for lease in renewed}
            others = [lease for lease in held if lease not in written]
            passed_over = leases.find(others, using=using)
            _put_aside([Lease(*lease[:2]) for lease in passed_over], now, visibility_ms, using)
        asked = [
            lease.visibility_timeout_ms or visibility_ms or lease.lease_visibility_ms
            for lease in renewed
        ]
        visible = [(lease, ms) for lease, ms in zip(renewed, asked, strict=True) if ms is not None]
        if visible:
            leases.write(
                [Lease(lease.job_id, lease.lease_id) for lease, _ in visible],
                {},
                {
                    "lease_expires_at": [
                        min(after(max(now, lease.heartbeat_at), ms), lease.deadline_at)
                        for lease, ms in visible
                    ],
                    "lease_visibility_ms": [ms for _, ms in visible],
                },
                using=using,
            )
        return renewed + [lease._replace(written=False) for lease in passed_over]

    try:
        with impatient(1):
            return atomically(using, work)
    except DatabaseError as error:
        if not is_held(error) or connections[using].in_atomic_block:
            raise
        # Not a row is locked but the table, or on SQLite the file.
        alone(using, partial(_put_aside, held, now, visibility_ms, using))
        return [lease._replace(written=False) for lease in leases.find(held, using=using)]


def _put_aside(held: Sequence[Lease], now: datetime, visibility_ms: int | None, using: str) -> None:
    beats = [leases.Beat(lease.lease_id, lease.job_id, now, visibility_ms) for lease in held]
    leases.put_aside(beats, using=using)


def holds(held: Sequence[Lease], *, using: str | None = None) -> list[RenewedLease]:
    """The leases that still hold, with their deadlines; renews nothing. One statement."""
    return leases.find(held, using=using or conf.current().database)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt is: ``fraction`` from 0 to 1; ``data`` is JSON text.

    With ``job``, its record, the report is announced as ``job.progress``. ``tried_at`` is when it was
    first tried, if it has waited for a locked row since: lateness is judged by it.
    """

    lease: Lease
    fraction: float
    message: str = ""
    data: str | None = None
    job: JobRow | None = None
    tried_at: datetime | None = None


def progress(
    reports: Sequence[Progress], *, wait: bool = True, using: str | None = None
) -> list[RenewedLease]:
    """Store progress; counts as a heartbeat (OJS timeouts 9.3). Returns the leases that still hold;
    nothing is stored for an attempt whose time is up.

    Locked rows are written last, one by one. Without ``wait`` they are skipped, and not ``written`` in
    the answer: send those again.
    """
    using = using or conf.current().database
    now = clock.now(using)
    tried_at = {one.lease.lease_id: one.tried_at for one in reports if one.tried_at is not None}
    found = leases.find([one.lease for one in reports], using=using)
    known = in_time(found, now, tried_at=tried_at, using=using)
    holding = {Lease(lease.job_id, lease.lease_id) for lease in known}
    reports = [report for report in reports if report.lease in holding]
    renewed = _progress(reports, now, using=using)
    if not wait:
        return renewed
    held_up = {lease.lease_id for lease in renewed if not lease.written}
    renewed = [lease for lease in renewed if lease.written]
    for report in reports:
        if report.lease.lease_id in held_up:
            renewed += _waiting(report, now, using=using)
    return renewed


@in_transaction
def _waiting(report: Progress, now: datetime, *, using: str = "") -> list[RenewedLease]:
    locking.jobs([report.lease.job_id], using=using)
    return _progress([report], now, using=using)


@in_transaction
def _progress(reports: Sequence[Progress], now: datetime, *, using: str = "") -> list[RenewedLease]:
    fractions = [min(1.0, max(0.0, report.fraction)) for report in reports]
    values: dict[str, Sequence[Any]] = {
        "progress": fractions,
        "progress_message": [report.message for report in reports],
        "progress_data": [report.data for report in reports],
    }
    held = [report.lease for report in reports]
    renewed = _sign_of_life(held, {}, values, (), now, using)
    found = {Lease(lease.job_id, lease.lease_id) for lease in renewed if lease.written}
    job_events = [
        job_event(
            Kind.PROGRESS,
            report.job,
            worker_id=report.job.worker_id,
            progress=fraction,
            progress_percent=round(fraction * 100),
            progress_message=report.message,
        )
        for report, fraction in zip(reports, fractions, strict=True)
        if report.job is not None and report.lease in found
    ]
    publish(job_events, now=now, using=using)
    return renewed


def checkpoint(
    lease: Lease, state: str, *, info: Mapping[str, Any] | None = None, using: str | None = None
) -> bool:
    """Store where the next attempt resumes (JSON text); counts as a beat. To be called in a
    transaction that has locked the job, or again after :class:`RowHeld`.

    ``checkpoint_seq`` grows by 1 with every save; ``info`` is the worker's description of it.
    Returns whether the lease still held; if not, nothing was written. In the grace period after the
    total timeout, what is saved is renewed for a manual retry (OJS timeouts 5.4, 9.3). Raises
    :class:`RowHeld` when the lease holds and another transaction has locked the row: retry later.
    """
    shared = {"checkpoint": state, "checkpoint_info": None if info is None else json.dumps(info)}
    using = using or conf.current().database
    now = clock.now(using)
    renewed = in_time(leases.find([lease], using=using), now, using=using)
    if renewed:
        renewed = _sign_of_life([lease], shared, {}, ["checkpoint_seq"], now, using)
    if any(not one.written for one in renewed):
        raise RowHeld(f"the row of job {lease.job_id} is locked by another transaction")
    return bool(renewed) or _last_checkpoint(lease, state, info, now, using=using)


@in_transaction
def _last_checkpoint(
    lease: Lease, state: str, info: Mapping[str, Any] | None, now: datetime, *, using: str = ""
) -> bool:
    job = locking.jobs([lease.job_id], using=using).get(lease.job_id)
    ended = Attempt.objects.using(using).filter(job_id=lease.job_id, lease_id=lease.lease_id).first()
    if job is None or (ended is None and job.lease_id != lease.lease_id):
        return False
    if attempts.stop_in_grace(job, ended, now) is None:
        return False
    value = Value(json.loads(state), Job._meta.get_field("checkpoint"))
    Job.objects.using(using).filter(pk=job.id).update(
        checkpoint=value, checkpoint_info=info, checkpoint_seq=F("checkpoint_seq") + 1
    )
    return True
