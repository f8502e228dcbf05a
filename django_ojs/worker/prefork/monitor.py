"""The monitor: a small process that owns one executor and everything that it starts.

It is the subreaper of its executor, so that the executor's orphans become its children and those of
other executors do not. It kills the tree on order, when its executor ends, and when the supervisor is
gone. It reports when nothing is left; only then does the supervisor report the failure.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from django_ojs.worker.prefork import linux, messages
from django_ojs.worker.prefork.frames import FrameReader, ProtocolError, pack

_CLOSED_WAIT = 0.1
"""Seconds for an executor that has closed its line to end: it is ending, or never will."""
Serve = Callable[[socket.socket, int], None]
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD)


def run_monitor(control: socket.socket, line: socket.socket, pulse: int, serve: Serve) -> NoReturn:
    """Run ``serve(line, pulse)`` in a child and stay until it and all below it are gone."""
    with contextlib.suppress(OSError):
        os.setsid()
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    linux.become_subreaper()
    linux.continue_with_parents_end()
    readable, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    me = os.getpid()
    executor = os.fork()
    if executor == 0:
        _become_executor(me, control, readable, wakeup)
        try:
            serve(line, pulse)
        finally:
            os._exit(0)
    line.close()
    os.close(pulse)
    _send(control, messages.born(executor, me))
    status = _watch(control, readable, executor)
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
    # A handler that asks for input gets none, instead of the runner's terminal.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    linux.prefer_for_oom_kill()


def _watch(control: socket.socket, wakeup: int, executor: int) -> int | None:
    """Wait for the executor's end or the order to kill it; its wait status, if it had ended."""
    reader = FrameReader()
    patience: float | None = None
    while True:
        readable, _, _ = select.select([control.fileno(), wakeup], [], [], patience)
        if not readable:
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
            if any(frame == messages.CLOSED for frame in frames):
                patience = _CLOSED_WAIT


def _send(control: socket.socket, frame: dict[str, object]) -> None:
    # The supervisor may be gone: the tree is killed all the same.
    with contextlib.suppress(OSError):
        control.sendall(pack(frame))
