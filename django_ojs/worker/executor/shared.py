"""An executor that runs many coroutines at a time, in one event loop (``ASYNC_SLOTS``).

Each job has its own context, its own thread for what Django calls thread-sensitive, and so its own
connections. Only the process can end a coroutine that swallows its cancellation: the supervisor does
that, and releases the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import SyncToAsync, async_to_sync, sync_to_async

from django_ojs import clock
from django_ojs.handlers import execution, registry
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import LeaseGone, SoftStop
from django_ojs.handlers.registry import JobHandler
from django_ojs.worker import sessions
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.executor.cleanup import CHECK_AFTER_IDLE, try_connections
from django_ojs.worker.executor.event_loop import PATIENCE_S, CountingPool
from django_ojs.worker.executor.invoke import failure_of
from django_ojs.worker.executor.liveness import LivenessThread
from django_ojs.worker.executor.log_capture import LogCapture, LoggedLines
from django_ojs.worker.executor.loop_watch import LoopWatch
from django_ojs.worker.executor.requests import Requests, context_of, value_of
from django_ojs.worker.executor.results import result_text
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import Frame


class JobThread(ThreadPoolExecutor):
    """The thread in which the ORM runs for one job at a time. It keeps its connections."""

    def __init__(self) -> None:
        super().__init__(1, thread_name_prefix="django_ojs-job")
        self.used = False
        self._idle_since = clock.boottime()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in the thread; the first one of a job tests connections that were idle."""
        if not self.used:
            self.used = True
            if clock.boottime() - self._idle_since > CHECK_AFTER_IDLE:
                super().submit(try_connections)
        return super().submit(call, *args, **kwargs)

    async def tidy(self) -> bool:
        """Roll back what the job has left open; return False if the thread is still at work."""
        if not self.used:
            return True
        tidied = asyncio.wrap_future(super().submit(sessions.tidy_connections))
        done, _ = await asyncio.wait({tidied}, timeout=PATIENCE_S)
        self.used, self._idle_since = False, clock.boottime()
        return bool(done)


class JobTask(asyncio.Task[Any]):
    """A task that knows for which job it runs, also if the handler has made it."""

    job: SharedJob | None = None


