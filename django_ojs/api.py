"""The public surface of django_ojs: everything else may move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from django_ojs import clock, conf
from django_ojs.clock import new_id
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.envelope import encode_args, from_call
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
    no_job,
)
from django_ojs.domain.ids import parse_uuid7
from django_ojs.domain.job import Actor, JobRecord
from django_ojs.domain.states import State
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import DeadLetter, Discard, Fail, LeaseGone, Retry, SoftStop
from django_ojs.handlers.registry import JobHandler, job
from django_ojs.services import enqueue as _enqueue
from django_ojs.services import operate as _operate
from django_ojs.services.operate import Extension
from django_ojs.services.queues import pause as pause_queues
from django_ojs.services.queues import resume as resume_queues
from django_ojs.store import selectors as _selectors

__all__ = [
    "Actor",
    "Conflict",
    "DeadLetter",
    "Discard",
    "Duplicate",
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
    "activate",
    "cancel",
    "enqueue",
    "enqueue_many",
    "enqueue_on_commit",
    "extend_timeout",
    "get",
    "job",
    "new_id",
    "pause_queues",
    "reschedule",
    "resume_queues",
    "retry",
]

JobRef = JobRecord | UUID | str


def enqueue(job_type: str, args: Sequence[Any] = (), **options: Any) -> JobRecord:
    """Insert a job of any type, known here or not, in the caller's transaction.

    ``args`` is a JSON list. Options: ``queue``, ``priority`` (-100 to 100, higher first),
    ``delay`` or ``scheduled_at``, ``expires_at``, ``timeout``, ``grace_period``,
    ``total_timeout``, ``enqueue_ttl``, ``heartbeat_timeout``, ``visibility_timeout``, ``retry`` (a
    partial policy), ``meta``, ``tags``, ``pending``, ``id`` (a UUIDv7: the same id and content
    again returns the same job). Durations are seconds, ``timedelta``, ``"10s"`` or ISO 8601.

    Raises :class:`InvalidRequest` naming the field, :class:`Duplicate`, and ``TypeError`` for an
    unknown option; nothing is written then.
    """
    now = clock.now(conf.current().database)
    return _enqueue.enqueue([from_call(job_type, args, now=now, **options)], now=now)[0]


def enqueue_many(job_type: str, calls: Iterable[Sequence[Any]], **options: Any) -> list[JobRecord]:
    """Insert one job per list of arguments, all or none; one statement per 1,000."""
    now = clock.now(conf.current().database)
    envelope = from_call(job_type, (), now=now, **options)
    return _enqueue.enqueue_bulk(envelope, [encode_args(args) for args in calls], now=now)


def enqueue_on_commit(job_type: str, args: Sequence[Any] = (), **options: Any) -> None:
    """Insert the job when the outermost transaction on its database commits; checked at once.

    For the case that the job must not exist before the commit. :func:`enqueue` is already
    invisible to workers until then, and cannot be lost between commit and insert.
    """
    database = conf.current().database
    envelope = from_call(job_type, args, now=clock.now(database), **options)

    def insert() -> None:
        _enqueue.enqueue([envelope])

    transaction.on_commit(insert, using=database)


def get(job: JobRef) -> JobRecord:
    """The job as it is stored now. Raises :class:`NotFound`."""
    job_id = _id(job)
    found = _selectors.jobs([job_id], using=conf.current().database).get(job_id)
    if found is None:
        raise no_job(job_id)
    return found


def cancel(job: JobRef, *, reason: str = "", by: str = "") -> JobRecord:
    """Cancel a waiting or running job at once; its worker learns it. A finished one stays as it is."""
    return _operate.cancel([_id(job)], actor=Actor("api", by, reason))[0]


def activate(job: JobRef) -> JobRecord:
    """Let a ``pending`` job run. Raises :class:`InvalidTransition` in other states."""
    return _operate.activate([_id(job)])[0]


def retry(
    job: JobRef, *, expires_at: datetime | bool | None = False, reason: str = "", by: str = ""
) -> JobRecord:
    """Give a ``discarded`` job a new life under its id: attempts and clocks start again.

    ``expires_at`` replaces an absolute expiry, ``None`` clears it. Raises :class:`Conflict` when a
    kept one has passed, :class:`InvalidTransition` in other states.
    """
    return _operate.retry_dead([_id(job)], actor=Actor("api", by, reason), expires_at=expires_at)[0]


def reschedule(job: JobRef, when: datetime | timedelta, *, by: str = "") -> JobRecord:
    """Move the start of a ``scheduled`` or ``retryable`` job; a past time means now."""
    if isinstance(when, timedelta):
        when = clock.now(conf.current().database) + when
    elif when.tzinfo is None:
        raise InvalidRequest("when", "must have a time zone")
    return _operate.reschedule([_id(job)], when, actor=Actor("api", by))[0]


def extend_timeout(
    job: JobRef, by: int | str | timedelta, *, reason: str = "", actor: str = ""
) -> Extension:
    """Add time to the running attempt of a job: seconds, ``timedelta``, ``"5m"`` or ISO 8601.

    Additive, granted as far as the total timeout leaves room: the answer says how much
    (``extended_by_ms``) and both new deadlines. Raises :class:`Conflict` when nothing can be granted,
    :class:`InvalidTransition` when the job does not run.
    """
    by_ms = parse_seconds_ms(by, "by")
    who = Actor("api", actor, reason)
    return _operate.extend_timeout([_id(job)], by_ms, actor=who)[0]


def _id(job: JobRef) -> UUID:
    return job.id if isinstance(job, JobRecord) else parse_uuid7(job, "job")
