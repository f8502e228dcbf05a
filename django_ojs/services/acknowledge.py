"""ACKs of jobs as they were claimed, many at once: decided on the records that the worker has, or on
what a look without locks has found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import DatabaseError, connections

from django_ojs import clock
from django_ojs.domain import lifecycle
from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.events import Kind
from django_ojs.domain.job import LARGE, JobRow, Transition, changed_alike
from django_ojs.domain.leases import Lease
from django_ojs.services.commit import commit, commit_alike, commit_all_alike, is_published
from django_ojs.store import selectors
from django_ojs.store.batches import fits
from django_ojs.store.columns import ColumnType
from django_ojs.store.contention import impatient, in_transaction, is_contention, is_held
from django_ojs.store.dialect import dialect

_RESTS_ON = ("deadline_at", "progress")
"""Columns that the ACK of a job depends on and that may change while it runs."""


class Ack(NamedTuple):
    """A job as it was claimed, and its result as JSON text."""

    job: JobRow
    result: str | None


def acknowledge(acks: Sequence[Ack], *, using: str) -> list[bool]:
    """Write what still holds, and return for each whether it is written.

    The others have changed since they were claimed, or another transaction holds a row: they are to be
    settled by what their rows say. One statement where the database can, for jobs that nobody else
    waits for; two in a transaction for the others, all of them or none.
    """
    # In id order, like every other writer, so that batches cannot deadlock.
    others = sorted(acks, key=_job_id)
    done: list[JobRow] = []
    if not is_published(Kind.COMPLETED):
        holder = (others[0].job.worker_id, others[0].job.lease_principal)
        alike = [ack for ack in others if _is_alone(ack.job, holder)]
        if alike:
            done = _at_once(alike, using)
            if len(alike) < len(others):
                others = [ack for ack in others if not _is_alone(ack.job, holder)]
            else:
                others = []
    if others and _all_or_none(lambda: _commit(others, using=using)):
        done = [*done, *(ack.job for ack in others)]
    if len(done) == len(acks):
        return [True] * len(acks)
    ids = {job.id for job in done}
    return [ack.job.id in ids for ack in acks]


def acknowledge_by_lease(
    results: Mapping[Lease, str | None], principal: str | None, *, using: str
) -> dict[Lease, JobRow]:
    """Write ACKs of a client that has no records, and return the jobs that have ended, by their leases
    and without what may be large; ``results`` are JSON text.

    Where one statement can do it, of jobs of one worker that nobody else waits for. It passes over rows
    that others hold. All that is not returned is to be settled by what its row says.
    """
    can = dialect(using).inserts_what_it_updates and not connections[using].in_atomic_block
    if not can or is_published(Kind.COMPLETED):
        return {}
    if not fits([ColumnType.JSON], [results.values()], using):
        return {}
    now = clock.now(using)
    found = selectors.jobs([lease.job_id for lease in results], without=LARGE, using=using)
    held = {
        lease: job
        for lease in sorted(results, key=lambda lease: lease.job_id.int)
        if (job := found.get(lease.job_id)) is not None
        and job.lease_id == lease.lease_id
        and job.deadline_at is not None
        and job.deadline_at > now
    }
    worker = next((job.worker_id for job in held.values()), None)
    alone = {lease: job for lease, job in held.items() if _is_alone(job, (worker, principal))}
    if not alone:
        return {}
    jobs = list(alone.values())
    decision = _decided(jobs[0], now)
    ended = _by_one_statement(
        decision, jobs, [results[lease] for lease in alone], now, using, pass_over=True
    )
    if not ended:
        return {}
    leases = {job.id: lease for lease, job in alone.items()}
    written = changed_alike(ended, decision.target, decision.changes, {})
    return {leases[job.id]: job for job in written}


def _job_id(ack: Ack) -> int:
    return ack.job.id.int


def _is_alone(job: JobRow, holder: tuple[str | None, str | None]) -> bool:
    """Whether nothing but this job depends on how it ends; claimed by this worker and credential."""
    return not job.hooks and job.progress is None and (job.worker_id, job.lease_principal) == holder


def _at_once(acks: Sequence[Ack], using: str) -> list[JobRow]:
    """By one decision, since they differ in their results only; those that are written."""
    jobs, results = [ack.job for ack in acks], [ack.result for ack in acks]
    if not dialect(using).inserts_what_it_updates or connections[using].in_atomic_block:
        together = _all_or_none(lambda: _commit_alike(jobs, results, using=using))
        return jobs if together else []
    now = clock.now(using)
    return _by_one_statement(_decided(jobs[0], now), jobs, results, now, using)


def _by_one_statement(
    decision: Transition,
    jobs: Sequence[JobRow],
    results: Sequence[str | None],
    now: datetime,
    using: str,
    *,
    pass_over: bool = False,
) -> list[JobRow]:
    try:
        return commit_alike(decision, jobs, results, pass_over=pass_over, now=now, using=using)
    except DatabaseError as error:
        if not is_contention(error):
            raise
        return []


def _decided(job: JobRow, now: datetime) -> Transition:
    return lifecycle.ack(job, result=None, now=now)


def _all_or_none(write: Callable[[], None]) -> bool:
    try:
        with impatient(1):
            write()
    except LeaseLost:
        return False
    except DatabaseError as error:
        if not is_held(error):
            raise
        return False
    return True


@in_transaction
def _commit_alike(jobs: Sequence[JobRow], results: Sequence[str | None], *, using: str = "") -> None:
    now = clock.now(using)
    commit_all_alike(_decided(jobs[0], now), jobs, results, now=now, using=using)


@in_transaction
def _commit(acks: Sequence[Ack], *, using: str = "") -> None:
    now = clock.now(using)
    transitions = [lifecycle.ack(ack.job, result=ack.result, now=now) for ack in acks]
    commit(transitions, seen=_RESTS_ON, now=now, using=using)
