"""Whether a report is authorized: the lease that it proves, or the reason for its rejection (decision
L1).
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django_ojs import conf
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import Conflict, LeaseLost
from django_ojs.domain.job import JobRow
from django_ojs.domain.lease_claim import EarlierAttempt, LeaseClaim, living, rejection_reason, senders
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import State
from django_ojs.models import Attempt
from django_ojs.services import http_workers

logger = logging.getLogger("django_ojs.http")
_LOOK_EVERY = timedelta(minutes=1)
_looked: dict[str, datetime] = {}
_warned: set[str] = set()
_MESSAGES = {
    "lease_lost": "the lease is not the current one of the job",
    "lease_required": (
        "an earlier attempt of the job may still be running: send the lease_id that the fetch gave"
    ),
    "not_active": "the job is not active",
}


def authorize_report(job: JobRow, lease_claim: LeaseClaim, *, now: datetime, using: str) -> Lease:
    """The current lease of ``job``, if ``lease_claim`` proves it.

    Raises :class:`Conflict` when the job is not active, :class:`LeaseLost` otherwise; both with
    ``reason``, ``current_state`` and ``expected_state`` in their details. Reads the earlier attempts
    only for claims without a lease id, and workers only if an earlier attempt may be alive.
    """
    if job.state != State.ACTIVE:
        raise refused(job, "not_active")
    policy = conf.current().unfenced_ack
    others: list[EarlierAttempt] = []
    if lease_claim.lease_id is None and policy == "auto" and job.lease_seq > 1:
        others = _earlier(job, lease_claim, now, using)
    if lease_claim == LeaseClaim(principal=lease_claim.principal):
        _warn_of_sharing(lease_claim.principal, now, using)
    reason = rejection_reason(job, lease_claim, others, policy=policy)
    if reason is not None:
        raise refused(job, reason)
    assert job.lease_id is not None
    return Lease(job.id, job.lease_id)


def refused(job: JobRow, reason: str) -> Conflict:
    """The error for a rejected report."""
    kind = Conflict if reason == "not_active" else LeaseLost
    return kind(
        f"job {job.id}: {_MESSAGES[reason]}",
        reason=reason,
        job_id=str(job.id),
        current_state=job.state,
        expected_state=State.ACTIVE.value,
    )


def record_late_report(
    job: JobRow, lease_claim: LeaseClaim, report: dict[str, Any], *, now: datetime, using: str
) -> None:
    """Note a late report on its attempt, if exactly one earlier attempt can have sent it. To be called
    for a job that is not active, under its lock.
    """
    late = _senders(job, lease_claim, job.lease_seq + 1, now, using)
    if len(late) == 1:
        Attempt.objects.using(using).filter(
            job_id=job.id, lease_seq=late[0].lease_seq, late_report__isnull=True
        ).update(late_report={**report, "at": format_instant(now)})


def _earlier(job: JobRow, lease_claim: LeaseClaim, now: datetime, using: str) -> list[EarlierAttempt]:
    found = _senders(job, lease_claim, job.lease_seq, now, using)
    names = {earlier.worker_id for earlier in found if earlier.worker_id not in (None, job.worker_id)}
    heard = http_workers.last_heard(names, lease_claim.principal, using=using) if names else {}
    return living(found, holder=job.worker_id, heard=heard, now=now)


def _senders(
    job: JobRow, lease_claim: LeaseClaim, before: int, now: datetime, using: str
) -> list[EarlierAttempt]:
    rows = Attempt.objects.using(using).filter(job_id=job.id).order_by("-lease_seq")
    known = rows.values_list(*EarlierAttempt._fields[:-1], "late_report")
    attempts = [
        EarlierAttempt._make([*row, None if late is None else datetime.fromisoformat(late["at"])])
        for *row, late in known[:100]
    ]
    return senders(attempts, lease_claim, before=before, now=now)


def _warn_of_sharing(principal: str | None, now: datetime, using: str) -> None:
    """Warn once per credential and process: reports without a lease do not identify the worker."""
    if principal is None or principal in _warned:
        return
    last = _looked.get(principal)
    if last is not None and timedelta(0) <= now - last < _LOOK_EVERY:
        return
    _looked[principal] = now
    if http_workers.live_together(principal, now=now, using=using):
        _warned.add(principal)
        logger.warning(
            "several workers fetch with the credential %s, and reports without a lease come with it: "
            "a late report of one may end an attempt of another. Give each worker a token of its own",
            principal,
        )
