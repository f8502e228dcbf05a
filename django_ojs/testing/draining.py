"""Run the jobs that are due, in the process and the connection of the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

from asgiref.sync import async_to_sync

from django_ojs import clock, conf
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import Actor, JobRow
from django_ojs.domain.leases import Lease
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.states import State
from django_ojs.handlers import execution, registry
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import HandlerDecision
from django_ojs.models import Job
from django_ojs.services import claim as claims
from django_ojs.services import leases, operate
from django_ojs.services.promote import promote
from django_ojs.services.rate_limits import admission
from django_ojs.services.settle import Outcome, Report, settle
from django_ojs.store import selectors
from django_ojs.store.sources import Sources
from django_ojs.testing import recorded
from django_ojs.testing.committing import (
    as_by_worker,
    as_committed,
    is_verdict_of_test,
    refuse_atomic,
)
from django_ojs.testing.failing import planned
from django_ojs.testing.in_process import InProcessSupervisor, opened
from django_ojs.testing.reach import databases_of
from django_ojs.worker.executor.invoke import failure_of
from django_ojs.worker.executor.results import result_text
from django_ojs.worker.supervisor import failures
from django_ojs.worker.supervisor.deadlines import SILENT

WORKER = "test"
"""The name of the worker that jobs run by :func:`drain` have in ``worker_id``."""
_draining: list[bool] = []


@dataclass(frozen=True, slots=True)
class Drained:
    """How many attempts :func:`drain` has run, by what became of them.

    Each attempt is one of ``completed``, ``retryable``, ``discarded`` and ``cancelled``: the state of
    the job after it. ``failed`` are those of them in which the handler raised.
    """

    completed: int = 0
    failed: int = 0
    discarded: int = 0
    retryable: int = 0
    cancelled: int = 0


def is_draining() -> bool:
    """Whether :func:`drain` is at work."""
    return bool(_draining)


def drain(
    queue: str | Sequence[str] | None = None,
    *,
    with_scheduled: bool = False,
    max_jobs: int = 1000,
    raise_failures: bool = False,
    using: str | None = None,
) -> Drained:
    """Run every job that is available, and those that they enqueue, until none is left.

    Jobs are claimed, called and settled as by a worker, one after the other, but in this process and
    in the connection of the test: also in ``TestCase``, with ``mock.patch`` and with SQLite in memory.
    Of a job's ``on_commit`` callbacks and durable blocks each works as in a worker. Workflows go on.

    ``queue`` names one queue or several, served in that order. Where queues are on several databases,
    those of all that the test may use are run, or of ``using`` alone. A job that is scheduled, or waits
    for its retry, runs only when it is due: move the clock (:class:`JobClock`), or give
    ``with_scheduled``, by which all of them are due now, retries too. Jobs of types that have no
    handler stay where they are.

    With ``raise_failures`` the first exception of a handler is raised when its attempt is settled;
    decisions like ``Retry`` and ``Discard`` are no failures. Raises ``RuntimeError`` when it is called
    by a handler that it runs, inside an ``atomic()`` of the test, after ``max_jobs`` attempts, and for
    a database that the test may not use; :class:`InvalidRequest` for what is no name of a queue.
    """
    if _draining:
        raise RuntimeError(
            "drain() was called by a handler that drain() runs: it will run the new jobs itself"
        )
    if recorded.jobs() is not None:
        raise RuntimeError("drain() has nothing to run in the mode 'fake': its jobs are not stored")
    queues = [queue] if isinstance(queue, str) else queue
    for name in queues or ():
        check_queue_name(name, "queue")
    places = _places(queues, using)
    refuse_atomic("drain()", {place.using for place in places})
    _draining.append(True)
    try:
        return _drain(places, with_scheduled, max_jobs, raise_failures)
    finally:
        _draining.pop()


run_jobs = drain
"""Another name for it."""


class _Place(NamedTuple):
    """What to claim, and in which database."""

    using: str
    where: Sources


def _places(queues: Sequence[str] | None, using: str | None) -> Sequence[_Place]:
    """The databases to drain; queues that are named keep their order across databases."""
    databases = databases_of("drain()", using=using, queues=queues)
    types = registry.types()
    if queues is None or len(databases) == 1:
        return [_Place(alias, claims.sources(queues, types)) for alias in databases]
    in_turn = groupby(queues, conf.current().databases.of)
    return [_Place(alias, claims.sources(list(some), types)) for alias, some in in_turn]


def _drain(
    places: Sequence[_Place], with_scheduled: bool, max_jobs: int, raise_failures: bool
) -> Drained:
    counts: Counter[str] = Counter()
    attempts = 0
    while (claimed := _claim(places, with_scheduled)) is not None:
        job, using = claimed
        if attempts == max_jobs:
            release(job, using=using)
            raise RuntimeError(
                f"drain() has run {max_jobs} attempts and there is still work: does a job enqueue "
                "itself again? max_jobs= allows more"
            )
        attempts += 1
        error = run(job, using=using)
        state = selectors.jobs([job.id], using=using)[job.id].state
        counts[state] += 1
        counts["failed"] += error is not None
        if raise_failures and error is not None and not isinstance(error, HandlerDecision):
            raise error
    return Drained(
        completed=counts[State.COMPLETED],
        failed=counts["failed"],
        discarded=counts[State.DISCARDED],
        retryable=counts[State.RETRYABLE],
        cancelled=counts[State.CANCELLED],
    )


def _claim(places: Sequence[_Place], with_scheduled: bool) -> tuple[JobRow, str] | None:
    """The next job, under a lease, and its database; with ``with_scheduled`` the first that waits is
    made due when none is available.
    """
    while True:
        for using, where in places:
            as_committed(using, partial(promote, using=using))
            as_committed(using, partial(admission.admit_due, at_once=True, using=using))
            job = claim_one(where, using=using)
            if job is not None:
                return job, using
        if not (with_scheduled and _make_due(places)):
            return None


def claim_one(where: Sources, *, using: str) -> JobRow | None:
    """Claim one job, if one is available."""
    claim = partial(claims.claim, where, limit=1, worker_id=WORKER, beats=True, expire_for=inf)
    found = as_committed(using, partial(claim, using=using))
    return found[0] if found else None


def _make_due(places: Sequence[_Place]) -> bool:
    firsts = [(*first, using) for using, where in places if (first := _first(where, using))]
    if not firsts:
        return False
    _, job_id, using = min(firsts)
    now = clock.now(using)
    as_committed(using, partial(operate.reschedule, [job_id], now, actor=Actor("api"), using=using))
    return True


def _first(where: Sources, using: str) -> tuple[datetime, UUID] | None:
    """When the first of the jobs that wait for their time is due, and which one that is."""
    waiting = Job.objects.using(using).filter(state__in=(State.SCHEDULED, State.RETRYABLE))
    rows = waiting.order_by("scheduled_at", "id").only("id", "queue", "type", "scheduled_at")
    served = (row for row in rows if where.serves(row.queue, row.type))
    return next(((row.scheduled_at, row.id) for row in served if row.scheduled_at), None)


def release(job: JobRow, *, using: str) -> None:
    """Give a claimed job back; it has lost no attempt."""
    assert job.lease_id is not None
    outcome = Outcome(Lease(job.id, job.lease_id), Report.RELEASE)
    as_committed(using, partial(settle, [outcome], using=using))


def run(job: JobRow, *, using: str) -> BaseException | None:
    """Run one claimed job and settle it; returns what its handler raised."""
    supervisor = InProcessSupervisor(job, using=using)
    context = supervisor.context()
    error: BaseException | None = None
    result = None
    with opened(supervisor):
        try:
            returned = as_by_worker(lambda: call(context))
            result = result_text(returned)
        except BaseException as raised:
            if is_verdict_of_test(raised):
                raise
            error = raised
        as_committed(using, supervisor.keep)
        as_committed(using, lambda: _settle(supervisor, context, result, error, using))
    return error


def call(context: JobContext) -> Any:
    """Call the handler of a context inside the execution middleware, and return its result."""
    before = execution.running.set(context)
    try:
        return execution.run(context, _handle)
    finally:
        execution.running.reset(before)


def _handle(context: JobContext) -> Any:
    if (error := planned(context.type)) is not None:
        raise error
    handler = registry.find(context.type)
    context._soft = handler.soft
    if handler.is_async:
        # Its queries are then made in this thread, which has the connection of the test.
        return async_to_sync(handler.acall)(context)
    return handler.call(context)


def _settle(
    supervisor: InProcessSupervisor,
    context: JobContext,
    result: str | None,
    error: BaseException | None,
    using: str,
) -> None:
    """Report the outcome as a worker does: nothing where the server has ended the attempt."""
    reason = context.cancel_reason
    if error is None:
        outcome = Outcome(supervisor.lease, Report.ACK, result)
    else:
        if reason in (*SILENT, "total_timeout"):
            if not leases.holds([supervisor.lease], using=using):
                return
            # The handler has raised inside atomic(), which took back what had ended the attempt.
            reason = None if reason in SILENT else reason
        failure = failure_to_report(error, reason)
        outcome = Outcome(supervisor.lease, Report.FAIL, None, failure)
    settle([outcome], using=using)


def failure_to_report(error: BaseException, reason: str | None) -> Failure:
    """What a worker reports of an exception; ``reason`` is why the handler was asked to stop."""
    frame = failure_of(error, reason)
    return failures.reported(frame) if reason is None else failures.stopped(reason, frame)