class SharedExecutor:
    """Runs coroutines until the channel closes. ``run`` in the main thread."""

    def __init__(
        self,
        channel: Channel,
        liveness: LivenessThread,
        slots: int,
        capture: LogCapture | None = None,
    ) -> None:
        self.channel = channel
        self._capture = capture
        if capture is not None:
            capture.find = _logging
        self._liveness = liveness
        self._slots = slots
        self._pid = os.getpid()
        self._jobs: dict[str, SharedJob] = {}
        self._threads: list[JobThread] = []
        self._asked = 0
        self._pool = CountingPool()
        self._asking = ThreadPoolExecutor(slots, thread_name_prefix="django_ojs-call")
        self._period = 1.0
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Serve until the supervisor closes the channel."""
        with asyncio.Runner() as runner:
            self.loop = runner.get_loop()
            self.loop.set_task_factory(_task)
            self.loop.set_default_executor(self._pool)
            self._watch = LoopWatch(self.loop, self._report_blocked)
            self._watch.start()
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._ended = self.loop.create_future()
        self.channel.on_wakeup(self._on_wakeup)
        self.loop.add_reader(self.channel.fileno(), self._read)
        self._read()
        await self._ended
        self.loop.remove_reader(self.channel.fileno())
        self._watch.rest()
        for job in self._jobs.values():
            job.end_calls("the worker has ended")

    # Messages of the supervisor.

    def _read(self) -> None:
        self.channel.peek()
        self._sort()
        if self.channel.closed and not self._ended.done():
            self._ended.set_result(None)

    def _sort(self) -> None:
        """Begin jobs, hand over replies, carry out orders. In the loop."""
        while (frame := self.channel.take()) is not None:
            match frame["op"]:
                case "run":
                    self._begin(frame)
                case "reply":
                    self._reply(frame)
                case "cancel" if (job := self._jobs.get(frame["lease"])) is not None:
                    job.stop(frame["reason"])

    def _on_wakeup(self) -> None:
        """Answer the wake-up signal, which may have interrupted a coroutine that holds the loop.

        Only here can that one be asked to stop, and jobs be given back that it keeps from beginning.
        """
        self.channel.peek()
        orders = {frame["lease"]: frame for frame in self.channel.arrived if frame["op"] != "reply"}
        for frame in [one for one in self.channel.arrived if one["op"] == "run"]:
            if orders[frame["lease"]]["op"] in ("return", "cancel"):
                self.channel.arrived.remove(frame)
                self.channel.send(messages.returned(frame["lease"]))
        # Not in the context of the interrupted one: the jobs would begin as tasks of its job.
        self.loop.call_soon_threadsafe(self._sort, context=self._context)
        task = asyncio.current_task(self.loop)
        if not isinstance(task, JobTask) or task.job is None:
            return
        order = orders.get(task.job.lease)
        if order is not None and order["op"] == "cancel":
            self.channel.arrived.remove(order)
            task.job.interrupt(task, order["reason"])

    def _begin(self, frame: Frame) -> None:
        job = self._jobs[frame["lease"]] = SharedJob(self, frame)
        if len(self._jobs) == 1:
            self._watch.wake()
        self._show(frame["liveness_s"])
        self.loop.create_task(self._run(job))

    async def _run(self, job: SharedJob) -> None:
        began = clock.boottime()
        # Sent at once: the handler may hold the loop from its first step on.
        self.channel.send(messages.begin(job.lease))
        thread = self._threads.pop() if self._threads else JobThread()
        if self._capture is not None:
            job.logged = self._capture.begin(job.lease)
        outcome = await job.outcome(thread)
        if os.getpid() != self._pid:
            # The handler has forked, and this is the child: it must not report for the job.
            os._exit(0)
        left = await job.end_tasks()
        tidy = await thread.tidy()
        if tidy:
            self._threads.append(thread)
        if not tidy or self._pool.runs_for(job.context):
            left.append("threads")
        took = round(clock.boottime() - began, 6)
        if self._capture is not None and job.logged is not None:
            logged, job.logged = job.logged, None
            self._capture.end(logged)
        self.channel.buffer(messages.done(job.lease, took, left, outcome))
        self.loop.call_soon(self.channel.flush)
        # The supervisor answers no call of a job that has ended.
        job.end_calls("the job has ended")
        del self._jobs[job.lease]
        self._show()

    def _reply(self, frame: Frame) -> None:
        for job in self._jobs.values():
            if (waiting := job.calls.pop(frame["number"], None)) is not None:
                waiting.set_result(frame)
                return

    def _show(self, period: float = 1.0) -> None:
        """Show signs of life as often as the most demanding job since the last idle moment asks for."""
        if not self._jobs:
            self._period = 1.0
            self._liveness.idle()
            self._watch.rest()
            return
        self._period = min(self._period, period)
        self._liveness.busy(self._period, f"{len(self._jobs)} of {self._slots}", "coroutines")

    def _report_blocked(self, task: asyncio.Task[Any] | None, seconds: float) -> None:
        if isinstance(task, JobTask) and task.job is not None:
            self.channel.send(messages.blocked(task.job.lease, seconds))

    # Requests of handlers.

    def ask(self, job: SharedJob, verb: str, **arguments: Any) -> Any:
        """Make a call and wait for the reply; not in the thread of the loop, which it would hold."""
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError(
                "this would hold up the other coroutines of this process: use await ctx.acheckpoint(), "
                "aextend_timeout(), aparent_results() or workflow.aadd()"
            )
        reply: Future[Frame] = Future()
        self.loop.call_soon_threadsafe(self._send_call, reply, job, verb, arguments)
        return value_of(reply.result())

    def _send_call(
        self, reply: Future[Frame], job: SharedJob, verb: str, arguments: dict[str, Any]
    ) -> None:
        if job.lease not in self._jobs:
            reply.set_exception(LeaseGone("the job has ended"))
            return
        self._asked += 1
        job.calls[self._asked] = reply
        self.channel.send(messages.call(job.lease, self._asked, verb, **arguments))

    async def elsewhere(self, ask: Callable[[], Any]) -> Any:
        """Run what asks, and waits, in a thread."""
        return await self.loop.run_in_executor(self._asking, ask)


class SharedJob(Requests):
    """One coroutine job, and the tasks that it has made."""

    def __init__(self, executor: SharedExecutor, frame: Frame) -> None:
        self._executor = executor
        self._lease = frame["lease"]
        self.context = context_of(frame, self)
        self.context._elsewhere = executor.elsewhere
        self.tasks: set[JobTask] = set()
        self.calls: dict[int, Future[Frame]] = {}
        """The calls that wait for a reply, by their number."""
        self.logged: LoggedLines | None = None
        self._task: asyncio.Task[Any] | None = None
        self._early: str | None = None
        self._exited: BaseException | None = None

    @property
    def lease(self) -> str:
        """The lease of the job."""
        return str(self._lease)

    def send(self, frame: Frame) -> None:
        """Send a frame; from any thread of the handler. Raises :class:`LeaseGone` after its end."""
        if self._lease not in self._executor._jobs:
            raise LeaseGone("the job has ended")
        self._executor.channel.send(frame)

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Make a call and wait for the reply; from any thread but that of the loop."""
        return self._executor.ask(self, verb, **arguments)

    def end_calls(self, why: str) -> None:
        """Let no thread wait for a reply that will not come."""
        while self.calls:
            self.calls.popitem()[1].set_exception(LeaseGone(why))

    async def outcome(self, thread: JobThread) -> Frame:
        """Run the handler; return what to report."""
        context = self.context
        try:
            handler = registry.find(context.type)
            context._soft = handler.soft
            execution.running.set(context)
            # As asgiref's ThreadSensitiveContext does it, which would end the thread with the job.
            SyncToAsync.thread_sensitive_context.set(self)  # type: ignore[arg-type]
            SyncToAsync.context_to_thread_executor[self] = thread  # type: ignore[index]
            if execution.chain.members():
                # Middleware is not asynchronous: it runs in the thread of the job, around it.
                around = sync_to_async(execution.run, thread_sensitive=True)
                result = await around(
                    context, lambda given: async_to_sync(self._handle)(handler, given)
                )
            else:
                result = await self._handle(handler, context)
            return {"ok": True, "result": result_text(result)}
        except BaseException as error:
            return {"ok": False, "failure": failure_of(error, context.cancel_reason)}
        finally:
            SyncToAsync.context_to_thread_executor.pop(self, None)  # type: ignore[call-overload]

    async def _handle(self, handler: JobHandler[Any, Any], context: JobContext) -> Any:
        self._task = self._executor.loop.create_task(self._guarded(handler, context))
        if self._early is not None:
            self.stop(self._early)
        try:
            result = await self._task
        except asyncio.CancelledError:
            if context.cancel_reason is not None:
                raise SoftStop(context.cancel_reason) from None
            raise
        if self._exited is not None:
            raise self._exited
        return result

    async def _guarded(self, handler: JobHandler[Any, Any], context: JobContext) -> Any:
        """Call the handler; asyncio would end the loop by what asks the process to exit."""
        try:
            return await handler.call(context)
        except (SystemExit, KeyboardInterrupt) as error:
            self._exited = error

    def stop(self, reason: str) -> None:
        """Ask the handler to stop. In the loop."""
        if self._task is None:
            self._early = reason
        elif not self._task.done() and self.context._stop(reason):
            self._task.cancel(reason)

    def interrupt(self, task: JobTask, reason: str) -> None:
        """Ask the handler to stop, which holds the loop in this task. In a signal handler."""
        if self._task is None or self._task.done() or not self.context._stop(reason):
            return
        if task is not self._task:
            self._executor.loop.call_soon_threadsafe(self._task.cancel, reason)
        raise SoftStop(reason)

    async def end_tasks(self) -> list[str]:
        """End the tasks that the handler has left; name what does not end."""
        others = {task for task in self.tasks if not task.done()}
        for task in others:
            task.cancel()
        if not others:
            return []
        _, late = await asyncio.wait(others, timeout=PATIENCE_S)
        return ["tasks"] if late else []


def _logging(record: logging.LogRecord) -> LoggedLines | None:
    """The lines of the job in whose context is logged."""
    context = execution.current()
    job = None if context is None else context._supervisor
    return job.logged if isinstance(job, SharedJob) else None


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task, and note for which job: that in whose context it is made."""
    task = JobTask(coro, loop=loop, **options)
    context = execution.current()
    job = None if context is None else context._supervisor
    if isinstance(job, SharedJob):
        task.job = job
        job.tasks.add(task)
        task.add_done_callback(job.tasks.discard)
    return task
