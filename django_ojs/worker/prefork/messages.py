"""Every message between supervisor, executors and monitors: its name, direction and fields.

A message is a frame (:mod:`~django_ojs.worker.prefork.frames`) whose ``op`` is its name. ``lease``
names the attempt that it is about, so that a late message cannot affect the next job. A field that
would be empty may be left out.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from django_ojs.domain.job import JobRow
from django_ojs.worker.prefork.frames import Frame, text_of


class Message(NamedTuple):
    """A kind of message."""

    sender: str
    receiver: str
    op: str
    fields: tuple[str, ...] = ()


_JOB = (
    *("id", "type", "queue", "attempt", "max_attempts", "meta", "args", "checkpoint"),
    *("progress_data", "workflow_id"),
)
_DONE = ("lease", "took", "left", "ok", "result", "failure", "next")
_ARGUMENTS = ("state", "by_ms", "after", "call")
"""The arguments of the verbs of a call, one each."""
MESSAGES = (
    Message("supervisor", "executor", "share", ("slots",)),
    Message("supervisor", "executor", "run", ("lease", *_JOB, "deadline", "liveness_s")),
    Message("supervisor", "executor", "cancel", ("lease", "reason")),
    Message("supervisor", "executor", "return", ("lease",)),
    Message("supervisor", "executor", "reply", ("number", "value", "error", "message")),
    Message("executor", "supervisor", "mark", ("at",)),
    Message("executor", "supervisor", "ready"),
    Message("executor", "supervisor", "begin", ("lease",)),
    Message("executor", "supervisor", "done", _DONE),
    Message("executor", "supervisor", "returned", ("lease",)),
    Message("executor", "supervisor", "progress", ("lease", "fraction", "message", "data")),
    Message("executor", "supervisor", "heartbeat", ("lease",)),
    Message("executor", "supervisor", "log", ("lease", "lines", "count")),
    Message("executor", "supervisor", "blocked", ("lease", "seconds")),
    Message("executor", "supervisor", "call", (*("lease", "number", "verb"), *_ARGUMENTS)),
    Message("supervisor", "monitor", "kill"),
    Message("supervisor", "monitor", "closed"),
    Message("supervisor", "monitor", "limit", ("at", "latest")),
    Message("monitor", "supervisor", "born", ("pid", "monitor")),
    Message("monitor", "supervisor", "limited", ("at",)),
    Message("monitor", "supervisor", "gone", ("status", "swept")),
)
"""Every message; ``docs/explanation/architecture.md`` describes them."""

READY: Frame = {"op": "ready"}
KILL: Frame = {"op": "kill"}
CLOSED: Frame = {"op": "closed"}


def run(job: JobRow, lease: str, *, deadline: str) -> str:
    """Run this job after those that the executor has. Reuses the JSON text of the row as it is.

    ``liveness_s`` is the interval of the liveness thread in seconds.
    """
    return (
        f'{{"op":"run","lease":"{lease}","id":"{job.id.hex}",'
        f"{_alike(job.type, job.queue, job.heartbeat_timeout_ms)},"
        f'"attempt":{job.attempt},"max_attempts":{job.max_attempts},"meta":{job.meta},'
        f'"args":{job.args},{_found(job)}"deadline":"{deadline}"}}'
    )


def job_id(frame: Frame) -> str:
    """The id of the job in a ``run`` message, where it has no hyphens: to write them takes as long here
    as in the supervisor, which would do it for all executors.
    """
    digits = frame["id"]
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _found(job: JobRow) -> str:
    """What an earlier attempt has left for this one, and the workflow, where there are any."""
    found = ""
    if job.checkpoint is not None:
        found += f'"checkpoint":{job.checkpoint},'
    if job.progress_data is not None:
        found += f'"progress_data":{job.progress_data},'
    if job.workflow_id is not None:
        found += f'"workflow_id":"{job.workflow_id}",'
    return found


@lru_cache(maxsize=256)
def _alike(job_type: str, queue: str, heartbeat_timeout_ms: int) -> str:
    """The part that most jobs of a claim share."""
    liveness_s = min(1.0, heartbeat_timeout_ms / 4000)
    return f'"type":{json.dumps(job_type)},"queue":{json.dumps(queue)},"liveness_s":{liveness_s}'


def share(slots: int) -> Frame:
    """Run coroutines only, so many at a time; the first message to such an executor."""
    return {"op": "share", "slots": slots}


def cancel(lease: str, reason: str) -> Frame:
    """Stop the handler softly, or give the job back if it has not begun."""
    return {"op": "cancel", "lease": lease, "reason": reason}


def give_back(lease: str) -> Frame:
    """Give the job back if it has not begun."""
    return {"op": "return", "lease": lease}


def reply(number: int, value: object) -> Frame:
    """Answer a call."""
    return {"op": "reply", "number": number, "value": value}


def refusal(number: int, error: str, message: str) -> Frame:
    """Answer a call that failed; ``error`` is ``lost``, ``conflict`` or ``trouble``."""
    return {"op": "reply", "number": number, "value": None, "error": error, "message": message}


def mark(at: int) -> str:
    """What has been left in the journal before this place comes first."""
    return f'{{"op":"mark","at":{at}}}'


def begin(lease: str) -> str:
    """The handler starts."""
    return f'{{"op":"begin","lease":"{lease}"}}'


def done(lease: str, took: float, left: list[str], outcome: Frame) -> Frame | str:
    """The handler has ended. A success is written as text, in a fifth of the time.

    ``took`` is in seconds. ``left`` is what the handler left behind; its executor is then replaced.
    """
    if left or not outcome["ok"]:
        return {"op": "done", "lease": lease, "took": took, "left": left, **outcome}
    result = "" if outcome["result"] is None else f',"result":{text_of(outcome["result"])}'
    return f'{{"op":"done","lease":"{lease}","took":{took},"ok":true{result}}}'


def followed(ended: Frame | str, lease: str) -> Frame | str:
    """What :func:`done` has made, and the handler of the next job starts: one frame takes half the time
    of two.
    """
    if isinstance(ended, str):
        return f'{ended[:-1]},"next":"{lease}"}}'
    return {**ended, "next": lease}


def returned(lease: str) -> Frame:
    """The job is given back unbegun."""
    return {"op": "returned", "lease": lease}


def progress(lease: str, fraction: float, message: str, data: str | None) -> Frame:
    """The progress of the handler: ``fraction`` from 0 to 1, ``data`` as JSON text."""
    return {"op": "progress", "lease": lease, "fraction": fraction, "message": message, "data": data}


def heartbeat(lease: str) -> Frame:
    """A sign of life that the handler sends itself."""
    return {"op": "heartbeat", "lease": lease}


def log(lease: str, lines: list[str], count: int) -> Frame:
    """What the handler has logged since the last time: the last lines of so many."""
    return {"op": "log", "lease": lease, "lines": lines, "count": count}


def blocked(lease: str, seconds: float) -> Frame:
    """This handler holds up the others in its event loop, for so many seconds since the last time."""
    return {"op": "blocked", "lease": lease, "seconds": seconds}


def call(lease: str, number: int, verb: str, **arguments: Any) -> Frame:
    """The handler waits for the reply: ``checkpoint`` with ``state``, ``extend`` with ``by_ms``,
    ``results`` of its workflow with ``after``, ``add`` to its workflow with ``call``.
    """
    return {"op": "call", "lease": lease, "number": number, "verb": verb, **arguments}


def born(pid: int, monitor: int) -> Frame:
    """The executor runs."""
    return {"op": "born", "pid": pid, "monitor": monitor}


def limit(at: float | None, latest: float | None) -> Frame:
    """Kill the executor at this time (boottime); the system does it at ``latest``. ``None``: never."""
    return {"op": "limit", "at": at, "latest": latest}


def limited(at: float | None) -> Frame:
    """The limit is set."""
    return {"op": "limited", "at": at}


def gone(status: int | None, swept: int) -> Frame:
    """Nothing is left of the executor; ``swept`` processes were killed with it."""
    return {"op": "gone", "status": status, "swept": swept}
