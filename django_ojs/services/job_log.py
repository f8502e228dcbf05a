"""The logger ``django_ojs.job``: one line for each outcome, from the process that wrote it.

Lines are written when the outermost transaction has committed, in the thread that committed. Nothing is
formatted for a level that is not enabled.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from django.db import transaction

from django_ojs.domain.job import JobRow, Transition
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
    least = _least()
    if least is None:
        return
    wanted = [
        (level, transition) for transition in transitions if (level := _level(transition)) >= least
    ]
    if wanted:
        _write(lambda: [_line(level, transition, now) for level, transition in wanted], using)


def completed(jobs: Sequence[JobRow], *, now: datetime, using: str) -> None:
    """Log that these attempts have succeeded, once that is committed."""
    if jobs and is_enabled(Trigger.ACK):
        level, outcome = _LEVELS[Trigger.ACK], State.COMPLETED.value
        _write(
            lambda: [
                Line(level, _head(job, outcome, job.attempt, now), job, outcome, now) for job in jobs
            ],
            using,
        )


def is_enabled(trigger: Trigger) -> bool:
    """Whether what this trigger does is logged."""
    least, level = _least(), _LEVELS.get(trigger, logging.ERROR)
    return least is not None and least <= level


class Line(NamedTuple):
    """One line: its text, and what its record is made from where somebody wants one.

    ``ended_at`` is when the attempt ended, ``None`` where none has; ``more`` are other attributes.
    """

    level: int
    message: str
    job: JobRow
    outcome: str
    ended_at: datetime | None
    more: Mapping[str, object] = {}

    @property
    def about(self) -> dict[str, object]:
        """The attributes that a record gets by ``extra``."""
        job = self.job
        return {
            "job_id": str(job.id),
            "job_type": job.type,
            "queue": job.queue,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "worker_id": job.worker_id,
            "outcome": self.outcome,
            "duration": None if self.ended_at is None else _duration(job.started_at, self.ended_at),
            **self.more,
        }


class TextSink(Protocol):
    """A handler that takes lines as text: a record of each costs several times as much."""

    def takes_text(self, level: int) -> bool:
        """Whether it would write no more of a record of this level than its message."""

    def write_lines(self, lines: Sequence[tuple[int, str]]) -> None:
        """Write lines of one moment, each with its level."""


def _least() -> int | None:
    return next((level for level in _LEAST if logger.isEnabledFor(level)), None)


def _write(made: Callable[[], Sequence[Line]], using: str) -> None:
    # A function, not a partial: when it fails Django names it, and fails itself where it cannot.
    def write() -> None:
        lines = made()
        sink = _sink()
        if sink is not None and all(map(sink.takes_text, {line.level for line in lines})):
            sink.write_lines([line[:2] for line in lines])
            return
        for record in _records(lines):
            logger.handle(record)

    transaction.on_commit(write, using=using, robust=True)


def _sink() -> TextSink | None:
    """The only one that sees our records, if it takes text and nothing filters them."""
    handlers: list[Any] = []
    found: logging.Logger | None = logger
    while found is not None:
        handlers += found.handlers
        found = found.parent if found.propagate else None
    if len(handlers) != 1 or logger.filters or handlers[0].filters:
        return None
    if not hasattr(handlers[0], "takes_text"):
        return None
    sink: TextSink = handlers[0]
    return sink


def _level(transition: Transition) -> int:
    """0 for what is no outcome."""
    if transition.trigger in _FAILED:
        return logging.ERROR if transition.target is State.DISCARDED else logging.WARNING
    return _LEVELS.get(transition.trigger, logging.NOTSET)


def _records(lines: Sequence[Line]) -> Iterator[logging.LogRecord]:
    """The log records of one commit. What they share, as time and thread, is found out once."""
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, "", (), None, "_records")
    make, common = type(record).__new__, vars(record)
    names = {line.level: logging.getLevelName(line.level) for line in lines}
    last = len(lines) - 1
    for place, line in enumerate(lines):
        record = make(type(record))
        record.__dict__ = {
            **common,
            "levelno": line.level,
            "levelname": names[line.level],
            "msg": line.message,
            "more_follow": place < last,
            **line.about,
        }
        yield record


def _head(job: JobRow, outcome: str, attempt: int, ended_at: datetime | None) -> str:
    rest = _rest(outcome, job.queue, attempt, job.max_attempts, job.started_at, ended_at)
    return f"{job.type} {job.id} {rest}"


@lru_cache(maxsize=256)
def _rest(
    outcome: str,
    queue: str,
    attempt: int,
    max_attempts: int,
    started_at: datetime | None,
    ended_at: datetime | None,
) -> str:
    """What most jobs that end in one transaction share."""
    of = "" if max_attempts == UNLIMITED else f" of {max_attempts}"
    took = "" if ended_at is None else f", {_duration(started_at, ended_at):.3f} s"
    return f"{outcome}: queue {queue}, attempt {attempt}{of}{took}"


def _duration(started_at: datetime | None, ended_at: datetime) -> float:
    return elapsed(started_at or ended_at, ended_at) / 1000


def _line(level: int, transition: Transition, now: datetime) -> Line:
    job = transition.job
    if transition.trigger is Trigger.CLAIM:
        job = transition.written
    outcome = _WORDS.get(transition.trigger) or transition.target.value
    ended_at = None if transition.attempt is None or job.started_at is None else now
    message = _head(job, outcome, job.attempt, ended_at)
    if level < logging.WARNING:
        return Line(level, message, job, outcome, ended_at)
    error, backtrace = _error(transition)
    more: dict[str, object] = {"error_type": error["type"], "error_message": error["message"]}
    if transition.target is State.RETRYABLE:
        more["retry_delay"] = delay = (transition.changes.get("retry_delay_ms") or 0) / 1000
        message += f", again in {delay:.3f} s"
    message += f": {one_line(error['type'])}: {one_line(error['message'])}"
    if backtrace:
        more["traceback"] = "\n".join(backtrace)
        message += f"\n{_indented(backtrace)}"
    return Line(level, message, job, outcome, ended_at, more)


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
