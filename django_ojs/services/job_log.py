"""The logger ``django_ojs.job``: one line for each outcome, from the process that wrote it.

Lines are written when the outermost transaction has committed, in the thread that committed. Nothing
is put together for a line that nobody wants.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from django_ojs.domain.job import Transition
from django_ojs.domain.printable import one_line
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


def after_commit(moves: Sequence[Transition], *, now: datetime, using: str) -> None:
    """Log the outcomes among ``moves`` once they are committed."""
    least = next((level for level in _LEAST if logger.isEnabledFor(level)), None)
    if least is None:
        return
    wanted = [(level, move) for move in moves if (level := _level(move)) >= least]
    if not wanted:
        return

    # A function, not a partial: when it fails Django names it, and fails itself where it cannot.
    def write() -> None:
        for place, (level, move) in enumerate(wanted, 1):
            _write(level, move, now, more_follow=place < len(wanted))

    transaction.on_commit(write, using=using, robust=True)


def _level(move: Transition) -> int:
    """0 for what is no outcome."""
    if move.trigger in _FAILED:
        return logging.ERROR if move.target is State.DISCARDED else logging.WARNING
    return _LEVELS.get(move.trigger, logging.NOTSET)


def _write(level: int, move: Transition, now: datetime, *, more_follow: bool) -> None:
    job = move.job
    attempt = move.changes.get("attempt", job.attempt) if move.trigger is Trigger.CLAIM else job.attempt
    outcome = _WORDS.get(move.trigger) or str(move.target)
    about: dict[str, Any] = {
        "job_id": str(job.id),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": attempt,
        "max_attempts": job.max_attempts,
        "worker_id": move.changes.get("worker_id") or job.worker_id,
        "outcome": outcome,
        "duration": None,
    }
    message = "%s %s %s: queue %s, attempt %d of %d"
    values: list[object] = [job.type, about["job_id"], outcome, job.queue, attempt, job.max_attempts]
    if move.attempt is not None and job.started_at is not None:
        about["duration"] = elapsed(job.started_at, now) / 1000
        message += ", %.3f s"
        values.append(about["duration"])
    if move.trigger in _FAILED:
        error, backtrace = _error(move)
        about["error_type"], about["error_message"] = error["type"], error["message"]
        if move.target is State.RETRYABLE:
            about["retry_delay"] = (move.changes.get("retry_delay_ms") or 0) / 1000
            message += ", again in %.3f s"
            values.append(about["retry_delay"])
        message += ": %s: %s"
        values += [one_line(error["type"]), one_line(error["message"])]
        if backtrace:
            about["traceback"] = "\n".join(backtrace)
            message += "\n%s"
            values.append(_indented(backtrace))
    # As ``logger.log`` does, which also looks for the caller's line: a fifth of the cost.
    record = logger.makeRecord(
        logger.name, level, __file__, 0, message, tuple(values), None, "_write", about
    )
    record.more_follow = more_follow
    logger.handle(record)


def _error(move: Transition) -> tuple[dict[str, Any], list[str]]:
    """Why the job is where it is now, and the traceback of the attempt if there is one."""
    error = json.loads(move.changes["error"])
    attempt = json.loads(move.attempt.error) if move.attempt and move.attempt.error else error
    return error, attempt.get("backtrace") or []


def _indented(backtrace: Sequence[str]) -> str:
    """A traceback whose lines cannot be taken for lines of the log."""
    found = (one_line(line) for part in backtrace for line in part.splitlines())
    return "\n".join(f"    {line}" for line in found)
