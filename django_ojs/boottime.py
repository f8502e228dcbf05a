"""The clock of durations. It is a module of its own so that processes without Django can read it."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Seconds on a clock that never jumps; on Linux it goes on while the machine is suspended."""
    return time.clock_gettime(_CLOCK)
