"""The signals of ``django.tasks``, from ours."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.dispatch import Signal

from django_ojs import signals as ours
from django_ojs.domain.job import LARGE
from django_ojs.services import databases
from django_ojs.signals import EventRecord
from django_ojs.store import selectors
from django_ojs.tasks_backend import results
from django_ojs.tasks_backend.compat import (
    AnyResult,
    TaskResultStatus,
    log_task_enqueued,
    log_task_finished,
    log_task_started,
    task_enqueued,
    task_finished,
    task_started,
)
from django_ojs.tasks_backend.compat import logger as tasks_logger
from django_ojs.tasks_backend.context import BACKEND
from django_ojs.tasks_backend.handlers import declared

_LOGGING = {id(one) for one in (log_task_enqueued, log_task_started, log_task_finished)}
"""Receivers of Django's own: they log what the worker logs."""
_set: Any = object.__setattr__
_offered = False


def heard(signal: Signal) -> bool:
    """Whether a signal of tasks has a receiver beside the one that logs."""
    # Read as Django keeps them: the first item of an entry has the ids of receiver and sender.
    return any(entry[0][0] not in _LOGGING for entry in signal.receivers)


def enqueued(sender: type, result: AnyResult) -> None:
    """Send ``task_enqueued``: in the caller's transaction, as documented for the signal."""
    if heard(task_enqueued) or tasks_logger.isEnabledFor(logging.DEBUG):
        task_enqueued.send_robust(sender, task_result=result)


def offer() -> None:
    """Pass on our signals from the moment at which somebody listens to those of tasks."""
    global _offered
    if _offered:
        return
    _offered = True
    ours.job_started.connect_when(lambda: heard(task_started), started)
    for signal in (ours.job_completed, ours.job_discarded, ours.job_cancelled):
        signal.connect_when(lambda: heard(task_finished), finished)


def started(event: EventRecord, **kwargs: Any) -> None:
    """Send ``task_started``: an attempt has begun; after the commit that says so."""
    result = _result(event) if heard(task_started) else None
    if result is not None:
        # It may have ended meanwhile.
        _set(result, "status", TaskResultStatus.RUNNING)
        _set(result, "finished_at", None)
        task_started.send_robust(_sender(result), task_result=result)


def finished(event: EventRecord, **kwargs: Any) -> None:
    """Send ``task_finished``: the task will not run again; after the commit that says so."""
    result = _result(event) if heard(task_finished) else None
    if result is not None and result.is_finished:
        task_finished.send_robust(_sender(result), task_result=result)


def _sender(result: AnyResult) -> type:
    return type(result.task.get_backend())


def _result(event: EventRecord) -> AnyResult | None:
    """The result that an event is about, if it is about one."""
    task = declared(str(event.data["job_type"]))
    if task is None:
        return None
    job_id = UUID(str(event.data["job_id"]))
    without = sorted(LARGE.keys() - {"args", "meta", "result", "error"})
    job = selectors.jobs([job_id], without=without, using=databases.of_job(job_id)).get(job_id)
    if job is None:
        return None
    return results.from_job(job, job.json("meta").get(BACKEND, task.backend))
