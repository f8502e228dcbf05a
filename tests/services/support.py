"""Short forms of the verbs for tests of the services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_ojs.api import enqueue
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRecord
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report, Settled, settle
from django_ojs.store import selectors
from django_ojs.store.leases import Held


def make(count: int = 1, job_type: str = "test.job", **options: Any) -> list[JobRecord]:
    """Enqueue ``count`` jobs with their number as argument."""
    return [enqueue(job_type, [number], **options) for number in range(count)]


def take(
    limit: int = 1,
    *,
    queues: Sequence[str] = ("default",),
    types: Sequence[str] | None = ("test.job",),
    worker: str = "w1",
    beats: bool = True,
    **options: Any,
) -> list[JobRecord]:
    """Claim up to ``limit`` jobs."""
    return claim(sources(queues, types), limit=limit, worker_id=worker, beats=beats, **options)


def held(job: JobRecord) -> Held:
    """The lease of a claimed job."""
    assert job.lease_id is not None
    return Held(job.id, job.lease_id)


def ack(*jobs: JobRecord, result: str | None = None) -> list[Settled]:
    """Report success."""
    return settle([Outcome(held(job), Report.ACK, result) for job in jobs])


def fail(*jobs: JobRecord, type: str = "test.Error", **failure: Any) -> list[Settled]:
    """Report failure."""
    return settle(
        [Outcome(held(job), Report.FAIL, failure=Failure(type, "no", **failure)) for job in jobs]
    )


def release(*jobs: JobRecord) -> list[Settled]:
    """Give unstarted jobs back."""
    return settle([Outcome(held(job), Report.RELEASE) for job in jobs])


def now_stored(job: JobRecord) -> JobRecord:
    """The job as it is in the database."""
    return selectors.jobs([job.id], using="default")[job.id]
