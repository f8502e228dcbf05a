"""A job and its attempts as a ``TaskResult``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

from django_ojs import exceptions as ends
from django_ojs.domain.arguments import split
from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.states import State
from django_ojs.models import Attempt
from django_ojs.services import databases
from django_ojs.services.enqueue import DROPPED
from django_ojs.store import selectors
from django_ojs.tasks_backend.compat import (
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_ojs.tasks_backend.context import BACKEND
from django_ojs.tasks_backend.handlers import declared

STATUS: Mapping[str, TaskResultStatus] = {
    State.SCHEDULED.value: TaskResultStatus.READY,
    State.PENDING.value: TaskResultStatus.READY,
    State.AVAILABLE.value: TaskResultStatus.READY,
    # Between two attempts a task waits: FAILED would be final.
    State.RETRYABLE.value: TaskResultStatus.READY,
    State.ACTIVE.value: TaskResultStatus.RUNNING,
    State.COMPLETED.value: TaskResultStatus.SUCCESSFUL,
    State.CANCELLED.value: TaskResultStatus.FAILED,
    State.DISCARDED.value: TaskResultStatus.FAILED,
    DROPPED: TaskResultStatus.FAILED,
}
_ENDS: Mapping[str, type[BaseException]] = {
    "timeout": ends.JobTimeout,
    "total_timeout": ends.TotalTimeout,
    "enqueue_ttl_expired": ends.EnqueueExpired,
    "stalled": ends.HeartbeatLost,
    "visibility_timeout": ends.HeartbeatLost,
    "worker_crash": ends.WorkerLost,
    "shutdown": ends.WorkerLost,
    "handler_not_found": ends.UnknownTask,
    "result_unserialisable": TypeError,
    "result_too_large": ValueError,
}
"""The classes of errors that no handler raised."""
_WITHOUT = sorted(LARGE.keys() - {"args", "meta", "result", "error"})
_new: Any = object.__new__
_set: Any = object.__setattr__


class JobTaskError(TaskError):
    """An error of an attempt; its class is looked up among what is loaded."""

    __slots__ = ()

    @property
    def exception_class(self) -> type[BaseException]:
        """The class that was raised, ``JobFailed`` where no such class is loaded here.

        Nothing is imported for it: a row, which a client may have written, does not choose that.
        """
        module, _, name = self.exception_class_path.rpartition(".")
        inner: list[str] = []
        while module and module not in sys.modules:
            inner.insert(0, name)
            module, _, name = module.rpartition(".")
        found = getattr(sys.modules.get(module), name, None)
        for one in inner:
            found = vars(found).get(one) if isinstance(found, type) else None
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
        return ends.JobFailed


def error_of(stored: Mapping[str, Any]) -> TaskError:
    """The error of an attempt, or of a job, as it is stored."""
    kind = str(stored.get("type") or "")
    if kind in _ENDS or "." not in kind:
        kind = _path(_ENDS.get(kind, ends.JobFailed))
    lines = list(stored.get("backtrace", ()))
    if not lines or kind.rpartition(".")[2] not in lines[-1]:
        lines.append(f"{kind}: {stored.get('message', '')}")
    return JobTaskError(exception_class_path=kind, traceback="\n".join(lines) + "\n")


def ended_by(kind: type[BaseException], message: str) -> TaskError:
    """The error of a job that ended without one."""
    return JobTaskError(exception_class_path=_path(kind), traceback=f"{_path(kind)}: {message}\n")


def _path(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def make(
    task: AnyTask,
    job: JobRow,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    started_at: datetime | None = None,
    last_attempted_at: datetime | None = None,
    errors: list[TaskError] | None = None,
    worker_ids: list[str] | None = None,
    return_value: Any = None,
) -> AnyResult:
    """A result of values that are JSON: not normalised again, which an enqueue would wait for."""
    result = _new(TaskResult)
    _set(result, "task", task)
    _set(result, "id", str(job.id))
    _set(result, "status", STATUS[job.state])
    _set(result, "enqueued_at", job.created_at)
    _set(result, "started_at", started_at)
    _set(result, "finished_at", job.finished_at)
    _set(result, "last_attempted_at", last_attempted_at)
    _set(result, "args", args)
    _set(result, "kwargs", kwargs)
    _set(result, "backend", task.backend)
    _set(result, "errors", [] if errors is None else errors)
    _set(result, "worker_ids", [] if worker_ids is None else worker_ids)
    _set(result, "_return_value", return_value)
    found: AnyResult = result
    return found


def restored(known: AnyTask, job: JobRow, alias: str) -> AnyTask:
    """The task as it was enqueued.

    Not validated: the queue may have left ``QUEUES``, or an operator may have changed it, and the
    result can be read all the same. Enqueueing it again validates it.
    """
    task = _new(type(known))
    for one in fields(known):
        _set(task, one.name, getattr(known, one.name))
    _set(task, "queue_name", job.queue)
    _set(task, "priority", job.priority)
    _set(task, "backend", alias)
    # A retry has moved it.
    _set(task, "run_after", job.scheduled_at if job.retry_delay_ms is None else None)
    found: AnyTask = task
    return found


def result_of(result_id: object, alias: str) -> AnyResult:
    """The result of a job. Raises ``TaskResultDoesNotExist``, also where its task is not known."""
    try:
        job_id = UUID(str(result_id))
    except ValueError:
        raise TaskResultDoesNotExist(result_id) from None
    job = selectors.jobs([job_id], without=_WITHOUT, using=databases.of_job(job_id)).get(job_id)
    if job is None:
        raise TaskResultDoesNotExist(result_id)
    return from_job(job, alias)


def from_job(job: JobRow, alias: str, task: AnyTask | None = None) -> AnyResult:
    """The result of a stored job: one query for its attempts, none before the first.

    ``task`` is given by who has it. Raises ``TaskResultDoesNotExist`` where this process knows no task
    of the type.
    """
    meta = job.json("meta")
    args, kwargs = split(job.json("args"), meta)
    if task is None:
        known = declared(job.type)
        if known is None:
            raise TaskResultDoesNotExist(f"{job.id}: this process knows no task {job.type!r}")
        task = restored(known, job, meta.get(BACKEND, alias))
    rows = _attempts(job) if job.lease_seq else []
    errors = [error_of(row.error) for row in rows if row.error]
    last_error = next((row.error for row in reversed(rows)), None)
    if STATUS[job.state] is TaskResultStatus.FAILED:
        errors += _own_error(job, last_error)
    started = [row.started_at for row in rows]
    workers = [row.worker_id or "" for row in rows]
    if job.state == State.ACTIVE and job.started_at is not None:
        started.append(job.started_at)
        workers.append(job.worker_id or "")
    return make(
        task,
        job,
        args,
        kwargs,
        started_at=started[0] if started else None,
        last_attempted_at=started[-1] if started else None,
        errors=errors,
        worker_ids=workers,
        return_value=job.json("result") if job.state == State.COMPLETED else None,
    )


def _attempts(job: JobRow) -> list[Attempt]:
    """Those that ran: what was given back unbegun is none."""
    rows = Attempt.objects.using(databases.of_job(job.id)).filter(job_id=job.id)
    return list(rows.exclude(outcome="released").order_by("lease_seq"))


def _own_error(job: JobRow, of_attempt: Mapping[str, Any] | None) -> list[TaskError]:
    """Why a job ended between its attempts, or without one."""
    if job.state == DROPPED:
        return [ended_by(ends.JobDropped, "enqueue middleware dropped it")]
    if job.state == State.CANCELLED:
        return [ended_by(ends.JobCancelled, "it was cancelled")]
    error = job.json("error")
    if error is None:
        return [ended_by(ends.JobDiscarded, "an operator has given it up")]
    if of_attempt is not None and of_attempt.get("type") == error.get("type"):
        return []
    return [error_of(error)]
