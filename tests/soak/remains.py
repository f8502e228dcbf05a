"""Processes that are still there when everybody was told to go."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support import alive


def leftovers(run: str, spared: set[int], *, alone: bool) -> dict[int, str]:
    """Processes that are still there: of this run or, in a namespace of our own, of anybody."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        if pid == os.getpid() or pid in spared or not alive(pid):
            continue
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if alone or f"OJS_SOAK_RUN={run}".encode() in environment.split(b"\0"):
            found[pid] = command[:80]
    return found


def end_leftovers(run: str) -> None:
    """Where no namespace does it: kill what still carries the mark of this run."""
    for pid in leftovers(run, set(), alone=False):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
