"""What clients and operators do to jobs: cancel, activate, retry, reschedule, extend, discard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import operations
from django_ojs.domain.errors import LeaseLost, NotFound
from django_ojs.domain.job import Actor, JobRecord, Transition
from django_ojs.domain.states import TERMINAL
from django_ojs.services.commit import commit
from django_ojs.store import locking
from django_ojs.store.contention import atomically
from django_ojs.store.leases import Held

Decide = Callable[[JobRecord, datetime], Transition | None]
API = Actor("api")


def decide_each(
    ids: Iterable[UUID], decide: Decide, *, now: datetime | None = None, using: str | None = None
) -> list[JobRecord]:
    """Lock the jobs, decide about each under the lock, commit all or none.

    Returns the records as they are now, in the order of ``ids``; a decision of ``None`` leaves a
    job as it is. Raises :class:`NotFound` for an unknown id, and what ``decide`` raises.
    """
    using = using or conf.current().database
    return atomically(using, partial(_decide_each, list(ids), decide, now, using))


def _decide_each(ids: list[UUID], decide: Decide, now: datetime | None, using: str) -> list[JobRecord]:
    locked = locking.jobs(ids, using=using)
    now = now or clock.now(using)
    moves = []
    for job_id in dict.fromkeys(ids):
        if job_id not in locked:
            raise NotFound(f"no job {job_id}", resource_type="job", resource_id=str(job_id))
        move = decide(locked[job_id], now)
        if move is not None:
            moves.append(move)
            locked[job_id] = move.written
    commit(moves, now=now, using=using)
    return [locked[job_id] for job_id in ids]


def cancel(
    ids: Iterable[UUID],
    *,
    actor: Actor = API,
    strict: bool = False,
    now: datetime | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """Cancel waiting and running jobs at once (decision L3).

    A terminal job is left as it is, or with ``strict`` raises :class:`InvalidTransition`.
    """

    def decide(job: JobRecord, now: datetime) -> Transition | None:
        if job.state in TERMINAL and not strict:
            return None
        return operations.cancel(job, actor=actor, now=now)

    return decide_each(ids, decide, now=now, using=using)


def activate(
    ids: Iterable[UUID], *, now: datetime | None = None, using: str | None = None
) -> list[JobRecord]:
    """Release ``pending`` jobs to the workers (OJS core ACTIVATE)."""
    return decide_each(ids, lambda job, now: operations.activate(job, now=now), now=now, using=using)


def retry_dead(
    ids: Iterable[UUID],
    *,
    actor: Actor = API,
    expires_at: datetime | bool | None = False,
    now: datetime | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """Give ``discarded`` jobs a new life under the same id (decision R5).

    ``expires_at`` replaces their absolute expiry, ``None`` clears it, ``False`` keeps it. Raises
    :class:`Conflict` when a kept one has passed, :class:`InvalidTransition` in other states.
    """
    return decide_each(
        ids,
        lambda job, now: operations.retry_dead(job, actor=actor, expires_at=expires_at, now=now),
        now=now,
        using=using,
    )


def reschedule(
    ids: Iterable[UUID],
    when: datetime,
    *,
    actor: Actor = API,
    now: datetime | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """Move the start of ``scheduled`` and ``retryable`` jobs; a past time means now."""
    return decide_each(
        ids,
        lambda job, now: operations.reschedule(job, when=when, actor=actor, now=now),
        now=now,
        using=using,
    )


def discard(
    ids: Iterable[UUID],
    *,
    actor: Actor = API,
    now: datetime | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """Give up waiting jobs; they do not enter the dead letter."""
    return decide_each(
        ids, lambda job, now: operations.discard(job, actor=actor, now=now), now=now, using=using
    )


def extend_timeout(
    ids: Iterable[UUID],
    by_ms: int,
    *,
    lease: Held | None = None,
    actor: Actor = API,
    now: datetime | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """Add ``by_ms`` milliseconds to the execution deadline of running jobs (decision T2).

    Additive, repeatable, bounded by the total deadline; recorded as ``job.timeout_extended``. With
    ``lease``, only while it holds: raises :class:`LeaseLost` otherwise.
    """

    def decide(job: JobRecord, now: datetime) -> Transition:
        if lease is not None and job.lease_id != lease.lease_id:
            raise LeaseLost("the lease was lost", job_id=str(job.id), current_state=job.state)
        return operations.extend(job, by_ms=by_ms, actor=actor, now=now)

    return decide_each(ids, decide, now=now, using=using)
