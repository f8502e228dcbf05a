"""The fork server: a process with Django loaded, one thread and no connections.

Forking it takes milliseconds and shares its memory. The supervisor forks it before starting threads.
Where imports have started threads already, and on other systems than Linux, executors are fresh
interpreters instead: slower, but always safe.
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

from django_ojs.process_title import set_title
from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.monitor import Serve, run_monitor


class ExecutorServer(Protocol):
    """Starts monitors, each with an executor."""

    mode: str

    def spawn(self, control: socket.socket, channel: socket.socket, liveness: int) -> None:
        """Start a monitor with these descriptors; the caller closes its own copies."""

    def sweep(self, dead: int) -> None:
        """Kill what the dead monitor with this process id has left behind."""

    def close(self) -> None:
        """End the server: nothing more will be spawned."""


class ForkServerGone(OSError):
    """The fork server has ended; executors must be started in another way."""


class ForkServer:
    """Forks monitors from a copy of this process that was made while it had one thread."""

    mode = "fork"

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Imported objects stay for good. Frozen, they are skipped by garbage collections, which would
        # otherwise write to pages that the children share.
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

    def spawn(self, control: socket.socket, channel: socket.socket, liveness: int) -> None:
        """Raises :class:`ForkServerGone` when the fork server has ended."""
        try:
            socket.send_fds(self._ours, [b"spawn"], [control.fileno(), channel.fileno(), liveness])
        except OSError as error:
            raise ForkServerGone(str(error)) from error

    def sweep(self, dead: int) -> None:
        """Best effort: if the fork server has ended, its orphans now belong to init."""
        with contextlib.suppress(OSError):
            self._ours.send(b"sweep %d" % dead)

    def close(self) -> None:
        """Close the socket, on which the fork server ends, and wait for its end."""
        self._ours.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve_requests(requests: socket.socket, serve: Serve) -> NoReturn:
    with contextlib.suppress(OSError):
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    linux.become_subreaper()
    # Reaped, not ignored: the processor time of what has ended counts as time of the worker.
    readable, wakeup = linux.watch_children()
    set_title("fork server")
    monitors: set[int] = set()
    while True:
        ready, _, _ = select.select([requests.fileno(), readable], [], [])
        if readable in ready:
            os.read(readable, 4096)
            monitors.difference_update(linux.reap_children())
        if requests.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, 65536, 3)
        if not message:
            os._exit(0)
        if message.startswith(b"sweep"):
            # This process keeps the list of monitors, since the supervisor does not know yet of those
            # that are starting. The dead one is not spared: its socket closes before its children are
            # handed over, so it may still have them.
            monitors &= linux.children(os.getpid()) - {int(message.split()[1])}
            linux.kill_below(os.getpid(), spare=frozenset(monitors), patience=1.0)
            continue
        try:
            monitor = os.fork()
        except OSError:
            # The supervisor notices when the descriptors close below.
            monitor = None
        if monitor == 0:
            requests.close()
            signal.set_wakeup_fd(-1)
            for descriptor in (readable, wakeup):
                os.close(descriptor)
            _become_monitor(descriptors, serve)
        if monitor is not None:
            monitors.add(monitor)
        for descriptor in descriptors:
            os.close(descriptor)


def _become_monitor(descriptors: list[int], serve: Serve) -> NoReturn:
    control, channel, liveness = descriptors
    run_monitor(socket.socket(fileno=control), socket.socket(fileno=channel), liveness, serve)


class SpawnServer:
    """Starts each monitor as a fresh interpreter."""

    mode = "exec"

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def spawn(self, control: socket.socket, channel: socket.socket, liveness: int) -> None:
        """Start ``python -m django_ojs.worker.executor`` with the three descriptors."""
        descriptors = (control.fileno(), channel.fileno(), liveness)
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
        """Nothing: the orphans of a dead monitor belong to init now."""

    def close(self) -> None:
        """Wait for the monitors, which are ending."""
        for child in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=1)


def open_server(serve: Serve, harmless: int) -> ExecutorServer:
    """Return a fork server if forking is safe here: no threads but ``harmless`` ones, on Linux."""
    if linux.LINUX and linux.thread_count() == 1 + harmless:
        return ForkServer(serve)
    return SpawnServer()
