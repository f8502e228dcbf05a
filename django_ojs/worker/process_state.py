"""What a handler may have changed of its process for good: an executor that differs is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, NamedTuple

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


class ProcessState(NamedTuple):
    """What can be read of a process in a few microseconds."""

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


def read_state() -> ProcessState:
    """The state of this process now; to be called in its main thread."""
    folder = None
    with contextlib.suppress(OSError):
        folder = os.getcwd()
    # There is no other way to read it; handlers are not running.
    mask = os.umask(0o077)
    os.umask(mask)
    return ProcessState(
        tuple(map(resource.getrlimit, _LIMITS)),
        folder,
        mask,
        tuple(map(signal.getsignal, _SIGNALS)),
    )
