"""The runner's side of its executors: starting them, feeding them, killing them."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from django_ojs.boottime import boottime
from django_ojs.worker.prefork import linux, messages
from django_ojs.worker.prefork.frames import (
    WAKEUP_SIGNAL,
    Frame,
    FrameReader,
    ProtocolError,
    pack,
    pack_texts,
    text_of,
)
from django_ojs.worker.prefork.leased import LONG, LeasedJob
from django_ojs.worker.prefork.zygote import ExecutorServer, ForkServerGone, SpawnServer

logger = logging.getLogger("django_ojs.worker")

START_TIMEOUT = 60.0
_CHUNK = 1 << 18
NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What a frame that no executor of ours sends, though well packed, raises where it is read."""


class Phase(Enum):
    """Where an executor process is in its life."""

    STARTING = "starting"
    READY = "ready"
    DYING = "dying"


@dataclass(eq=False, slots=True)
class Child:
    """One executor process as the runner knows it."""

    line: socket.socket
    control: socket.socket
    pulse: int
    started_at: float
    phase: Phase = Phase.STARTING
    pid: int = 0
    monitor: int = 0
    running: LeasedJob | None = None
    queued: deque[LeasedJob] = field(default_factory=deque)
    jobs_done: int = 0
    done_at: float = 0.0
    """When its last job ended."""
    recycle: str | None = None
    outbox: list[str] = field(default_factory=list)
    """Frames, as JSON text, that have not been packed yet."""
    unsent: bytearray = field(default_factory=bytearray)
    wake_pending: bool = False
    """Whether the wake-up signal is for something that is not written yet."""
    reader: FrameReader = field(default_factory=FrameReader)
    control_reader: FrameReader = field(default_factory=FrameReader)
    status: int | None = None
    closed: bool = False
    """Its ends are closed; one turn may find several of them ready, and the first be its last."""

    @property
    def assigned(self) -> list[LeasedJob]:
        """Every job that this child has, begun or not."""
        return [*([self.running] if self.running else []), *self.queued]

    @property
    def idle(self) -> bool:
        """Whether it could begin a job at once."""
        return self.phase is Phase.READY and not self.running and not self.queued

    def is_long(self, now: float) -> bool:
        """Whether what it runs has kept it for long already."""
        return self.running is not None and now - (self.running.began_at or now) > LONG


Handler = Callable[[Child, Frame], None]


