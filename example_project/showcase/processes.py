"""The demo's own processes: started, stopped, and looked for when they should be gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from django.conf import settings

MARK = "EXAMPLE_DEMO"


def poll(predicate: Callable[[], object], seconds: float, step: float = 0.1) -> bool:
    """Whether ``predicate`` became true within ``seconds``."""
    end = time.monotonic() + seconds  # noqa: TID251
    while not predicate():
        if time.monotonic() >= end:  # noqa: TID251
            return False
        time.sleep(step)  # noqa: TID251
    return True


class Processes:
    """Commands of this project in processes of their own, which all carry the same mark.

    The mark is in the environment, so that whatever they start carries it too.
    """

    def __init__(self, mark: str, logs: Path) -> None:
        self._mark = mark
        self._logs = logs
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``manage.py <arguments>``, its output in ``<logs>/<name>.log``."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with open(self._logs / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", *arguments],
                cwd=settings.BASE_DIR,
                env={**os.environ, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append((name, process))
        return process

    def ended(self) -> list[str]:
        """The names of those that are not running."""
        return [name for name, process in self._started if process.poll() is not None]

    def forget(self, name: str) -> None:
        """Look no more after those of that name which have ended."""
        self._started = [(n, p) for n, p in self._started if n != name or p.poll() is None]

    def stop(self, seconds: float = 15) -> list[str]:
        """SIGTERM to those that run, SIGKILL to those that do not obey; what went wrong."""
        running = [(name, process) for name, process in self._started if process.poll() is None]
        for _, process in running:
            process.send_signal(signal.SIGTERM)
        found = []
        for name, process in running:
            try:
                code = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                found.append(f"{name} did not stop")
            else:
                if code not in (0, -signal.SIGTERM):
                    found.append(f"{name} stopped with exit code {code}, see its log")
        return found

    def alive(self, command: str = "") -> list[str]:
        """Processes with the mark whose command line begins with ``command`` (Linux only)."""
        mark = f"{MARK}={self._mark}".encode()
        return [line for line in _with_environment(mark) if line.startswith(command)]


def _with_environment(mark: bytes) -> Iterable[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) == os.getpid():
                continue
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        # A process that has ended and is not yet waited for has neither.
        if command:
            yield f"{command.strip()} (process {folder.name})"
