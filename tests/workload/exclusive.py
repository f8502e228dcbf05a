"""What must never run twice at a time: its attempts say all the while that they run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from django_ojs.api import JobContext, SoftStop, job
from django_ojs.boottime import boottime
from tests.workload.tools import AT_ONCE, note

HEARTBEAT = 4.0
LIMITS: dict[str, Any] = {
    "timeout": 900,
    "grace_period": 60,
    "heartbeat_timeout": int(HEARTBEAT),
    "retry": {**AT_ONCE, "max_attempts": 3},
    "on_partition": "stop",
}


class Tick(NamedTuple):
    """One line of the file: this attempt of the job ran at this moment (boottime)."""

    job: str
    attempt: int
    moment: float
    pid: int


def ticks(diary: str) -> list[Tick]:
    """Every line of the attempts, in order."""
    text = Path(diary).read_text() if Path(diary).exists() else ""
    lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    return [
        Tick(line[1], int(line[2]), float(line[3]), int(line[4])) for line in lines if line[0] == "tick"
    ]


def _tick(ctx: JobContext, diary: str) -> None:
    note(diary, "tick", ctx.id, ctx.attempt, f"{boottime():.6f}", os.getpid())
    time.sleep(0.01)


@job("exclusive.obedient", **LIMITS)
def obedient(ctx: JobContext, diary: str, until: str) -> None:
    """Ends when it is asked to."""
    note(diary, "started", ctx.attempt, os.getpid())
    try:
        while not Path(until).exists():
            _tick(ctx, diary)
    except SoftStop as stop:
        note(diary, "stopped", stop.reason)
        raise


@job("exclusive.deaf", **LIMITS)
def deaf(ctx: JobContext, diary: str, until: str) -> None:
    """Does not end when it is asked to; another process helps it."""
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    note(diary, "started", ctx.attempt, os.getpid(), helper.pid)
    while not Path(until).exists():
        with suppress(SoftStop):
            _tick(ctx, diary)
    helper.kill()
    helper.wait()
