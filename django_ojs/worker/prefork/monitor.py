"""The monitor: a small process that owns one executor and everything that it starts.

It is the subreaper of its executor: it adopts the orphans of this executor and of no other. It kills
the tree when it is ordered to, when its executor ends, when the supervisor is gone, and at a time that
the supervisor has set, should it be suspended then. When nothing is left it reports the end; only then
does the supervisor report the job as failed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from django_ojs.boottime import boottime
from django_ojs.process_title import set_title
from django_ojs.worker.prefork import linux, messages
from django_ojs.worker.prefork.frames import Frame, FrameReader, ProtocolError, pack
from django_ojs.worker.prefork.kill_timer import KillTimer

_CLOSED_WAIT = 0.1
"""Seconds that an executor has to end after it closed its channel; then it is killed."""
Serve = Callable[[socket.socket, int], None]
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD)


def run_monitor(
    control: socket.socket, channel: socket.socket, liveness: int, serve: Serve
) -> NoReturn:
    """Run ``serve(channel, liveness)`` in a child; exit when it and everything below it are gone."""
    with contextlib.suppress(OSError):
        os.setsid()
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    linux.become_subreaper()
    linux.continue_with_parents_end()
    readable, wakeup = linux.watch_children()
    me = os.getpid()
    executor = os.fork()
    if executor == 0:
        _become_executor(me, control, readable, wakeup)
        try:
            serve(channel, liveness)
        finally:
            os._exit(0)
    set_title(f"monitor of {executor}")
    channel.close()
    os.close(liveness)
    _send(control, messages.born(executor, me))
    limit = _Limit()
    status = _watch(control, readable, executor, limit)
    if status is None:
        linux.send_signal(executor, signal.SIGKILL)
    limit.lift()
    swept = linux.kill_below(me)
    if not linux.LINUX:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(executor, signal.SIGKILL)
    _send(control, messages.gone(status, swept))
    os._exit(0)


def _become_executor(monitor: int, control: socket.socket, *descriptors: int) -> None:
    signal.set_wakeup_fd(-1)
    with contextlib.suppress(OSError):
        os.setsid()
    linux.die_with_parent(monitor)
    control.close()
    for descriptor in descriptors:
        os.close(descriptor)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A handler that reads standard input gets an end of file, not the supervisor's terminal.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    linux.prefer_for_oom_kill()


class _Limit:
    """When the executor is to be killed, whatever the supervisor does.

    If this process cannot do it, since it is suspended too, the system kills it, and the executor with
    it.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._timer = KillTimer()

    def take(self, frame: Frame) -> None:
        self._at = frame["at"]
        self._set(frame["latest"])

    def lift(self) -> None:
        self._set(None)

    def _set(self, latest: float | None) -> None:
        # A sandbox may have no such timer: this process then kills the executor when it goes on.
        with contextlib.suppress(OSError):
            self._timer.set(latest)

    def left(self) -> float | None:
        """Seconds until then."""
        return None if self._at is None else max(0.0, self._at - boottime())


def _watch(control: socket.socket, wakeup: int, executor: int, limit: _Limit) -> int | None:
    """Wait until the executor ends, or is to be killed; return its wait status if it has ended."""
    reader = FrameReader()
    patience: float | None = None
    while True:
        left = limit.left()
        waits = [wait for wait in (patience, left) if wait is not None]
        readable, _, _ = select.select([control.fileno(), wakeup], [], [], min(waits, default=None))
        if not readable and (left is None or patience is not None or limit.left() == 0):
            return None
        if wakeup in readable:
            os.read(wakeup, 4096)
            statuses = linux.reap_children()
            if executor in statuses:
                return statuses[executor]
        if control.fileno() in readable:
            try:
                data = control.recv(4096)
                frames = reader.feed(data) if data else [messages.KILL]
            except (OSError, ProtocolError):
                frames = [messages.KILL]
            if any(frame == messages.KILL for frame in frames):
                return None
            for frame in frames:
                if frame["op"] == "limit":
                    limit.take(frame)
                    _send(control, messages.limited(frame["at"]))
            if any(frame == messages.CLOSED for frame in frames):
                patience = _CLOSED_WAIT


def _send(control: socket.socket, frame: dict[str, object]) -> None:
    # The supervisor may be gone; the tree is killed in any case.
    with contextlib.suppress(OSError):
        control.sendall(pack(frame))
