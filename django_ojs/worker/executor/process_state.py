"""Detect what a handler has changed in its process: an executor that differs is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any, NamedTuple

from django_ojs import clock
from django_ojs.worker.executor.signal_calls import getsignal

try:
    import resource
except ImportError:  # not on Windows
    _LIMITS: tuple[int, ...] = ()
else:
    _LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))

_NAMES = (
    "HUP",
    "INT",
    "QUIT",
    "PIPE",
    "ALRM",
    "TERM",
    "CHLD",
    "USR2",
    "VTALRM",
    "PROF",
    "XCPU",
    "XFSZ",
)
_SIGNALS = tuple(getattr(signal, f"SIG{name}") for name in _NAMES if hasattr(signal, f"SIG{name}"))
"""Those that a handler may use. The executor's own signal is set again before every job."""

_AUDITED = frozenset({"resource.setrlimit", "resource.prlimit", "os.chdir"})
"""Audit events of state that takes a system call to read."""
_READ_EVERY = 0.1
"""Seconds after which all state is read: code in C may change it without an audit event."""


class ProcessState(NamedTuple):
    """State of the process that a handler may change and nothing restores."""

    resource_limits: tuple[tuple[int, int], ...]
    working_folder: str | None
    umask: int
    signal_handlers: tuple[Any, ...]

    def differs_from(self, before: ProcessState) -> list[str]:
        """Name what has changed."""
        if self == before:
            return []
        return [
            name.replace("_", " ")
            for name, old, new in zip(self._fields, before, self, strict=True)
            if old != new
        ]


class ProcessWatch:
    """Compares this process with its first state. Main thread only.

    Reads little without need: twenty system calls cost more than all else that a short job costs.
    """

    def __init__(self) -> None:
        self._before = _read_state()
        self._touched = False
        self._read_at = clock.boottime()
        sys.addaudithook(self._note)

    def differences(self) -> list[str]:
        """Name what has changed since the first state."""
        now = clock.boottime()
        if self._touched or now - self._read_at > _READ_EVERY:
            self._touched, self._read_at = False, now
            state = _read_state()
        else:
            mask = _umask(self._before.umask)
            state = self._before._replace(umask=mask, signal_handlers=_signal_handlers())
        return state.differs_from(self._before)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _AUDITED:
            self._touched = True


def _read_state() -> ProcessState:
    folder = None
    with contextlib.suppress(OSError):
        folder = os.getcwd()
    limits = tuple(map(resource.getrlimit, _LIMITS))
    return ProcessState(limits, folder, _umask(), _signal_handlers())


def _umask(expected: int = 0o077) -> int:
    # It can only be read by setting it; no handler is running.
    mask = os.umask(expected)
    if mask != expected:
        os.umask(mask)
    return mask


def _signal_handlers() -> tuple[Any, ...]:
    return tuple(map(getsignal, _SIGNALS))
