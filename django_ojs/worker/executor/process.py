"""The child process that runs handlers: one job at a time, in its main thread.

``start > resolve > run > normalise > report``: whatever a handler does, an outcome comes out, or the
process ends and its monitor reports it. SIGUSR1 only wakes the main thread; the frame names the lease
that is to stop, so that a late signal cannot stop the next job.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django_ojs import clock
from django_ojs.domain.errors import Conflict
from django_ojs.handlers import registry
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import LeaseGone, SoftStop
from django_ojs.worker import sessions
from django_ojs.worker.executor import cleanup, signal_calls
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.executor.invoke import failure_of, invoke
from django_ojs.worker.executor.liveness import LivenessThread
from django_ojs.worker.executor.results import result_text
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import WAKEUP_SIGNAL, Frame

_READ_EVERY = 0.05


def serve(line: socket.socket, pulse: int) -> None:
    """Run jobs from ``line`` until it closes; write to ``pulse`` while one is running."""
    Executor(line, pulse).run()


class Executor:
    """The state of one executor process.

    ``_current`` is the lease between ``begin`` and ``done``; only while ``_armed`` may the wake-up
    signal raise. An order that comes too early for that is kept in ``_early``.
    """

    def __init__(self, line: socket.socket, pulse: int) -> None:
        self._line = Channel(line, self._on_wakeup)
        self._pulse = LivenessThread(pulse)
        self._pid = os.getpid()
        self._jobs: deque[Frame] = deque()
        self._replies: dict[int, Frame] = {}
        self._asked = 0
        self._read_at = 0.0
        self._current: str | None = None
        self._armed = False
        self._early: str | None = None
        self._context: JobContext | None = None
        self._cancel_task: Callable[[str], None] | None = None
        self._spoilt = False

    def run(self) -> None:
        """Until the runner hangs up."""
        signal.signal(WAKEUP_SIGNAL, self._woken)
        cleanup.forget_inherited()
        self._pulse.start()
        self._surroundings = cleanup.Surroundings()
        self._line.send(messages.READY)
        while True:
            self._sort()
            while not self._jobs:
                self._line.flush()
                if not self._line.receive(lambda: self._jobs):
                    return
                self._read_at = clock.boottime()
                self._sort()
            self._run_one(self._jobs.popleft())
            if clock.boottime() - self._read_at > _READ_EVERY:
                # A handler may have made the wake-up signal dumb.
                self._line.peek()
                self._read_at = clock.boottime()

    def _run_one(self, frame: Frame) -> None:
        self._current = frame["lease"]
        began = clock.boottime()
        self._line.send(messages.begin(frame["lease"]))
        signal_calls.signal(WAKEUP_SIGNAL, self._woken)
        outcome = self._outcome(frame)
        if os.getpid() != self._pid:
            # A fork that came back out of the handler has no right to speak for this job.
            os._exit(0)
        self._pulse.idle()
        left = self._surroundings.after_job()
        took = round(clock.boottime() - began, 6)
        self._line.buffer(messages.done(frame["lease"], took, left, outcome))
        self._current, self._early = None, None
        if left:
            # The runner replaces this process. No job may see what this one has left.
            self._spoilt = True
            for waiting in reversed(self._jobs.copy()):
                self._give_back(waiting["lease"])

    def _outcome(self, frame: Frame) -> Frame:
        context = self._context = JobContext(
            self,
            id=frame["id"],
            type=frame["type"],
            queue=frame["queue"],
            attempt=frame["attempt"],
            max_attempts=frame["max_attempts"],
            meta=frame["meta"],
            last_checkpoint=frame["checkpoint"],
            deadline=datetime.fromisoformat(frame["deadline"]),
        )
        returned: list[Any] = []
        self._pulse.busy(frame["pulse"])
        try:
            handler = registry.find(frame["type"])
            self._surroundings.before_job()
            self._armed = True
            if self._early is not None:
                self._interrupt(self._early)
            returned.append(invoke(handler, context, frame["args"], self._set_canceller))
            self._armed = False
        except BaseException as error:
            self._armed = False
            # If the wake-up signal rang after the handler had returned, what it returned stands.
            if not (returned and isinstance(error, SoftStop)):
                return {"ok": False, "failure": failure_of(error, context.cancel_reason)}
        finally:
            self._context = None
        try:
            return {"ok": True, "result": result_text(returned[0])}
        except BaseException as error:
            return {"ok": False, "failure": failure_of(error, None)}

    def _set_canceller(self, cancel: Callable[[str], None] | None) -> None:
        self._cancel_task = cancel

    def _woken(self, number: int, stack: object) -> None:
        if os.getpid() == self._pid:
            self._line.wake()

    def _on_wakeup(self) -> None:
        self._line.peek()
        self._sort()

    def _sort(self) -> None:
        """Put jobs and replies where they are waited for; obey orders."""
        while self._line.arrived:
            frame = self._line.arrived.popleft()
            match frame["op"]:
                case "run":
                    self._jobs.append(frame)
                    if self._spoilt:
                        self._give_back(frame["lease"])
                case "reply":
                    self._replies[frame["number"]] = frame
                case "cancel" if frame["lease"] == self._current:
                    self._interrupt(frame["reason"])
                case "cancel" | "return":
                    self._give_back(frame["lease"])

    def _give_back(self, lease: str) -> None:
        for frame in self._jobs:
            if frame["lease"] == lease:
                self._jobs.remove(frame)
                self._line.send(messages.returned(lease))
                return

    def _interrupt(self, reason: str) -> None:
        if not self._armed or self._context is None:
            self._early = reason
            return
        if not self._context._stop(reason):
            return
        self._armed = False
        if self._cancel_task is not None:
            self._cancel_task(reason)
            return
        sessions.close_connections()
        raise SoftStop(reason)

    # What the context of the running job sends.

    def heartbeat(self) -> None:
        """A sign of life, from any thread of the handler."""
        self._line.send(messages.heartbeat(self._speaking()))

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """How far the job is, from any thread of the handler."""
        self._line.send(messages.progress(self._speaking(), fraction, message, data))

    def checkpoint(self, state: str) -> None:
        """Save JSON text; returns when it is durable. Main thread only."""
        self._call("checkpoint", state=state)

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout; when the soft signal comes now. Main thread only."""
        return datetime.fromisoformat(self._call("extend", by_ms=by_ms))

    def _call(self, verb: str, **arguments: Any) -> Any:
        """Send a call about the running job and wait for the reply."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("to be called from the handler's own thread")
        self._asked += 1
        number = self._asked
        self._line.send(messages.call(self._speaking(), number, verb, **arguments))
        while number not in self._replies:
            if not self._line.receive(lambda: number in self._replies):
                raise LeaseGone("the worker is gone")
            self._sort()
        reply = self._replies.pop(number)
        error = reply.get("error")
        if error is None:
            return reply["value"]
        if error == "lost":
            raise LeaseGone(reply["message"])
        if error == "conflict":
            raise Conflict(reply["message"])
        raise RuntimeError(reply["message"])

    def _speaking(self) -> str:
        if self._current is None or self._context is None or os.getpid() != self._pid:
            raise RuntimeError("no job is running in this process")
        return self._current
