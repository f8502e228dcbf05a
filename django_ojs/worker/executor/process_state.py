"""What a handler may have changed of its process for good: an executor that differs is replaced."""

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
"""Those that a handler may have a use for. The executor's own is set anew before every job."""


_AUDITED = frozenset({"resource.setrlimit", "resource.prlimit", "os.chdir"})
"""Audit events of what costs a system call each to read."""
_READ_EVERY = 0.1
"""Seconds. Code in C changes what it likes without an audit event: after that long all is read."""


class ProcessState(NamedTuple):
    """What a handler may change of its process and nobody puts back."""

    resource_limits: tuple[tuple[int, int], ...]
    working_folder: str | None
    umask: int
    signal_handlers: tuple[Any, ...]

    def differs_from(self, before: ProcessState) -> list[str]:
        """What has changed, in words."""
        if self == before:
            return []
        return [
            name.replace("_", " ")
            for name, old, new in zip(self._fields, before, self, strict=True)
            if old != new
        ]


class ProcessWatch:
    """Compares this process with what it was at first. To be used in its main thread.

    Twenty system calls after each job were more than the rest of what a short job costs its executor.
    """

    def __init__(self) -> None:
        self._before = _read_state()
        self._touched = False
        self._read_at = clock.boottime()
        sys.addaudithook(self._note)

    def differences(self) -> list[str]:
        """What has changed, in words."""
        now = clock.boottime()
        if self._touched or now - self._read_at > _READ_EVERY:
            self._touched, self._read_at = False, now
            state = _read_state()
        else:
            state = self._before._replace(umask=_umask(), signal_handlers=_signal_handlers())
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


def _umask() -> int:
    # There is no other way to read it; handlers are not running.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _signal_handlers() -> tuple[Any, ...]:
    return tuple(map(getsignal, _SIGNALS))
