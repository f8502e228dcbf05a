"""The child process that runs handlers: one job at a time, in its main thread (or many coroutines:
:mod:`~django_ojs.worker.executor.shared`).

Whatever a handler does, its outcome is reported, or the process ends and the monitor reports that.
SIGUSR1 only wakes the main thread. The frame names the lease: a late signal cannot stop the next job.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from django_ojs import clock, hooks
from django_ojs.handlers import execution, registry
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import LeaseGone, SoftStop
from django_ojs.handlers.registry import JobHandler
from django_ojs.worker import sessions
from django_ojs.worker.executor import cleanup, signal_calls
from django_ojs.worker.executor.background import is_background
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.executor.event_loop import CoroutineRunner
from django_ojs.worker.executor.invoke import failure_of, invoke
from django_ojs.worker.executor.liveness import LivenessThread
from django_ojs.worker.executor.log_capture import LogCapture, LoggedLines
from django_ojs.worker.executor.requests import Requests, context_of, value_of
from django_ojs.worker.executor.results import result_text
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import WAKEUP_SIGNAL, Frame
from django_ojs.worker.prefork.journal import Journal

_READ_EVERY = 0.05


def serve(channel: socket.socket, liveness: int) -> None:
    """Run jobs from ``channel`` until it closes; write to ``liveness`` while a job runs."""
    executor = Executor(channel, liveness)
    executor.run()
    executor.close()
    hooks.run_before_exit()


class Executor(Requests):
    """The state of one executor process.

    ``_current`` is the lease between ``begin`` and ``done``; only while ``_armed`` may the wake-up
    signal raise. ``_early`` keeps a request to stop that arrives before that.
    """

    def __init__(self, channel: socket.socket, liveness: int) -> None:
        self._channel = Channel(channel, self._on_wakeup, Journal.received(channel))
        self._liveness = LivenessThread(liveness)
        self._pid = os.getpid()
        self._main = threading.get_ident()
        self._jobs: deque[Frame] = deque()
        self._replies: dict[int, Frame] = {}
        self._asked = 0
        self._read_at = 0.0
        self._current: str | None = None
        self._armed = False
        self._early: str | None = None
        self._context: JobContext | None = None
        self._cancel_task: Callable[[str], object] | None = None
        self._spoilt = False
        self._ended: Frame | str | None = None
        """The end of the last job, which is sent with the start of the next."""
        self._slots = 0
        self._logged: LoggedLines | None = None

    def run(self) -> None:
        """Run jobs until the supervisor closes the channel."""
        signal.signal(WAKEUP_SIGNAL, self._woken)
        cleanup.drop_inherited_connections()
        self._liveness.start()
        self._loop = CoroutineRunner()
        self._surroundings = cleanup.Surroundings(self._loop)
        self._capture = LogCapture.if_wanted(self._channel, self._logging)
        if self._capture is not None:
            self._liveness.also = self._capture.send_waiting
        self._channel.send(messages.READY)
        while True:
            self._sort()
            while not self._jobs and not self._slots:
                if self._ended is not None:
                    self._channel.buffer(self._ended)
                    self._ended = None
                self._channel.flush()
                if not self._channel.receive(lambda: self._jobs or self._slots):
                    return
                self._read_at = clock.boottime()
                self._sort()
            if self._slots:
                self._share()
                return
            try:
                frame = self._jobs.popleft()
            except IndexError:
                # The wake-up signal has just given the last one back.
                continue
            self._run_one(frame)
            if clock.boottime() - self._read_at > _READ_EVERY:
                # A handler may have disabled the wake-up signal.
                self._channel.peek()
                self._read_at = clock.boottime()

    def _share(self) -> None:
        """Run coroutines only, until the channel closes."""
        # Imported here: most executors run one job at a time.
        from django_ojs.worker.executor.shared import SharedExecutor

        SharedExecutor(self._channel, self._liveness, self._slots, self._capture).run()

    def close(self) -> None:
        """End what outlives a job."""
        self._loop.close()

    def _run_one(self, frame: Frame) -> None:
        self._current = frame["lease"]
        began = clock.boottime()
        ended, self._ended = self._ended, None
        lease = frame["lease"]
        begin = messages.begin(lease) if ended is None else messages.followed(ended, lease)
        if not self._channel.leave(begin, self._jobs):
            self._channel.send(begin)
        signal_calls.signal(WAKEUP_SIGNAL, self._woken)
        if self._capture is not None:
            self._logged = self._capture.begin(frame["lease"])
        outcome = self._outcome(frame)
        if os.getpid() != self._pid:
            # The handler has forked, and this is the child: it must not report for the job.
            os._exit(0)
        self._liveness.idle()
        left = self._surroundings.after_job()
        took = round(clock.boottime() - began, 6)
        if self._capture is not None and self._logged is not None:
            logged, self._logged = self._logged, None
            self._capture.end(logged)
        done = messages.done(frame["lease"], took, left, outcome)
        self._current, self._early = None, None
        if not left:
            self._ended = done
        else:
            self._channel.buffer(done)
            # The supervisor replaces this process: no other job may see what this one has left.
            self._spoilt = True
            for waiting in reversed(self._jobs.copy()):
                self._give_back(waiting["lease"])

    def _outcome(self, frame: Frame) -> Frame:
        context = self._context = context_of(frame, self)
        self._liveness.busy(frame["liveness_s"], frame["type"], context.id)
        try:
            handler = registry.find(frame["type"])
            self._surroundings.before_job()
            execution.running.set(context)
            result = execution.run(context, lambda given: self._handle(handler, given))
        except BaseException as error:
            return {"ok": False, "failure": failure_of(error, context.cancel_reason)}
        finally:
            self._context = None
            execution.running.set(None)
        try:
            return {"ok": True, "result": result_text(result)}
        except BaseException as error:
            return {"ok": False, "failure": failure_of(error, None)}

    def _handle(self, handler: JobHandler[Any, Any], context: JobContext) -> Any:
        """Run the handler: only here may a request to stop raise, never in the middleware."""
        returned: list[Any] = []
        context._soft = handler.soft
        try:
            self._armed = True
            if self._early is not None:
                self._interrupt(self._early)
            returned.append(invoke(handler, context, self._loop, self._set_canceller))
            self._armed = False
        except BaseException as error:
            self._armed = False
            # If the signal arrived after the handler had returned, its result stands.
            if not (returned and isinstance(error, SoftStop)):
                raise
        return returned[0]

    def _logging(self, record: logging.LogRecord) -> LoggedLines | None:
        """The lines of the running job: whatever its threads log, but not those of exporters."""
        if self._logged is None or threading.get_ident() == self._main:
            return self._logged
        return None if is_background(threading.current_thread()) else self._logged

    def _set_canceller(self, cancel: Callable[[str], object] | None) -> None:
        if cancel is None:
            # Before: the signal must find it disarmed, or somebody to tell.
            self._armed = False
        self._cancel_task = cancel

    def _woken(self, number: int, stack: object) -> None:
        if os.getpid() == self._pid:
            self._channel.wake()

    def _on_wakeup(self) -> None:
        self._channel.peek()
        self._sort()

    def _sort(self) -> None:
        """Sort jobs and replies into their queues, and carry out orders.

        What stands behind ``share``, the first frame if there is one, is for the shared executor.
        """
        while not self._slots and (frame := self._channel.take()) is not None:
            match frame["op"]:
                case "run":
                    self._jobs.append(frame)
                    if self._spoilt:
                        self._give_back(frame["lease"])
                case "share":
                    self._slots = frame["slots"]
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
                self._channel.send(messages.returned(lease))
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

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Make a call about the running job and wait for the reply. Main thread only."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("must be called from the main thread of the handler")
        self._asked += 1
        number = self._asked
        self.send(messages.call(self.lease, number, verb, **arguments))
        while number not in self._replies:
            if not self._channel.receive(lambda: number in self._replies):
                raise LeaseGone("the worker has ended")
            self._sort()
        return value_of(self._replies.pop(number))

    def send(self, frame: Frame) -> None:
        """Send a frame about the running job; from any thread of the handler."""
        self._channel.send(frame)

    @property
    def lease(self) -> str:
        """The lease of the running job."""
        if self._current is None or self._context is None or os.getpid() != self._pid:
            raise RuntimeError("no job is running in this process")
        return self._current