class Pool:
    """The executors of one runner. All methods are called from the runner's main thread."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        server: ExecutorServer,
        *,
        on_frame: Handler,
        on_gone: Callable[[Child, int | None], None],
    ) -> None:
        self._selector = selector
        self._on_frame = on_frame
        self._on_gone = on_gone
        self._server = server
        self._stumbles = 0
        self.children: list[Child] = []
        self.spawn_after = 0.0
        """When the next executor may be started (boottime)."""

    @property
    def mode(self) -> str:
        """``fork`` or ``exec``."""
        return self._server.mode

    def __iter__(self) -> Iterator[Child]:
        return iter(self.children)

    def fill(self, size: int, now: float) -> None:
        """Start what is missing of ``size`` executors; patiently, after some that could not start."""
        if now < self.spawn_after:
            return
        for _ in range(size - sum(child.phase is not Phase.DYING for child in self.children)):
            try:
                self.spawn()
            except OSError as error:
                logger.error("an executor cannot be started: %s", error)
                self.record_start_failure()
                return

    def record_start_failure(self) -> None:
        """An executor could not start, or ended before it ran anything: wait, longer each time.

        Those that end while it waits have mostly met with the same misfortune.
        """
        now = boottime()
        if now >= self.spawn_after:
            self._stumbles += 1
            self.spawn_after = now + min(10.0, 0.2 * 2 ** min(self._stumbles, 6))

    def started(self) -> None:
        """An executor is ready."""
        self._stumbles = 0

    def spawn(self) -> Child:
        """Start one more executor; it says ``ready`` when it can take jobs. Raises ``OSError``."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            line, child_line = socket.socketpair()
            ours.callback(line.close)
            theirs.callback(child_line.close)
            control, child_control = socket.socketpair()
            ours.callback(control.close)
            theirs.callback(child_control.close)
            pulse, child_pulse = os.pipe()
            ours.callback(os.close, pulse)
            theirs.callback(os.close, child_pulse)
            try:
                self._server.spawn(child_control, child_line, child_pulse)
            except ForkServerGone:
                # Threads run by now, so a new fork server cannot be forked; fresh interpreters are
                # safe.
                self._server = SpawnServer()
                self._server.spawn(child_control, child_line, child_pulse)
            ours.pop_all()
        for end in (line, control):
            end.setblocking(False)
        os.set_blocking(pulse, False)
        child = Child(line, control, pulse, boottime())
        self.children.append(child)
        self._selector.register(line, selectors.EVENT_READ, (self._read_line, child))
        self._selector.register(control, selectors.EVENT_READ, (self._read_control, child))
        self._selector.register(pulse, selectors.EVENT_READ, (self._read_pulse, child))
        return child

    def send(self, child: Child, frame: Frame | str) -> None:
        """Say something to a child, an object or its JSON text, at the next :meth:`flush`."""
        child.outbox.append(frame if isinstance(frame, str) else text_of(frame))

    def flush(self) -> None:
        """Write what was said since the last time, as far as it fits."""
        for child in self.children:
            if child.outbox:
                self._write(child)

    def wake(self, child: Child) -> None:
        """Make a child look at its line even while a handler runs."""
        self._write(child)
        child.wake_pending = bool(child.unsent)
        self._signal(child)

    def _signal(self, child: Child) -> None:
        if child.pid and child.phase is not Phase.DYING:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, WAKEUP_SIGNAL)

    def kill(self, child: Child) -> None:
        """SIGKILL the executor and everything below it; ``on_gone`` follows when nothing is left."""
        if child.phase is Phase.DYING:
            return
        child.phase = Phase.DYING
        if child.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        self._order(child, messages.KILL)

    def _begin_close(self, child: Child) -> None:
        """Its line has closed, mostly because it ends: let its monitor see with which status."""
        if child.phase is Phase.DYING:
            return
        child.phase = Phase.DYING
        self._order(child, messages.CLOSED)

    def _order(self, child: Child, order: Frame) -> None:
        """Tell its monitor, which a handler may have stopped."""
        # A monitor that is gone has left its last word on the line, or nothing: read there.
        with contextlib.suppress(OSError):
            child.control.sendall(pack(order))
        self._signal_monitor(child, signal.SIGCONT)

    def wake_monitors(self) -> None:
        """Let monitors go on that a handler has stopped; end those that are stopped again."""
        for child in self.children:
            if child.monitor and linux.is_stopped(child.monitor):
                logger.warning("a handler has stopped the monitor of its executor: %d", child.monitor)
                dying = child.phase is Phase.DYING
                self._signal_monitor(child, signal.SIGKILL if dying else signal.SIGCONT)

    def _signal_monitor(self, child: Child, number: signal.Signals) -> None:
        if child.monitor and not child.closed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.monitor, number)

    def close(self) -> None:
        """After the last child: end the fork server."""
        self._server.close()

    def _write(self, child: Child) -> None:
        was_blocked = bool(child.unsent)
        child.unsent += pack_texts(child.outbox)
        child.outbox.clear()
        try:
            while child.unsent:
                sent = child.line.send(child.unsent)
                del child.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            child.unsent.clear()
        if bool(child.unsent) is not was_blocked:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.unsent else 0)
            with contextlib.suppress(KeyError):
                self._selector.modify(child.line, events, (self._read_line, child))

    def _read_line(self, child: Child, mask: int) -> None:
        if child.closed:
            return
        if mask & selectors.EVENT_WRITE:
            self._write(child)
            if child.wake_pending:
                child.wake_pending = bool(child.unsent)
                self._signal(child)
        if not mask & selectors.EVENT_READ:
            return
        garbage = False
        try:
            data = child.line.recv(_CHUNK)
            frames = child.reader.feed(data)
        except BlockingIOError:
            return
        except ProtocolError:
            data, frames, garbage = b"", [], True
        except OSError:
            data, frames = b"", []
        try:
            for frame in frames:
                self._on_frame(child, frame)
        except NONSENSE as error:
            logger.error("an executor sent a malformed frame: %r", error)
            data, garbage = b"", True
        if not data:
            # Ended, closed by the handler, or garbage: the process can say nothing any more.
            self._unregister(child.line)
            if garbage:
                self.kill(child)
            else:
                self._begin_close(child)

    def _read_control(self, child: Child, mask: int) -> None:
        if child.closed:
            return
        try:
            data = child.control.recv(4096)
            frames = child.control_reader.feed(data)
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            data, frames = b"", []
        for frame in frames:
            if frame["op"] == "born":
                child.pid, child.monitor = frame["pid"], frame["monitor"]
                if child.phase is Phase.DYING:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL)
            elif frame["op"] == "gone":
                self._dispose(child, frame["status"])
                return
        if not data:
            # The monitor died without a word; its executor died with it, the rest is swept.
            self._server.sweep(child.monitor)
            self._dispose(child)

    def _read_pulse(self, child: Child, mask: int) -> None:
        if child.closed:
            return
        try:
            beat = os.read(child.pulse, 4096)
        except BlockingIOError:
            return
        if not beat:
            self._unregister(child.pulse)
        elif child.running is not None and not child.running.manual:
            child.running.seen_at = boottime()

    def _dispose(self, child: Child, status: int | None = None) -> None:
        if child.closed:
            return
        child.closed = True
        self.children.remove(child)
        self._drain(child)
        child.phase = Phase.DYING
        for end in (child.line, child.control, child.pulse):
            self._unregister(end)
        child.line.close()
        child.control.close()
        os.close(child.pulse)
        child.status = status
        self._on_gone(child, status)

    def _drain(self, child: Child) -> None:
        """Frames that were written before the end still count."""
        with contextlib.suppress(OSError, ProtocolError, *NONSENSE):
            while data := child.line.recv(_CHUNK):
                for frame in child.reader.feed(data):
                    self._on_frame(child, frame)

    def _unregister(self, end: socket.socket | int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(end)


def rss_mib(child: Child) -> float:
    """Resident memory of an executor."""
    return linux.rss_mib(child.pid) if child.pid else 0.0
