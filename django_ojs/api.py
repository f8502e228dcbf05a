"""The public surface of django_ojs: everything else may move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from django.db import transaction

from django_ojs import clock
from django_ojs.clock import new_id
from django_ojs.domain.arguments import arguments_of
from django_ojs.domain.durations import parse_instant, parse_seconds_ms
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.envelope import encode_calls, from_call
from django_ojs.domain.errors import (
    Conflict,
    Duplicate,
    HandlerNotFound,
    InvalidRequest,
    InvalidRetryPolicy,
    InvalidTransition,
    LeaseLost,
    NotFound,
    OJSError,
    TooLarge,
    Unsupported,
)
from django_ojs.domain.ids import keyed_uuid7, parse_uuid7
from django_ojs.domain.job import Actor
from django_ojs.domain.job_record import JobRecord, JobRef, id_of, shown
from django_ojs.domain.options import EditOptions, EnqueueOptions
from django_ojs.domain.states import State
from django_ojs.handlers.asynchronous import twin
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import DeadLetter, Discard, Fail, LeaseGone, Retry, SoftStop
from django_ojs.handlers.execution import chain as execution_middleware
from django_ojs.handlers.execution import current
from django_ojs.handlers.periodic import periodic
from django_ojs.handlers.registry import JobHandler, job
from django_ojs.handlers.workflows import WorkflowBuilder, batch, chain, group, step, workflow
from django_ojs.hooks import before_exit
from django_ojs.services import databases as _databases
from django_ojs.services import enqueue as _enqueue
from django_ojs.services import inspect as _inspect
from django_ojs.services import operate as _operate
from django_ojs.services import query as _query
from django_ojs.services import queues as _queues
from django_ojs.services.middleware import chain as enqueue_middleware
from django_ojs.services.operate import Extension
from django_ojs.services.query import JobFilters, JobQuery
from django_ojs.services.verbs import caller
from django_ojs.services.workflows import operate as _workflows
from django_ojs.services.workflows import read as _read
from django_ojs.services.workflows.read import WorkflowRecord

__all__ = [
    "Actor",
    "Conflict",
    "DeadLetter",
    "Discard",
    "Duplicate",
    "EnqueueRequest",
    "Extension",
    "Fail",
    "HandlerNotFound",
    "InvalidRequest",
    "InvalidRetryPolicy",
    "InvalidTransition",
    "JobContext",
    "JobHandler",
    "JobRecord",
    "LeaseGone",
    "LeaseLost",
    "NotFound",
    "OJSError",
    "Retry",
    "SoftStop",
    "State",
    "TooLarge",
    "Unsupported",
    "WorkflowBuilder",
    "WorkflowRecord",
    "aactivate",
    "acancel",
    "acancel_workflow",
    "acount_jobs",
    "activate",
    "aedit",
    "aenqueue",
    "aenqueue_many",
    "aextend_timeout",
    "aget",
    "aget_workflow",
    "ajobs",
    "areschedule",
    "aresume_workflow",
    "aretry",
    "batch",
    "before_exit",
    "cancel",
    "cancel_workflow",
    "chain",
    "count_jobs",
    "current",
    "edit",
    "enqueue",
    "enqueue_many",
    "enqueue_middleware",
    "enqueue_on_commit",
    "execution_middleware",
    "extend_timeout",
    "get",
    "get_workflow",
    "group",
    "job",
    "jobs",
    "new_id",
    "pause_queues",
    "periodic",
    "reschedule",
    "resume_queues",
    "resume_workflow",
    "retry",
    "step",
    "uuid7",
    "workflow",
]

WorkflowRef = WorkflowRecord | UUID | str


def enqueue(
    job_type: str,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[EnqueueOptions],
) -> JobRecord:
    """Insert a job of any type, known here or not, in the caller's transaction.

    ``args`` is a JSON list. Options: ``kwargs`` (arguments by keyword, for handlers of this package),
    ``queue``, ``priority`` (-100 to 100, higher first), ``delay`` or ``scheduled_at``, ``expires_at``,
    ``timeout``, ``grace_period``, ``total_timeout``, ``enqueue_ttl``, ``attempt_ttl``,
    ``heartbeat_timeout``, ``visibility_timeout``, ``retry`` (a partial policy), ``meta``, ``tags``,
    ``pending``, ``rate_limit`` (how many of its key may run, or start, at once), ``id`` (a UUIDv7: the
    same id and content again returns the same job), ``unique`` (a policy, or ``True``: no equal job may
    wait or run), ``throttle`` (one job in that time), ``debounce`` (each new one takes the place of the
    one before, and starts that much later). Durations are seconds, ``timedelta``, ``"10s"`` or ISO
    8601.

    The record of a job that was there already is ``deduplicated``. Raises :class:`InvalidRequest`
    naming the field, :class:`Duplicate` with the existing job, and ``TypeError`` for an unknown option;
    nothing is written then.
    """
    now = clock.now(_databases.of_call(job_type, options.get("queue")))
    envelope = from_call(job_type, args, now=now, kwargs=kwargs, **options)
    return JobRecord(_enqueue.enqueue([envelope], now=now)[0])


def enqueue_many(
    job_type: str, calls: Iterable[Sequence[Any] | Mapping[str, Any]], **options: Unpack[EnqueueOptions]
) -> list[JobRecord]:
    """Insert one job per list of arguments, all or none; one statement per 1,000.

    A mapping in place of a list has arguments by keyword.
    """
    now = clock.now(_databases.of_call(job_type, options.get("queue")))
    envelope = from_call(job_type, (), now=now, **options)
    envelope, texts = encode_calls(envelope, map(arguments_of, calls))
    return shown(_enqueue.enqueue_bulk(envelope, texts, now=now))


def enqueue_on_commit(
    job_type: str,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[EnqueueOptions],
) -> None:
    """Insert the job when the outermost transaction on its database commits; checked at once.

    For the case that the job must not exist before the commit. :func:`enqueue` is already
    invisible to workers until then, and cannot be lost between commit and insert.
    """
    database = _databases.of_call(job_type, options.get("queue"))
    envelope = from_call(job_type, args, now=clock.now(database), kwargs=kwargs, **options)

    def insert() -> None:
        _enqueue.enqueue([envelope])

    transaction.on_commit(insert, using=database)


def uuid7(moment: datetime | date, *key: str | int | UUID | date) -> UUID:
    """The id of the job for a thing that happened once: the same for the same moment and key.

    Give it as ``id``, and the same call twice is one job, in any process and without anything being
    stored before. ``moment`` is when the thing happened (a ``datetime`` with a time zone, used to
    the millisecond, or a day, which is midnight UTC); it must be what your data says, not the time
    of the call. ``key`` names the job: its purpose, and what your data calls the thing. Lists of
    jobs are ordered by it. Raises :class:`InvalidRequest` for a moment without a time zone or before
    1970, and a key that is empty or has other parts.
    """
    return keyed_uuid7(moment, key)


def get(job: JobRef) -> JobRecord:
    """The job as it is stored now, in whichever database. Raises :class:`NotFound`."""
    using, job_id = _found(job)
    return JobRecord(_inspect.find(job_id, using=using))


def jobs(
    *,
    limit: int = 100,
    after: JobRef | None = None,
    database: str | None = None,
    **filters: Unpack[JobFilters],
) -> list[JobRecord]:
    """A page of jobs, the newest first.

    Filters: ``state``, ``queue``, ``type`` (one or a list, of which an empty one matches no job; queues
    and types may end in ``*``), ``worker_id``, ``error_type``, ``dead_letter``, ``workflow_id``,
    ``since`` and ``until`` (when the job was made: a time, or a duration that is so long ago).
    ``limit`` is at most 1,000; ``after`` is the last job of the page before. With
    ``OJS["QUEUE_DATABASES"]`` the jobs are those of one ``database``: by default that of the queues,
    without these ``OJS["DATABASE"]``. Raises :class:`InvalidRequest` naming the filter, ``TypeError``
    for an unknown one.
    """
    using = _databases.of_filter(filters.get("queue"), database)
    query = JobQuery.of(using=using, **filters)
    last = None if after is None else id_of(after)
    return shown(_query.page(query, limit=limit, after=last, using=using))


def count_jobs(*, database: str | None = None, **filters: Unpack[JobFilters]) -> int:
    """How many jobs there are, counted up to 10,000; takes ``database`` and the filters of
    :func:`jobs`.
    """
    using = _databases.of_filter(filters.get("queue"), database)
    return _query.count(JobQuery.of(using=using, **filters), using=using)


def cancel(job: JobRef, *, reason: str = "", by: str = "") -> JobRecord:
    """Cancel a waiting or running job at once; its worker learns it. A finished one stays as it is."""
    using, job_id = _found(job)
    return JobRecord(_operate.cancel([job_id], actor=caller(by, reason), using=using)[0])


def activate(job: JobRef) -> JobRecord:
    """Let a ``pending`` job run. Raises :class:`InvalidTransition` in other states."""
    using, job_id = _found(job)
    return JobRecord(_operate.activate([job_id], using=using)[0])


def retry(
    job: JobRef,
    *,
    expires_at: datetime | bool | None = False,
    allow_duplicate: bool = False,
    reason: str = "",
    by: str = "",
) -> JobRecord:
    """Make a ``discarded`` job available again under its id: attempts and timeouts start from zero.

    ``expires_at`` replaces an absolute expiry, ``None`` clears it. Raises :class:`Conflict` when a
    kept one has passed, :class:`InvalidTransition` in other states and, unless ``allow_duplicate``,
    :class:`Duplicate` for a unique job while an equal one waits or runs.
    """
    actor = caller(by, reason)
    using, job_id = _found(job)
    if not isinstance(expires_at, (bool, type(None))):
        expires_at = parse_instant(expires_at, "expires_at", clock.now(using))[0]
    changed = _operate.retry_dead(
        [job_id],
        actor=actor,
        expires_at=expires_at,
        allow_duplicate=allow_duplicate,
        using=using,
    )
    return JobRecord(changed[0])


def reschedule(job: JobRef, when: datetime | timedelta | str, *, by: str = "") -> JobRecord:
    """Move the start of a ``scheduled`` or ``retryable`` job; a past time means now."""
    actor = caller(by)
    using, job_id = _found(job)
    if isinstance(when, timedelta):
        when = max(when, timedelta(0))
    start = parse_instant(when, "when", clock.now(using))[0]
    return JobRecord(_operate.reschedule([job_id], start, actor=actor, using=using)[0])


def edit(job: JobRef, *, reason: str = "", by: str = "", **options: Unpack[EditOptions]) -> JobRecord:
    """Change a job that waits: ``timeout``, ``grace_period``, ``heartbeat_timeout``, ``total_timeout``,
    ``enqueue_ttl``, ``attempt_ttl``, ``queue``, ``priority`` and ``retry`` (a partial policy, over that
    of the job).

    ``None`` clears: the default of type, queue and settings holds again. Deadlines follow. Raises
    :class:`InvalidRequest` naming the option; nothing is changed then. Raises
    :class:`InvalidTransition` for a job that runs, whose timeout :func:`extend_timeout` extends, or has
    ended, and ``TypeError`` for an unknown option.
    """
    using, job_id = _found(job)
    who = caller(by, reason)
    return JobRecord(_operate.edit([job_id], options, actor=who, using=using)[0])


def extend_timeout(
    job: JobRef, by: int | str | timedelta, *, reason: str = "", actor: str = ""
) -> Extension:
    """Add time to the running attempt of a job: seconds, ``timedelta``, ``"5m"`` or ISO 8601.

    Additive, granted as far as the total timeout leaves room: the answer says how much
    (``extended_by_ms``) and both new deadlines. Raises :class:`Conflict` when nothing can be granted,
    :class:`InvalidTransition` when the job does not run.
    """
    by_ms = parse_seconds_ms(by, "by")
    who = caller(actor, reason, "actor")
    using, job_id = _found(job)
    return _operate.extend_timeout([job_id], by_ms, actor=who, using=using)[0]


def pause_queues(names: Collection[str], *, actor: Actor = Actor()) -> list[str]:
    """Stop claims from these queues; returns those that were not paused before.

    When it returns, no claim from them is under way. Enqueueing goes on, and so do the total and
    TTL clocks of the jobs. Queues of several databases are paused one database after the other.
    """
    each = _databases.by_database(names).items()
    return [name for using, own in each for name in _queues.pause(own, actor=actor, using=using)]


def resume_queues(names: Collection[str], *, actor: Actor = Actor()) -> list[str]:
    """Allow claims from these queues again; returns those that were paused."""
    each = _databases.by_database(names).items()
    return [name for using, own in each for name in _queues.resume(own, actor=actor, using=using)]


def get_workflow(workflow: WorkflowRef) -> WorkflowRecord:
    """The workflow as it is stored now, with the errors of its jobs. Raises :class:`NotFound`."""
    key = _workflow_id(workflow)
    return _read.find(key, using=_databases.of_workflow(key))


def cancel_workflow(workflow: WorkflowRef, *, reason: str = "", by: str = "") -> WorkflowRecord:
    """Cancel a running workflow with all its jobs; nothing more of it starts, callbacks neither.

    Raises :class:`NotFound`, and :class:`Conflict` for a workflow that has ended.
    """
    key = _workflow_id(workflow)
    using = _databases.of_workflow(key)
    row = _workflows.cancel(key, actor=caller(by, reason), using=using)
    return _read.record(row, _read.errors_of(row, using=using))


def resume_workflow(workflow: WorkflowRef, *, reason: str = "", by: str = "") -> WorkflowRecord:
    """Run again what has failed or was cancelled of a workflow, and go on from there.

    Attempts, clocks and ``workflow_timeout`` start again, and callbacks run when all has ended. Raises
    :class:`NotFound`, and :class:`Conflict` for a workflow that runs or has nothing to resume.
    """
    key = _workflow_id(workflow)
    using = _databases.of_workflow(key)
    row = _workflows.resume(key, actor=caller(by, reason), using=using)
    return _read.record(row, _read.errors_of(row, using=using))


aactivate = twin(activate)
acancel = twin(cancel)
acancel_workflow = twin(cancel_workflow)
aedit = twin(edit)
aenqueue = twin(enqueue)
aenqueue_many = twin(enqueue_many)
aextend_timeout = twin(extend_timeout)
aget = twin(get)
ajobs = twin(jobs)
acount_jobs = twin(count_jobs)
aget_workflow = twin(get_workflow)
areschedule = twin(reschedule)
aresume_workflow = twin(resume_workflow)
aretry = twin(retry)


def _found(job: JobRef) -> tuple[str, UUID]:
    """The database of a job, and its id."""
    job_id = id_of(job)
    return _databases.of_job(job_id), job_id


def _workflow_id(workflow: WorkflowRef) -> UUID:
    return workflow.id if isinstance(workflow, WorkflowRecord) else parse_uuid7(workflow, "workflow")
