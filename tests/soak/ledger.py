"""What happened, in a file that no fault touches: one line an entry, each one write.

A line that was appended is there whatever becomes of its writer, and lines of different processes
do not mix. A process that is killed in the middle of a write (the kernel stops at the end of a page)
leaves half a line, which is no entry: every line begins by ending the one before. Times are
nanoseconds on a clock that never jumps.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "OJS_SOAK_LEDGER"
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Entry(NamedTuple):
    """One line: when, by which process, what."""

    ns: int
    pid: int
    event: str
    data: dict[str, Any]


def now_ns() -> int:
    """The time of an entry made now."""
    return time.clock_gettime_ns(_CLOCK)


def write(event: str, **data: Any) -> None:
    """Append an entry to the file that the environment names."""
    entry = json.dumps([now_ns(), os.getpid(), event, data], separators=(",", ":"))
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, f"\n{entry}\n".encode())
    finally:
        os.close(file)


class Reader:
    """Reads a ledger from its beginning, as far as there are whole lines; again for what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def __iter__(self) -> Iterator[Entry]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            yield Entry(*fields)
