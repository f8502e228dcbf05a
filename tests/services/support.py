"""Short forms of the verbs for tests of the services."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from django.db import connections, transaction

from django_ojs.api import enqueue
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease
from django_ojs.models import Job
from django_ojs.services.claim import claim, sources
from django_ojs.services.rate_limits import admission
from django_ojs.services.settle import Outcome, Report, SettleResult, settle
from django_ojs.store import selectors
from django_ojs.store.sessions import lock_timeout
from tests.support import AnyJob, lock_job_table


def make(count: int = 1, job_type: str = "test.job", **options: Any) -> list[JobRow]:
    """Enqueue ``count`` jobs with their number as argument."""
    return [enqueue(job_type, [number], **options).row for number in range(count)]


@contextmanager
def nobody_admits() -> Iterator[None]:
    """The process that changes places in this block dies as it has committed."""
    with patch.object(admission, "admit", lambda keys, *, using: 0), transaction.atomic():
        yield


def take(
    limit: int = 1,
    *,
    queues: Sequence[str] = ("default",),
    types: Sequence[str] | None = ("test.job",),
    worker: str = "w1",
    beats: bool = True,
    **options: Any,
) -> list[JobRow]:
    """Claim up to ``limit`` jobs."""
    return claim(sources(queues, types), limit=limit, worker_id=worker, beats=beats, **options)


def claimed_by_many(work: Callable[[list[int]], None], claimers: int = 4) -> list[list[int]]:
    """What each of some threads that begin together adds to its list; none may fail."""
    got: list[list[int]] = [[] for _ in range(claimers)]
    start = threading.Barrier(claimers)
    trouble: list[BaseException] = []

    def claim_all(mine: list[int]) -> None:
        try:
            start.wait(timeout=30)
            work(mine)
        except BaseException as error:
            trouble.append(error)
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=claim_all, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert trouble == []
    return got


def held(job: JobRow) -> Lease:
    """The lease of a claimed job."""
    assert job.lease_id is not None
    return Lease(job.id, job.lease_id)


def ack(*jobs: JobRow, result: str | None = None) -> list[SettleResult]:
    """Report success."""
    return settle([Outcome(held(job), Report.ACK, result) for job in jobs])


def fail(*jobs: JobRow, type: str = "test.Error", **failure: Any) -> list[SettleResult]:
    """Report failure."""
    return settle(
        [Outcome(held(job), Report.FAIL, failure=Failure(type, "no", **failure)) for job in jobs]
    )


def release(*jobs: JobRow) -> list[SettleResult]:
    """Give unstarted jobs back."""
    return settle([Outcome(held(job), Report.RELEASE) for job in jobs])


def now_stored(job: AnyJob) -> JobRow:
    """The job as it is in the database."""
    return selectors.jobs([job.id], using="default")[job.id]


@contextmanager
def elsewhere(work: Callable[[], object]) -> Iterator[None]:
    """For the block another session stands in a transaction, after ``work`` in it."""
    done, over = threading.Event(), threading.Event()
    trouble: list[BaseException] = []

    def stand() -> None:
        try:
            with transaction.atomic():
                work()
                done.set()
                over.wait(60)
        except BaseException as error:
            trouble.append(error)
        finally:
            done.set()
            connections.close_all()

    thread = threading.Thread(target=stand, daemon=True)
    thread.start()
    assert done.wait(20) and not trouble, trouble
    try:
        yield
    finally:
        over.set()
        thread.join(20)
    assert not trouble, trouble


def holding(*jobs: JobRow) -> AbstractContextManager[None]:
    """For the block these rows are locked by the transaction of another session."""
    ids = [job.id for job in jobs]
    return elsewhere(lambda: list(Job.objects.select_for_update().filter(pk__in=ids)))


@contextmanager
def bounded() -> Iterator[None]:
    """For the block this session waits for locks as those of a worker or reaper do."""
    connections["default"].close()
    with lock_timeout("default"):
        yield


def locked_table() -> AbstractContextManager[None]:
    """For the block the table of jobs is locked as a plain CREATE INDEX, or its like, locks it."""
    return elsewhere(lock_job_table)
