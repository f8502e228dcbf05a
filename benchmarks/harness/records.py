"""What the handlers of every system do, and the record they leave.

A handler appends (when it began, its number, its process) to a file: one write of 24 bytes. Rates,
latencies, losses and double runs are counted from that, the same way for all.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DIES, HANGS, HANGS_IN_C = -101, -102, -103
"""Numbers of jobs that do not end: one until it is started again, the others never."""
_RECORD = struct.Struct("ddd")
_VARIABLE = "BENCH_RECORD"

_file: int | None = None


class Start(NamedTuple):
    """A handler began: ``when`` in seconds of the machine's monotonic clock."""

    when: float
    number: int
    pid: int


def note(number: int) -> None:
    """What a handler of nothing does."""
    global _file
    if _file is None:
        _file = os.open(os.environ[_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_file, _RECORD.pack(time.monotonic(), number, os.getpid()))
    if number <= DIES:
        _stay(number)


def _stay(number: int) -> None:
    if number == HANGS_IN_C:
        # One call that looks for no signal.
        sum(itertools.repeat(0, 10**15))
    while number == HANGS:
        pass
    starts = Path(os.environ[_VARIABLE]).read_bytes()
    if sum(int(start) == number for _, start, _ in _RECORD.iter_unpack(starts)) == 1:
        time.sleep(3600)


class Records:
    """What the handlers of one measurement noted; processes started later find the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        path.touch()
        os.environ[_VARIABLE] = str(path)

    def count(self) -> int:
        """How many handlers have begun."""
        return self.path.stat().st_size // _RECORD.size

    def read(self) -> list[Start]:
        """Every beginning, in the order of the file."""
        return list(self.starts())

    def starts(self) -> Iterator[Start]:
        """The same one by one, for there may be millions."""
        data = self.path.read_bytes()
        data = data[: len(data) // _RECORD.size * _RECORD.size]
        for when, number, pid in _RECORD.iter_unpack(data):
            yield Start(when, int(number), int(pid))

    def wait(self, count: int, seconds: float) -> None:
        """Until so many have begun. Raises ``TimeoutError``."""
        until = time.monotonic() + seconds
        while self.count() < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.count()} of {count} jobs began within {seconds:g} s")
            time.sleep(0.005)
