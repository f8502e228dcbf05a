"""What happens within a process of the product, by hooks of Django and by signals of the system.

Each is armed by a file whose path is in the environment, so that the lab chooses the moment.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db.backends.signals import connection_created

STOP, HOLD_BEAT, SLOW_RECEIVER = "OJS_LAB_STOP", "OJS_LAB_HOLD_BEAT", "OJS_LAB_SLOW_RECEIVER"
BURST = 0.05
"""Statements closer together than this belong to one pass."""
SLOW_SECONDS = 25.0

Execute = Callable[[str, Any, bool, dict[str, Any]], Any]


class StopAfter:
    """Stops its process after the n-th statement of a pass, once; the file says n."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed
        self._count = 0
        self._last = 0.0

    def __call__(
        self, execute: Execute, sql: str, parameters: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        """Execute, then perhaps stop."""
        began = time.monotonic()
        self._count = 1 if began - self._last > BURST else self._count + 1
        try:
            return execute(sql, parameters, many, context)
        finally:
            self._last = time.monotonic()
            if self._armed.exists() and self._count == int(self._armed.read_text()):
                self._armed.with_suffix(".at").write_text(sql[:200])
                self._armed.unlink()
                os.kill(os.getpid(), signal.SIGSTOP)


class HoldBeat:
    """Keeps one beat of running jobs back, already stamped, for as long as the file exists."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed

    def __call__(
        self, execute: Execute, sql: str, parameters: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        """Wait, then execute."""
        words = ("UPDATE", "django_ojs_job", "heartbeat_at")
        beat = all(word in sql for word in words) and "lease_seq" not in sql
        if beat and self._armed.exists():
            self._armed.with_suffix(".held").touch()
            until = time.monotonic() + 60
            while self._armed.exists() and time.monotonic() < until:
                time.sleep(0.01)
        return execute(sql, parameters, many, context)


def install() -> None:
    """What the environment names."""
    for variable, kind in ((STOP, StopAfter), (HOLD_BEAT, HoldBeat)):
        if path := os.environ.get(variable):
            _wrap(kind(Path(path)))
    if path := os.environ.get(SLOW_RECEIVER):
        _receive_slowly(Path(path))


def _wrap(wrapper: Any) -> None:
    def connected(connection: Any, **_: Any) -> None:
        if wrapper not in connection.execute_wrappers:
            connection.execute_wrappers.append(wrapper)

    connection_created.connect(connected, weak=False)


def _receive_slowly(armed: Path) -> None:
    """One receiver of one event takes as long as an HTTP call that hangs."""
    from django_ojs import signals

    lock = threading.Lock()

    def slow(**_: Any) -> None:
        with lock:
            chosen = armed.exists()
            armed.unlink(missing_ok=True)
        if chosen:
            time.sleep(SLOW_SECONDS)

    signals.job_completed.connect(slow, weak=False)
