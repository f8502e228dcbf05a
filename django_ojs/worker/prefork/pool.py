"""The supervisor's side of its executors: start them, send them frames, kill them."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator

from django_ojs.boottime import boottime
from django_ojs.worker.prefork import linux, messages
from django_ojs.worker.prefork.child import Child, Phase, Slot
from django_ojs.worker.prefork.frames import (
    WAKEUP_SIGNAL,
    Frame,
    ProtocolError,
    pack,
    pack_texts,
    text_of,
)
from django_ojs.worker.prefork.journal import Journal
from django_ojs.worker.prefork.zygote import ExecutorServer, ForkServerGone, SpawnServer

logger = logging.getLogger("django_ojs.worker")

START_TIMEOUT = 60.0
EXIT_TIMEOUT = 2.0
"""Seconds that an executor has to end after it was asked to."""
_CHUNK = 1 << 18
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Raised while reading a well-framed but malformed message."""


Handler = Callable[[Child, Frame], None]


class Pool:
    """The executors of one supervisor. Call methods from its main thread only."""

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
        self._start_failures = 0
        self.children: list[Child] = []
        self.spawn_after = 0.0
        """When the next executor may be started (boottime)."""

    @property
    def mode(self) -> str:
        """``fork`` or ``exec``."""
        return self._server.mode

    def __iter__(self) -> Iterator[Child]:
        return iter(self.children)

    def processes(self) -> list[int]:
        """The ids of this process and of the executors. From any thread."""
        return [os.getpid(), *(child.pid for child in list(self.children) if child.pid)]

    def slots(self) -> Iterator[Slot]:
        """The slots of all executors."""
        for child in self.children:
            yield from child.slots

    def missing(self, size: int, slots: int) -> list[int]:
        """The slots of each executor that is yet to be started.

        There are to be ``size`` executors with one slot, and one with ``slots`` if that is not 0. An
        executor of many that is to be replaced is so at once: its last job may run for long.
        """
        living = [child for child in self.children if child.phase not in (Phase.LEAVING, Phase.DYING)]
        single = sum(not child.is_shared for child in living)
        shared = any(child.is_shared and child.recycle is None for child in living)
        return [1] * (size - single) + [slots] * (slots > 0 and not shared)

    def fill(self, size: int, slots: int, now: float) -> None:
        """Start what is :meth:`missing`, except while backing off after failures."""
        if now < self.spawn_after:
            return
        for each in self.missing(size, slots):
            try:
                self.spawn(each)
            except OSError as error:
                logger.error("an executor could not be started: %s", error)
                self.record_start_failure()
                return

    def record_start_failure(self) -> None:
        """An executor could not start, or ended before it ran a job: back off, longer each time.

        Failures during the back-off count once; they usually share a cause.
        """
        now = boottime()
        if now >= self.spawn_after:
            self._start_failures += 1
            self.spawn_after = now + min(10.0, 0.2 * 2 ** min(self._start_failures, 6))

    def started(self) -> None:
        """An executor is ready: reset the back-off."""
        self._start_failures = 0

    def spawn(self, slots: int = 1) -> Child:
        """Start an executor, which sends ``ready`` when it can take jobs. Raises ``OSError``."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            channel, child_channel = socket.socketpair()
            ours.callback(channel.close)
            theirs.callback(child_channel.close)
            control, child_control = socket.socketpair()
            ours.callback(control.close)
            theirs.callback(child_control.close)
            liveness, child_liveness = os.pipe()
            ours.callback(os.close, liveness)
            theirs.callback(os.close, child_liveness)
            try:
                self._server.spawn(child_control, child_channel, child_liveness)
            except ForkServerGone:
                # This process has threads by now, so it cannot fork another fork server.
                self._server = SpawnServer()
                self._server.spawn(child_control, child_channel, child_liveness)
            journal = Journal.shared_through(channel, wanted=slots == 1)
            ours.pop_all()
        for end in (channel, control):
            end.setblocking(False)
        os.set_blocking(liveness, False)
        child = Child(channel, control, liveness, boottime(), size=slots, journal=journal)
        self.children.append(child)
        self._selector.register(channel, selectors.EVENT_READ, (self._read_channel, child))
        self._selector.register(control, selectors.EVENT_READ, (self._read_control, child))
        self._selector.register(liveness, selectors.EVENT_READ, (self._read_liveness, child))
        if child.is_shared:
            self.send(child, messages.share(slots))
        return child

    def send(self, child: Child, frame: Frame | str) -> None:
        """Queue a frame, an object or its JSON text, for the next :meth:`flush`."""
        child.outbox.append(frame if isinstance(frame, str) else text_of(frame))

    def flush(self) -> None:
        """Write queued frames, as many as fit."""
        for child in self.children:
            if child.outbox:
                self._write(child)

    def wake(self, child: Child) -> None:
        """Make an executor read its channel even while a handler runs."""
        self._write(child)
        child.wake_pending = bool(child.unsent)
        self._signal(child)

    def _signal(self, child: Child) -> None:
        if child.pid and child.phase is not Phase.DYING:
            linux.send_signal(child.pid, WAKEUP_SIGNAL)

    def end(self, child: Child) -> None:
        """Let an executor without a job end by itself; ``check`` kills it if it does not in time."""
        if child.phase is Phase.LEAVING:
            # Asked already, when it was to be replaced: it keeps the time that it has left.
            return
        if child.phase is not Phase.READY:
            self.kill(child)
            return
        child.phase = Phase.LEAVING
        child.asked_to_end_at = boottime()
        # It reads the end of the channel where it waits for the next job.
        with contextlib.suppress(OSError):
            child.channel.shutdown(socket.SHUT_WR)

    def kill(self, child: Child) -> None:
        """Kill the executor and everything below it; ``on_gone`` is called when nothing is left."""
        if child.phase is Phase.DYING:
            return
        child.phase = Phase.DYING
        if child.pid:
            linux.send_signal(child.pid, signal.SIGKILL)
        self._order(child, messages.KILL)

    def limit(self, child: Child, moments: tuple[float, float] | None, *, wait: bool = False) -> None:
        """Have its monitor kill the executor at the first of the moments (boottime), or the system at
        the second; ``None``: never. With ``wait`` the executor gets no frame before that is set.
        """
        at, latest = moments or (None, None)
        if wait:
            child.limiting = at
        self._order(child, messages.limit(at, latest))

    def _begin_close(self, child: Child) -> None:
        """The channel has closed, usually at the executor's end: let its monitor report the status."""
        if child.phase is Phase.DYING:
            return
        child.phase = Phase.DYING
        self._order(child, messages.CLOSED)

    def _order(self, child: Child, order: Frame) -> None:
        """Send an order to its monitor, and SIGCONT, since a handler may have stopped it."""
        # If the monitor has exited, its final message (if any) is buffered: `_read_control` reads it.
        with contextlib.suppress(OSError):
            child.control.sendall(pack(order))
        self._signal_monitor(child, signal.SIGCONT)

    def check(self) -> None:
        """Continue monitors that a handler has stopped; kill those whose executors are to die, and
        executors that do not end.
        """
        for child in self.children:
            late = boottime() - child.asked_to_end_at > EXIT_TIMEOUT
            if child.phase is Phase.LEAVING and late:
                logger.warning("an executor did not end in %g s: process %d", EXIT_TIMEOUT, child.pid)
                self.kill(child)
            if child.monitor and linux.is_stopped(child.monitor):
                logger.warning(
                    "a handler has stopped the monitor of its executor: process %d", child.monitor
                )
                dying = child.phase is Phase.DYING
                self._signal_monitor(child, signal.SIGKILL if dying else signal.SIGCONT)

    def _signal_monitor(self, child: Child, number: signal.Signals) -> None:
        if child.monitor and not child.closed:
            linux.send_signal(child.monitor, number)

    def close(self) -> None:
        """End the fork server, after the last child."""
        self._server.close()

    def _write(self, child: Child) -> None:
        was_blocked = bool(child.unsent)
        if child.limiting is None:
            try:
                child.unsent += pack_texts(child.outbox)
            except ValueError as error:
                logger.error("a frame cannot be sent to an executor: %s", error)
                self.kill(child)
            child.outbox.clear()
        try:
            while child.unsent:
                sent = child.channel.send(child.unsent)
                del child.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            child.unsent.clear()
        if bool(child.unsent) is not was_blocked:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.unsent else 0)
            with contextlib.suppress(KeyError):
                self._selector.modify(child.channel, events, (self._read_channel, child))

    def _read_channel(self, child: Child, mask: int) -> None:
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
            data = child.channel.recv(_CHUNK)
            frames = child.reader.feed(data)
        except BlockingIOError:
            return
        except ProtocolError:
            data, frames, garbage = b"", [], True
        except OSError:
            data, frames = b"", []
        try:
            for frame in frames:
                self._take(child, frame)
        except (ProtocolError, *MALFORMED) as error:
            logger.error("an executor sent a malformed frame: %r", error)
            data, garbage = b"", True
        if not data:
            # It has ended, the handler closed the channel, or it sent garbage: nothing more will come.
            self._unregister(child.channel)
            if garbage:
                self.kill(child)
            else:
                self._begin_close(child)

    def _take(self, child: Child, frame: Frame) -> None:
        """Handle a frame of the channel; at a mark what was left in the journal before it."""
        if child.journal is None or frame.get("op") != "mark":
            self._on_frame(child, frame)
            return
        for earlier in child.journal.frames_before(int(frame["at"])):
            self._on_frame(child, earlier)

    def look_within(self, now: float) -> float | None:
        """Within how many seconds to read journals again; ``None`` if no executor may leave frames."""
        pauses = [child.look_within(now) for child in self.children]
        return min((pause for pause in pauses if pause is not None), default=None)

    def read_journals(self) -> None:
        """Handle what executors have left in their journals."""
        for child in self.children:
            if child.journal is not None and child.phase is not Phase.DYING:
                try:
                    for frame in child.journal.frames():
                        self._on_frame(child, frame)
                except (ProtocolError, *MALFORMED) as error:
                    logger.error("an executor left a malformed frame: %r", error)
                    self.kill(child)

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
                    linux.send_signal(child.pid, signal.SIGKILL)
            elif frame["op"] == "limited" and frame["at"] == child.limiting:
                child.limiting = None
            elif frame["op"] == "gone":
                self._dispose(child, frame["status"])
                return
        if not data:
            # The monitor died without a report. Its executor died with it; sweep the rest.
            self._server.sweep(child.monitor)
            self._dispose(child)

    def _read_liveness(self, child: Child, mask: int) -> None:
        if child.closed:
            return
        try:
            beat = os.read(child.liveness, 4096)
        except BlockingIOError:
            return
        if not beat:
            self._unregister(child.liveness)
            return
        now = boottime()
        for slot in child.slots:
            if slot.running is not None and not slot.running.manual:
                slot.running.seen_at = now

    def _dispose(self, child: Child, status: int | None = None) -> None:
        if child.closed:
            return
        child.closed = True
        self.children.remove(child)
        self._drain(child)
        child.phase = Phase.DYING
        for end in (child.channel, child.control, child.liveness):
            self._unregister(end)
        child.channel.close()
        child.control.close()
        os.close(child.liveness)
        child.status = status
        self._on_gone(child, status)

    def _drain(self, child: Child) -> None:
        """Handle the frames that were written before the end."""
        with contextlib.suppress(OSError, ProtocolError, *MALFORMED):
            while data := child.channel.recv(_CHUNK):
                for frame in child.reader.feed(data):
                    self._take(child, frame)
        if (journal := child.journal) is not None:
            with contextlib.suppress(ProtocolError, *MALFORMED):
                for frame in journal.rest():
                    self._on_frame(child, frame)
            child.journal = None
            journal.close()

    def _unregister(self, end: socket.socket | int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(end)
