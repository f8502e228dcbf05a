"""A timer of the system that kills this process, also while it is suspended or stopped.

Its clock counts the time for which the machine is suspended. Linux only: elsewhere nothing is set.
"""

from __future__ import annotations

import ctypes
import signal
import time

from django_ojs.worker.prefork.linux import LINUX

_ABSOLUTE = 1
_SIZE_OF_EVENT = 64


class _Event(ctypes.Structure):
    """``struct sigevent``: send ``signal`` to the process."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * (_SIZE_OF_EVENT - ctypes.sizeof(ctypes.c_void_p) - 8)),
    )


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    """``struct itimerspec``; without an interval it expires once."""

    _fields_ = (("interval", _Time), ("value", _Time))


class KillTimer:
    """SIGKILL for this process at a time of :func:`~django_ojs.boottime.boottime`.

    What :func:`~django_ojs.worker.prefork.linux.die_with_parent` has bound to it is killed with it.
    The timer is not inherited by a fork.
    """

    def __init__(self) -> None:
        self._timer: ctypes.c_void_p | None = None

    def set(self, at: float | None) -> None:
        """Kill at this time instead of an earlier one given; ``None``: not at all.

        Raises ``OSError`` where the system has no such timer.
        """
        if not LINUX or (self._timer is None and at is None):
            return
        whole, part = divmod(at or 0.0, 1.0)
        value = _Time(int(whole), int(part * 1e9))
        libc = _library()
        if self._timer is None:
            timer, event = ctypes.c_void_p(), _Event(None, signal.SIGKILL, 0)
            _check(libc.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(timer)))
            self._timer = timer
        setting = _Setting(_Time(0, 0), value)
        _check(libc.timer_settime(self._timer, _ABSOLUTE, ctypes.byref(setting), None))


def _library() -> ctypes.CDLL:
    """The library with the timers: until glibc 2.34 one of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), "the timer that ends this process cannot be set")
