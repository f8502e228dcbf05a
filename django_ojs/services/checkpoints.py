"""Checkpoints over HTTP: of running attempts under their lease, of waiting jobs under their lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import F, Value

from django_ojs import clock
from django_ojs.domain.durations import format_instant
from django_ojs.domain.job import JobRow
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.services import leases
from django_ojs.services.fencing import authorize_report, refused
from django_ojs.store import locking
from django_ojs.store.contention import in_transaction


@in_transaction
def save(
    job_id: UUID,
    state: str,
    said: Mapping[str, Any],
    lease_claim: LeaseClaim,
    *,
    using: str = "",
) -> JobRow:
    """Store where the next attempt resumes; ``state`` is JSON text (OJS durable execution 4).

    For an active job it counts as a heartbeat and is authorized like a report. For a waiting job no
    lease is needed; one that is sent has been lost. Raises :class:`Conflict` then, and for a finished
    job, but the lease of an attempt that the total timeout ended may save one until its grace period is
    over.
    """
    job = locking.job(job_id, using=using)
    now = clock.now(using)
    known = job.json("checkpoint_info") or {}
    info = {
        **said,
        "created_at": known.get("created_at") or format_instant(now),
        "updated_at": format_instant(now),
    }
    if job.state == State.ACTIVE:
        lease = authorize_report(job, lease_claim, now=now, using=using)
        if not leases.checkpoint(lease, state, info=info, using=using):
            raise refused(job, "lease_lost")
    elif lease_claim.lease_id is not None:
        lease = Lease(job.id, lease_claim.lease_id)
        if not leases.checkpoint(lease, state, info=info, using=using):
            raise refused(job, "not_active")
    elif job.state in TERMINAL:
        raise refused(job, "not_active")
    else:
        value = json.loads(state)
        Job.objects.using(using).filter(pk=job_id).update(
            checkpoint=Value(value, Job._meta.get_field("checkpoint")),
            checkpoint_info=info,
            checkpoint_seq=F("checkpoint_seq") + 1,
        )
    return locking.job(job_id, using=using)


@in_transaction
def clear(job_id: UUID, lease_claim: LeaseClaim, *, using: str = "") -> None:
    """Delete the checkpoint, and restart its sequence. An active job needs its lease; for a waiting job
    any lease that is sent has been lost (:class:`Conflict`).

    Does nothing without a checkpoint.
    """
    job = locking.job(job_id, using=using)
    if job.checkpoint is None:
        return
    if job.state == State.ACTIVE:
        authorize_report(job, lease_claim, now=clock.now(using), using=using)
    elif job.state not in TERMINAL and lease_claim.lease_id is not None:
        raise refused(job, "not_active")
    Job.objects.using(using).filter(pk=job_id).update(
        checkpoint=None, checkpoint_info=None, checkpoint_seq=0
    )
