"""Hold a job active while a test does something to it from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from django_ojs import clock
from django_ojs.domain import lifecycle
from django_ojs.domain.errors import Conflict
from django_ojs.domain.job import JobRow
from django_ojs.domain.job_record import JobRef, id_of
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services import leases
from django_ojs.services.commit import commit
from django_ojs.services.promote import promote
from django_ojs.services.rate_limits import admission
from django_ojs.store import locking
from django_ojs.store.contention import in_transaction
from django_ojs.testing.committing import as_committed, refuse_atomic
from django_ojs.testing.draining import WORKER, release
from django_ojs.testing.in_process import InProcessContext, InProcessSupervisor, opened
from django_ojs.testing.reach import databases_of


@contextmanager
def running(
    job: JobRef, *, heartbeats: bool = True, using: str | None = None
) -> Iterator[InProcessContext]:
    """Let the job run during the block, under a real lease, without its handler; the block gets the
    context that the handler would have.

    Code that cancels, extends or reaps the job meets what a running job is; the context follows:
    ``ctx.check()`` raises ``SoftStop`` when it must stop. While the clock of the test moves on, signs
    of life are sent unless ``heartbeats`` is false, as by a worker that has died. A job that still runs
    at the end of the block is given back, and has lost no attempt.

    Raises :class:`Conflict` for a job that is not available, or held for a rate limit, and
    ``RuntimeError`` inside ``atomic()``.
    """
    job_id = id_of(job)
    using = _database_of(job_id, databases_of("running()", using=using))
    refuse_atomic("running()", [using])
    as_committed(using, lambda: promote(using=using))
    as_committed(using, lambda: admission.admit_due(at_once=True, using=using))
    claimed = as_committed(using, lambda: _claim(job_id, using=using))
    supervisor = InProcessSupervisor(claimed, using=using, heartbeats=heartbeats)
    with opened(supervisor):
        try:
            yield supervisor.context()
        finally:
            if leases.holds([supervisor.lease], using=using):
                release(claimed, using=using)


def _database_of(job_id: UUID, databases: Sequence[str]) -> str:
    """The database that has the job; the first if none has."""
    if len(databases) == 1:
        return databases[0]
    having = (one for one in databases if Job.objects.using(one).filter(pk=job_id).exists())
    return next(having, databases[0])


@in_transaction
def _claim(job_id: UUID, *, using: str = "") -> JobRow:
    job = locking.job(job_id, using=using)
    if job.state != State.AVAILABLE:
        raise Conflict(f"a job that is {job.state} cannot start", job_id=str(job_id))
    if job.held:
        raise Conflict("a job that a rate limit holds cannot start", job_id=str(job_id))
    now = clock.now(using)
    transition = lifecycle.claim(
        job, lease_id=clock.new_lease(), worker_id=WORKER, beats=True, visibility_ms=None, now=now
    )
    commit([transition], now=now, using=using)
    return transition.written
