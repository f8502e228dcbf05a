"""Every message between supervisor, executors and monitors: its name, direction and fields.

A message is a frame (:mod:`~django_ojs.worker.prefork.frames`) whose ``op`` is its name. ``lease``
names the attempt that it is about, so that a late one cannot reach the next job.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from django_ojs.domain.job import JobRecord
from django_ojs.worker.prefork.frames import Frame, text_of


class Message(NamedTuple):
    """A kind of message."""

    sender: str
    receiver: str
    op: str
    fields: tuple[str, ...] = ()


_JOB = ("id", "type", "queue", "attempt", "max_attempts", "meta", "args", "checkpoint")
MESSAGES = (
    Message("supervisor", "executor", "run", ("lease", *_JOB, "deadline", "pulse")),
    Message("supervisor", "executor", "cancel", ("lease", "reason")),
    Message("supervisor", "executor", "return", ("lease",)),
    Message("supervisor", "executor", "reply", ("number", "value", "error", "message")),
    Message("executor", "supervisor", "ready"),
    Message("executor", "supervisor", "begin", ("lease",)),
    Message("executor", "supervisor", "done", ("lease", "took", "left", "ok", "result", "failure")),
    Message("executor", "supervisor", "returned", ("lease",)),
    Message("executor", "supervisor", "progress", ("lease", "fraction", "message", "data")),
    Message("executor", "supervisor", "heartbeat", ("lease",)),
    Message("executor", "supervisor", "call", ("lease", "number", "verb", "state", "by_ms")),
    Message("supervisor", "monitor", "kill"),
    Message("supervisor", "monitor", "closed"),
    Message("monitor", "supervisor", "born", ("pid", "monitor")),
    Message("monitor", "supervisor", "gone", ("status", "swept")),
)
"""All of them; ``docs/explanation/architecture.md`` says what each means."""

READY: Frame = {"op": "ready"}
KILL: Frame = {"op": "kill"}
CLOSED: Frame = {"op": "closed"}


def run(job: JobRecord, lease: str, *, deadline: str) -> str:
    """Run this job after those that the executor has; made around JSON texts as they are stored.

    ``pulse`` is how many seconds apart the liveness thread writes.
    """
    return (
        f'{{"op":"run","lease":"{lease}","id":"{job.id}",{_kind(job.type, job.queue)},'
        f'"attempt":{job.attempt},"max_attempts":{job.max_attempts},"meta":{job.meta},'
        f'"args":{job.args},"checkpoint":{job.checkpoint or "null"},'
        f'"deadline":"{deadline}",'
        f'"pulse":{min(1.0, job.heartbeat_timeout_ms / 4000)}}}'
    )


@lru_cache(maxsize=256)
def _kind(job_type: str, queue: str) -> str:
    return f'"type":{json.dumps(job_type)},"queue":{json.dumps(queue)}'


def cancel(lease: str, reason: str) -> Frame:
    """Stop the handler softly, or give the job back if it has not begun."""
    return {"op": "cancel", "lease": lease, "reason": reason}


def give_back(lease: str) -> Frame:
    """Give the job back if it has not begun."""
    return {"op": "return", "lease": lease}


def reply(number: int, value: object) -> Frame:
    """The answer to a call."""
    return {"op": "reply", "number": number, "value": value}


def refusal(number: int, error: str, message: str) -> Frame:
    """A call that failed; ``error`` is ``lost``, ``conflict`` or ``trouble``."""
    return {"op": "reply", "number": number, "value": None, "error": error, "message": message}


def begin(lease: str) -> str:
    """The handler starts."""
    return f'{{"op":"begin","lease":"{lease}"}}'


def done(lease: str, took: float, left: list[str], outcome: Frame) -> Frame | str:
    """The handler has ended; as text where all is well, which takes a fifth of the time.

    ``took`` is in seconds; ``left`` is what the handler left behind, for which its executor is
    replaced.
    """
    if left or not outcome["ok"]:
        return {"op": "done", "lease": lease, "took": took, "left": left, **outcome}
    result = "null" if outcome["result"] is None else text_of(outcome["result"])
    return f'{{"op":"done","lease":"{lease}","took":{took},"left":[],"ok":true,"result":{result}}}'


def returned(lease: str) -> Frame:
    """Given back unbegun."""
    return {"op": "returned", "lease": lease}


def progress(lease: str, fraction: float, message: str, data: str | None) -> Frame:
    """How far the handler is, from 0 to 1; ``data`` is JSON text."""
    return {"op": "progress", "lease": lease, "fraction": fraction, "message": message, "data": data}


def heartbeat(lease: str) -> Frame:
    """A sign of life of a handler that beats itself."""
    return {"op": "heartbeat", "lease": lease}


def call(lease: str, number: int, verb: str, **arguments: Any) -> Frame:
    """The handler waits for the reply: ``checkpoint`` with ``state``, or ``extend`` with ``by_ms``."""
    return {"op": "call", "lease": lease, "number": number, "verb": verb, **arguments}


def born(pid: int, monitor: int) -> Frame:
    """The executor runs."""
    return {"op": "born", "pid": pid, "monitor": monitor}


def gone(status: int | None, swept: int) -> Frame:
    """Nothing is left of the executor; ``swept`` processes were killed with it."""
    return {"op": "gone", "status": status, "swept": swept}
