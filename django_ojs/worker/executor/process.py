"""The child process that runs handlers: one job at a time, in its main thread.

Whatever a handler does, its outcome is reported, or the process ends and the monitor reports that.
SIGUSR1 only wakes the main thread. The frame names the lease: a late signal cannot stop the next job.
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

from django_ojs import clock, hooks
from django_ojs.domain.errors import Conflict
from django_ojs.handlers import execution, registry
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import LeaseGone, SoftStop
from django_ojs.handlers.registry import JobHandler
from django_ojs.worker import sessions
from django_ojs.worker.executor import cleanup, signal_calls
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.executor.event_loop import CoroutineRunner
from django_ojs.worker.executor.invoke import failure_of, invoke
from django_ojs.worker.executor.liveness import LivenessThread
from django_ojs.worker.executor.results import result_text
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import WAKEUP_SIGNAL, Frame

_READ_EVERY = 0.05


def serve(channel: socket.socket, liveness: int) -> None:
    """Run jobs from ``channel`` until it closes; write to ``liveness`` while a job runs."""
    executor = Executor(channel, liveness)
    executor.run()
    executor.close()
    hooks.run_before_exit()


class Executor:
    """The state of one executor process.

    ``_current`` is the lease between ``begin`` and ``done``; only while ``_armed`` may the wake-up
    signal raise. ``_early`` keeps a request to stop that arrives before that.
    """

    def __init__(self, channel: socket.socket, liveness: int) -> None:
        self._channel = Channel(channel, self._on_wakeup)
        self._liveness = LivenessThread(liveness)
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
        """Run jobs until the supervisor closes the channel."""
        signal.signal(WAKEUP_SIGNAL, self._woken)
        cleanup.drop_inherited_connections()
        self._liveness.start()
        self._loop = CoroutineRunner()
        self._surroundings = cleanup.Surroundings(self._loop)
        self._channel.send(messages.READY)
        while True:
            self._sort()
            while not self._jobs:
                self._channel.flush()
                if not self._channel.receive(lambda: self._jobs):
                    return
                self._read_at = clock.boottime()
                self._sort()
            self._run_one(self._jobs.popleft())
            if clock.boottime() - self._read_at > _READ_EVERY:
                # A handler may have disabled the wake-up signal.
                self._channel.peek()
                self._read_at = clock.boottime()

    def close(self) -> None:
        """End what outlives a job."""
        self._loop.close()

    def _run_one(self, frame: Frame) -> None:
        self._current = frame["lease"]
        began = clock.boottime()
        self._channel.send(messages.begin(frame["lease"]))
        signal_calls.signal(WAKEUP_SIGNAL, self._woken)
        outcome = self._outcome(frame)
        if os.getpid() != self._pid:
            # The handler has forked, and this is the child: it must not report for the job.
            os._exit(0)
        self._liveness.idle()
        left = self._surroundings.after_job()
        took = round(clock.boottime() - began, 6)
        self._channel.buffer(messages.done(frame["lease"], took, left, outcome))
        self._current, self._early = None, None
        if left:
            # The supervisor replaces this process: no other job may see what this one has left.
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
            args=frame["args"],
            last_checkpoint=frame["checkpoint"],
            last_progress_data=frame["progress_data"],
            workflow_id=frame["workflow_id"],
            deadline=datetime.fromisoformat(frame["deadline"]),
        )
        self._liveness.busy(frame["liveness_s"], frame["type"], frame["id"])
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

    def _set_canceller(self, cancel: Callable[[str], None] | None) -> None:
        self._cancel_task = cancel

    def _woken(self, number: int, stack: object) -> None:
        if os.getpid() == self._pid:
            self._channel.wake()

    def _on_wakeup(self) -> None:
        self._channel.peek()
        self._sort()

    def _sort(self) -> None:
        """Sort jobs and replies into their queues, and carry out orders."""
        while self._channel.arrived:
            frame = self._channel.arrived.popleft()
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

    # Called by the context of the running job.

    def heartbeat(self) -> None:
        """Send a sign of life; from any thread of the handler."""
        self._channel.send(messages.heartbeat(self._running_lease()))

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """Report progress; from any thread of the handler."""
        self._channel.send(messages.progress(self._running_lease(), fraction, message, data))

    def checkpoint(self, state: str) -> None:
        """Save JSON text; return when it is durable. Main thread only."""
        self._call("checkpoint", state=state)

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout; return the new time of the soft stop. Main thread only."""
        return datetime.fromisoformat(self._call("extend", by_ms=by_ms))

    def results(self, after: int) -> tuple[list[Any], int | None]:
        """Read results of the workflow behind a place; return the next place. Main thread only."""
        page = self._call("results", after=after)
        return page["values"], page["after"]

    def add(self, call: dict[str, Any]) -> str:
        """Add a member to the workflow; return its id. Main thread only."""
        job_id: str = self._call("add", call=call)
        return job_id

    def _call(self, verb: str, **arguments: Any) -> Any:
        """Make a call about the running job and wait for the reply."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("must be called from the main thread of the handler")
        self._asked += 1
        number = self._asked
        self._channel.send(messages.call(self._running_lease(), number, verb, **arguments))
        while number not in self._replies:
            if not self._channel.receive(lambda: number in self._replies):
                raise LeaseGone("the worker has ended")
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

    def _running_lease(self) -> str:
        if self._current is None or self._context is None or os.getpid() != self._pid:
            raise RuntimeError("no job is running in this process")
        return self._current
