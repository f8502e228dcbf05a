"""Where executors come from: a process with Django loaded, one thread and no connections.

Forking it costs milliseconds and shares its memory. It is forked from the runner before that starts
threads; where imports have started some already, or off Linux, children are fresh interpreters
instead, which is slower and always safe.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
from typing import NoReturn, Protocol

from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.monitor import Serve, run_monitor


class ExecutorServer(Protocol):
    """Starts monitors, each with an executor."""

    mode: str

    def spawn(self, control: socket.socket, line: socket.socket, pulse: int) -> None:
        """Start a monitor on these ends; the caller closes its own copies."""

    def sweep(self, dead: int) -> None:
        """Kill what the monitor ``dead`` has left behind."""

    def close(self) -> None:
        """Nothing will be spawned any more."""


class ForkServerGone(OSError):
    """The fork server process has ended; a new one is needed."""


class ForkServer:
    """A forked copy of this process, taken while it has one thread."""

    mode = "fork"

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What has been imported stays: no collection need look at it again, here, nor write to its
        # pages in the children.
        gc.collect()
        gc.freeze()
        self.pid = os.fork()
        if self.pid == 0:
            self._ours.close()
            try:
                _serve_requests(theirs, serve)
            finally:
                os._exit(1)
        theirs.close()

    def spawn(self, control: socket.socket, line: socket.socket, pulse: int) -> None:
        """Raises :class:`ForkServerGone` when the fork server has ended."""
        try:
            socket.send_fds(self._ours, [b"spawn"], [control.fileno(), line.fileno(), pulse])
        except OSError as error:
            raise ForkServerGone(str(error)) from error

    def sweep(self, dead: int) -> None:
        """Best effort: a fork server that is gone has taken its orphans to init."""
        with contextlib.suppress(OSError):
            self._ours.send(b"sweep %d" % dead)

    def close(self) -> None:
        """The fork server ends when its line closes."""
        self._ours.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve_requests(requests: socket.socket, serve: Serve) -> NoReturn:
    with contextlib.suppress(OSError):
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    linux.become_subreaper()
    monitors: set[int] = set()
    while True:
        select.select([requests], [], [])
        message, descriptors, _, _ = socket.recv_fds(requests, 65536, 3)
        if not message:
            os._exit(0)
        if message.startswith(b"sweep"):
            # The runner has not heard yet of monitors that are being born, so this process keeps
            # the list. The dead one is not spared: its line closes before its children are handed
            # over, so it may still have them.
            monitors &= linux.children(os.getpid()) - {int(message.split()[1])}
            linux.kill_below(os.getpid(), spare=frozenset(monitors), patience=1.0)
            continue
        try:
            monitor = os.fork()
        except OSError:
            # No process to be had now: the runner learns it when the monitor's ends close below.
            monitor = None
        if monitor == 0:
            requests.close()
            _keep(descriptors, serve)
        if monitor is not None:
            monitors.add(monitor)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(descriptors: list[int], serve: Serve) -> NoReturn:
    control, line, pulse = descriptors
    run_monitor(socket.socket(fileno=control), socket.socket(fileno=line), pulse, serve)


class SpawnServer:
    """Every monitor is a fresh interpreter."""

    mode = "exec"

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def spawn(self, control: socket.socket, line: socket.socket, pulse: int) -> None:
        """Start ``python -m django_ojs.worker.executor`` with the three descriptors."""
        descriptors = (control.fileno(), line.fileno(), pulse)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._started = [child for child in self._started if child.poll() is None]
        self._started.append(
            subprocess.Popen(
                [sys.executable, "-m", "django_ojs.worker.executor", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        )

    def sweep(self, dead: int) -> None:
        """The orphans of a dead monitor have gone to init, out of reach."""

    def close(self) -> None:
        """Collect the monitors that have ended."""
        for child in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=1)


def open_server(serve: Serve, harmless: int) -> ExecutorServer:
    """The fastest fork server that is safe here: ``harmless`` threads do not forbid a fork."""
    if linux.LINUX and linux.thread_count() == 1 + harmless:
        return ForkServer(serve)
    return SpawnServer()
