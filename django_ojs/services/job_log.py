"""The logger ``django_ojs.job``: one line for each outcome, from the process that wrote it.

Lines are written when the outermost transaction has committed, in the thread that committed. Nothing is
formatted for a level that is not enabled.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from django_ojs.domain.job import Transition
from django_ojs.domain.printable import one_line
from django_ojs.domain.retry import UNLIMITED
from django_ojs.domain.states import State, Trigger
from django_ojs.domain.timeouts import elapsed

logger = logging.getLogger("django_ojs.job")

_LEVELS = {
    Trigger.CLAIM: logging.DEBUG,
    Trigger.RELEASE: logging.DEBUG,
    Trigger.ACK: logging.INFO,
    Trigger.REQUEUE: logging.INFO,
    Trigger.CANCEL: logging.INFO,
    Trigger.DISCARD: logging.INFO,
}
"""The levels of what a worker or an operator decided."""
_FAILED = frozenset(
    {
        Trigger.FAIL,
        Trigger.TIMEOUT,
        Trigger.STALL,
        Trigger.LAPSE,
        Trigger.EXPIRE,
        Trigger.TOTAL_TIMEOUT,
    }
)
_WORDS = {
    Trigger.CLAIM: "started",
    Trigger.RELEASE: "given back unbegun",
    Trigger.REQUEUE: "given back",
}
_LEAST = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def after_commit(transitions: Sequence[Transition], *, now: datetime, using: str) -> None:
    """Log the outcomes among ``transitions`` once they are committed."""
    least = next((level for level in _LEAST if logger.isEnabledFor(level)), None)
    if least is None:
        return
    wanted = [
        (level, transition) for transition in transitions if (level := _level(transition)) >= least
    ]
    if not wanted:
        return

    # A function, not a partial: when it fails Django names it, and fails itself where it cannot.
    def write() -> None:
        for record in _records(wanted, now):
            logger.handle(record)

    transaction.on_commit(write, using=using, robust=True)


def _level(transition: Transition) -> int:
    """0 for what is no outcome."""
    if transition.trigger in _FAILED:
        return logging.ERROR if transition.target is State.DISCARDED else logging.WARNING
    return _LEVELS.get(transition.trigger, logging.NOTSET)


def _records(wanted: Sequence[tuple[int, Transition]], now: datetime) -> Iterator[logging.LogRecord]:
    """The log records of one commit. What they share, as time and thread, is found out once."""
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, "", (), None, "_records")
    make, common = type(record).__new__, vars(record)
    names = {level: logging.getLevelName(level) for level, _ in wanted}
    last = len(wanted) - 1
    for place, (level, transition) in enumerate(wanted):
        message, values, about = _line(level, transition, now)
        record = make(type(record))
        record.__dict__ = {
            **common,
            "levelno": level,
            "levelname": names[level],
            "msg": message,
            "args": values,
            "more_follow": place < last,
            **about,
        }
        yield record


def _line(
    level: int, transition: Transition, now: datetime
) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Message, what stands in it, and ``extra``."""
    job = transition.job
    attempt = (
        transition.changes.get("attempt", job.attempt)
        if transition.trigger is Trigger.CLAIM
        else job.attempt
    )
    about: dict[str, Any] = {
        "job_id": str(job.id),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": attempt,
        "max_attempts": job.max_attempts,
        "worker_id": transition.changes.get("worker_id") or job.worker_id,
        "outcome": _WORDS.get(transition.trigger) or transition.target.value,
        "duration": None,
    }
    message = "%s %s %s: queue %s, attempt %d"
    values: tuple[object, ...] = (job.type, about["job_id"], about["outcome"], job.queue, attempt)
    if job.max_attempts != UNLIMITED:
        message += " of %d"
        values += (job.max_attempts,)
    if transition.attempt is not None and job.started_at is not None:
        about["duration"] = elapsed(job.started_at, now) / 1000
        message += ", %.3f s"
        values += (about["duration"],)
    if level >= logging.WARNING:
        error, backtrace = _error(transition)
        about["error_type"], about["error_message"] = error["type"], error["message"]
        if transition.target is State.RETRYABLE:
            about["retry_delay"] = (transition.changes.get("retry_delay_ms") or 0) / 1000
            message += ", again in %.3f s"
            values += (about["retry_delay"],)
        message += ": %s: %s"
        values += (one_line(error["type"]), one_line(error["message"]))
        if backtrace:
            about["traceback"] = "\n".join(backtrace)
            message += "\n%s"
            values += (_indented(backtrace),)
    return message, values, about


def _error(transition: Transition) -> tuple[dict[str, Any], list[str]]:
    """The error of the job, and the traceback of the attempt if it has one."""
    error = json.loads(transition.changes["error"])
    attempt = (
        json.loads(transition.attempt.error)
        if transition.attempt and transition.attempt.error
        else error
    )
    return error, attempt.get("backtrace") or []


def _indented(backtrace: Sequence[str]) -> str:
    """A traceback, indented so that its lines cannot be mistaken for log records."""
    found = (one_line(line) for part in backtrace for line in part.splitlines())
    return "\n".join(f"    {line}" for line in found)
