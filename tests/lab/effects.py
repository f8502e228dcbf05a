"""The file to which handlers append what they did; nothing else tells the judge what was executed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

VARIABLE = "OJS_LAB_EFFECTS"
"""Where the path of the file is found."""


class Effect(NamedTuple):
    """One line: ``what`` is ``start`` or ``done``, ``moment`` seconds since the boot."""

    job: str
    attempt: int
    what: str
    pid: int
    moment: float


def now() -> float:
    """Seconds since the boot: the same clock in every process, and nobody sets it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write(job: object, attempt: int, what: str) -> None:
    """Append a line, whole, whoever else appends."""
    line = f"{job} {attempt} {what} {os.getpid()} {now():.6f}\n"
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read(path: Path) -> list[Effect]:
    """Every line."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        job, attempt, what, pid, moment = line.split()
        found.append(Effect(job, int(attempt), what, int(pid), float(moment)))
    return found
