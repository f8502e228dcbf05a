"""The worker processes of a system: started, looked at through /proc, ended with all below them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_TICK = os.sysconf("SC_CLK_TCK")


class Workers:
    """Processes that this one started, each in a session of its own."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self.peak_mib = 0.0
        """The most memory that one of those started here, and stopped since, has held."""

    def start(self, commands: Sequence[Sequence[str]], *, folder: Path, log: IO[bytes]) -> float:
        """Start them; the moment in seconds of the monotonic clock."""
        began = time.monotonic()
        for command in commands:
            self._started.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return began

    def pids(self) -> list[int]:
        """Every living process that was started, and those below it."""
        found: list[int] = []
        for worker in self._started:
            if worker.poll() is None:
                found += [worker.pid, *below(worker.pid)]
        return found

    def ended(self) -> list[int]:
        """Exit codes of those that have ended by themselves."""
        return [code for worker in self._started if (code := worker.poll()) is not None]

    def stop(self, seconds: float = 10.0) -> None:
        """Ask with SIGTERM, and kill what has not ended in time."""
        known = self.pids()
        self.peak_mib = max([0.0, *(_peak_mib(one.pid) for one in self._started if one.poll() is None)])
        for worker in self._started:
            if worker.poll() is None:
                worker.terminate()
        until = time.monotonic() + seconds
        for worker in self._started:
            try:
                worker.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
        self._kill(known)

    def kill(self) -> None:
        """Kill all of them at once, and forget them."""
        self._kill(self.pids())

    def _kill(self, known: Sequence[int]) -> None:
        for worker in self._started:
            if worker.poll() is None:
                os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        sessions = {worker.pid for worker in self._started}
        for pid in known:
            if _session(pid) in sessions:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self._started.clear()


def _peak_mib(pid: int) -> float:
    """The most that has been resident of a process; 0 when it has just ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def pss_mib(pids: Sequence[int]) -> float:
    """Memory of processes in MiB; what they share is counted once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time that the threads of processes have used so far: to the nanosecond, since that of
    a process that rests is a few ticks.
    """
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def spent_seconds(pids: Sequence[int]) -> float:
    """The same, with that of their children which have ended."""
    total = 0
    for pid in pids:
        try:
            total += sum(map(int, _stat(pid)[11:15]))
        except OSError:
            continue  # it has ended, and counts for its parent
    return total / _TICK


def parent_of(pid: int) -> int:
    """The process that started another."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, group, session, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _session(pid: int) -> int | None:
    """The session of a process, which a child with a session of its own has left."""
    try:
        return int(_stat(pid)[3])
    except OSError:
        return None


def below(pid: int) -> list[int]:
    """Every living process below another."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _stat(int(entry.name))
            except OSError:
                continue
            if fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
