"""What the workers of the process tests run. ``diary`` is a file that tells the test what happened."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import subprocess
import threading
import time
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_ojs.api import JobContext, SoftStop, batch, current, job, uuid7
from django_ojs.models import Queue
from tests.support import not_none
from tests.workload import coroutines, exclusive, logged, misbehaving, stopping  # noqa: F401
from tests.workload.tools import AT_ONCE, DEAF, LATER, SOFT, note, wait_for


@job("work.echo")
def echo(value: Any) -> Any:
    return value


@job("work.start-of-tick", retry=AT_ONCE)
def start_of_tick(ctx: JobContext) -> str:
    """Enqueues a workflow under the id of its tick, and dies the first time."""
    tick = datetime.fromisoformat(ctx.meta["cron_triggered_at"])
    made = batch(echo.steps([[1], [2]]), on_success=echo.step(3)).enqueue(id=uuid7(tick, "numbers"))
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(made.id)


@job("work.keywords", retry={"max_attempts": 1})
def keywords(ctx: JobContext, first: Any, *rest: Any, only: Any, more: Any = "default") -> list[Any]:
    return [first, list(rest), only, more, ctx.args, ctx.kwargs]


@job("work.keywords-async", retry={"max_attempts": 1})
async def keywords_async(*, only: Any, **others: Any) -> list[Any]:
    return [only, others]


@job("work.enqueue-echo", retry=LATER)
def enqueue_echo() -> None:
    echo.enqueue("from a handler")


@job("work.pid", retry=LATER)
def pid(diary: str) -> int:
    note(diary, "pid", os.getpid())
    return os.getpid()


@job("work.hold", retry=AT_ONCE)
def hold(ctx: JobContext, diary: str, until: str) -> str:
    """Runs until the file ``until`` exists."""
    note(diary, "started", ctx.attempt, os.getpid())
    wait_for(until)
    note(diary, "finished", ctx.attempt)
    return f"attempt {ctx.attempt}"


@job("work.hold-once", retry={"max_attempts": 1})
def hold_once(diary: str, until: str) -> None:
    note(diary, "started", os.getpid())
    wait_for(until)


@job("work.loop", **SOFT)
def loop(diary: str) -> None:
    note(diary, "started", os.getpid())
    while True:
        pass


@job("work.swallow", **DEAF)
def swallow(diary: str) -> None:
    """Catches everything, with a child and a grandchild in a session of its own."""
    child = subprocess.Popen(["sleep", "300"])
    detached = subprocess.Popen(
        ["sh", "-c", "setsid sleep 301 >/dev/null 2>&1 & echo $!"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert detached.stdout is not None
    grandchild = detached.stdout.readline().strip()
    note(diary, "started", os.getpid(), child.pid, grandchild)
    while True:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(0.01)


@job("work.mask", **DEAF)
def mask(diary: str) -> None:
    """Blocks every signal that can be blocked, in its own thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    note(diary, "started", os.getpid())
    while True:
        time.sleep(0.01)


@job("work.hold-gil", **DEAF)
def hold_gil(diary: str) -> None:
    """A C call that keeps the interpreter lock."""
    note(diary, "started", os.getpid())
    sum(range(1 << 60))


@job("work.late-result", **SOFT)
def late_result(diary: str) -> str:
    try:
        time.sleep(300)
    except SoftStop as stop:
        note(diary, "stopped", stop.reason)
    return "late"


@job("work.clean-up", **{**SOFT, "retry": AT_ONCE})
def clean_up(ctx: JobContext, diary: str) -> Any:
    """The first attempt saves a checkpoint in its clean-up, the second returns it."""
    if ctx.last_checkpoint is not None:
        return ctx.last_checkpoint
    try:
        time.sleep(300)
    finally:
        ctx.checkpoint({"row": 41, "attempt": ctx.attempt})
        note(diary, "saved")


@job("work.slow-clean-up", **DEAF)
def slow_clean_up(diary: str) -> None:
    note(diary, "started", os.getpid())
    try:
        time.sleep(300)
    finally:
        time.sleep(300)


@job("work.query-in-clean-up", **SOFT)
def query_in_clean_up(name: str) -> None:
    """The signal comes inside a transaction; the clean-up uses the database again."""
    try:
        with transaction.atomic():
            Queue.objects.create(name=f"{name}-lost")
            while True:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                    cursor.fetchone()
                time.sleep(0.01)
    finally:
        Queue.objects.create(name=f"{name}-kept")


@job("work.patient", timeout=4, grace_period=30, retry=LATER)
def patient(diary: str, until: str) -> str:
    note(diary, "started", os.getpid())
    wait_for(until)
    return "done"


@job("work.extend", timeout=4, grace_period=1, retry=LATER)
def extend(ctx: JobContext) -> str:
    """Longer than its timeout, as it says itself."""
    before = ctx.deadline
    after = ctx.extend_timeout(30)
    time.sleep(4.5)
    return f"{(after - before).total_seconds():g}"


@job("work.shielded", **SOFT)
def shielded(ctx: JobContext, diary: str) -> None:
    with ctx.shield():
        until = time.monotonic() + SOFT["timeout"] + 0.5
        while time.monotonic() < until:
            time.sleep(0.01)
        note(diary, "whole", ctx.cancelled)
    time.sleep(300)


@job("work.steps", heartbeat_timeout=8, timeout=60, retry=LATER)
def steps(ctx: JobContext, diary: str, until: str) -> Any:
    """Saves a checkpoint and waits; a later attempt resumes from it."""
    if ctx.last_checkpoint is not None:
        note(diary, "resumed", ctx.attempt)
        return {"resumed_from": ctx.last_checkpoint}
    ctx.checkpoint({"step": 7})
    note(diary, "started", os.getpid())
    wait_for(until)
    return "first attempt"


@job("work.reports", timeout=60, retry={"initial_interval": "100ms", "jitter": False})
def reports(ctx: JobContext, diary: str) -> Any:
    """Reports progress with data and waits to be killed; a later attempt returns what it was given."""
    if ctx.attempt == 1:
        ctx.progress(0.5, "half", data={"row": 41})
        note(diary, "started", os.getpid())
        time.sleep(300)
    return ctx.last_progress_data


@job(
    "work.silent",
    heartbeat="manual",
    heartbeat_timeout=5,
    timeout=60,
    grace_period=1,
    retry=LATER,
)
def silent(ctx: JobContext, diary: str) -> None:
    """Speaks once and then never again."""
    ctx.heartbeat()
    note(diary, "started", os.getpid())
    while True:
        time.sleep(0.01)


@job("work.exit", retry=LATER)
def exit_now(status: int) -> None:
    os._exit(status)


@job("work.segfault", retry=LATER)
def segfault() -> None:
    import faulthandler

    faulthandler.disable()
    ctypes.string_at(0)


@job("work.kill-self", retry=LATER)
def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Strange(BaseException):
    """Not an ``Exception``."""


class Unspeakable(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


_RAISED: dict[str, type[BaseException]] = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "Strange": Strange,
    "Unspeakable": Unspeakable,
    "StopIteration": StopIteration,
    "RecursionError": RecursionError,
    "MemoryError": MemoryError,
}


@job("work.raise", retry=LATER)
def raise_it(name: str) -> None:
    raise _RAISED[name]("of my own")


@job("work.raise-text", retry=LATER)
def raise_text(repeat: int) -> None:
    raise ValueError("\x00\ud800 text " * repeat)


@job("work.recurse", retry=LATER)
def recurse() -> None:
    recurse.function()


@job("work.result", retry=LATER)
def result(kind: str) -> Any:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    return {
        "large": "x" * (1 << 20),
        "object": object(),
        "bytes": b"x",
        "nul": "a\x00b",
        "nan": float("nan"),
        "surrogate": "\ud800",
        "key": {1: 2},
        "cycle": cyclic,
        "django": {"id": UUID(int=1), "price": Decimal("1.10")},
    }[kind]


@job("work.fork", retry=LATER)
def fork(diary: str) -> str:
    """Forks, and the child comes back out of the handler too."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        note(diary, "parent", os.getpid())
        return "parent"
    return "child"


@job("work.close-descriptors", retry=LATER)
def close_descriptors() -> None:
    os.closerange(3, 4096)


@job("work.async-orm", retry=LATER)
async def count_async() -> int:
    await Queue.objects.acount()
    return os.getpid()


_client: asyncio.Event | None = None


@job("work.async-client", retry=LATER)
async def use_client() -> list[Any]:
    """A client at the level of the module binds to the first event loop that it is used in."""
    global _client
    if _client is None:
        _client = asyncio.Event()
    waiting = asyncio.create_task(_client.wait())
    await asyncio.sleep(0)
    _client.set()
    await waiting
    _client.clear()
    return [os.getpid(), id(asyncio.get_running_loop())]


@job("work.async-leave", retry=LATER)
async def leave_async(what: str) -> int:
    """Leaves a task, one that will not end, or a call in a thread."""
    if what == "task":
        _kept.append(asyncio.create_task(asyncio.sleep(300)))
    elif what == "stubborn task":
        _kept.append(asyncio.create_task(coroutines.stubborn()))
        await asyncio.sleep(0)
    else:
        _kept.append(asyncio.get_running_loop().run_in_executor(None, time.sleep, 2))
    return os.getpid()


_kept: list[asyncio.Future[Any]] = []


@job("work.async-exit", retry=LATER)
async def exit_async(name: str, where: str) -> None:
    """Raises it, or has a task of its own raise it."""

    async def leave() -> None:
        raise _RAISED[name]("of my own")

    await (leave() if where == "itself" else asyncio.create_task(leave()))


@job("work.async-thread", retry=LATER)
async def think_async() -> int:
    await asyncio.to_thread(time.sleep, 0.001)
    return os.getpid()


_CHANGE = {
    "postgresql": ("SHOW statement_timeout", "SET statement_timeout = 12345"),
    "mysql": ("SELECT @ojs_left", "SET @ojs_left = 12345"),
    "sqlite": ("PRAGMA cache_size", "PRAGMA cache_size = 123"),
}


@job("work.async-session", retry=LATER)
async def change_session_async() -> list[Any]:
    """What a setting of the session was before it is changed."""

    def change() -> str:
        look, statement = _CHANGE[connection.vendor]
        with connection.cursor() as cursor:
            cursor.execute(look)
            found = str(cursor.fetchone())
            cursor.execute(statement)
        return found

    return [os.getpid(), await sync_to_async(change)()]


@job("work.exporter", retry=LATER)
def export(name: str) -> int:
    """Starts the thread of an exporter, where there is none yet."""
    if name not in {thread.name for thread in threading.enumerate()}:
        threading.Thread(target=time.sleep, args=(300,), name=name, daemon=True).start()
    return os.getpid()


@job("work.short-thread", retry=LATER)
def leave_short_thread() -> int:
    threading.Thread(target=time.sleep, args=(0.02,)).start()
    return os.getpid()


@job("work.garbage", retry=LATER)
def garbage(diary: str) -> None:
    """Writes into every socket it finds; it may be killed at the first."""
    note(diary, "wrote", os.getpid())
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), b"GARBAGE GARBAGE GARBAGE")
    time.sleep(300)


@job("work.collections", retry=LATER)
def collect_after() -> int:
    return gc.get_threshold()[0]


@job("work.thread", retry=LATER)
def leave_thread() -> int:
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
    return os.getpid()


@job("work.children", retry=LATER)
def leave_children(diary: str) -> int:
    child = subprocess.Popen(["sleep", "300"])
    detached = subprocess.Popen(["sleep", "301"], start_new_session=True)
    note(diary, "children", child.pid, detached.pid)
    return os.getpid()


@job("work.open-transaction", retry=LATER)
def open_transaction(name: str) -> int:
    transaction.set_autocommit(False)
    Queue.objects.create(name=name)
    return os.getpid()


@job("work.open-atomic", retry=LATER)
def open_atomic(name: str) -> int:
    transaction.atomic().__enter__()
    Queue.objects.create(name=name)
    return os.getpid()


@job("work.write", retry=LATER)
def write(name: str) -> int:
    Queue.objects.create(name=name)
    return os.getpid()


@job("work.async", **SOFT)
async def sleep_async(diary: str) -> None:
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        note(diary, "cancelled")
        raise


@job("work.async-deaf", **DEAF)
async def deaf_async(diary: str) -> None:
    note(diary, "started", os.getpid())
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(300)


@job("work.async-busy", **DEAF)
async def busy_async(diary: str) -> None:
    """Never gives the loop a turn."""
    note(diary, "started", os.getpid())
    while True:
        pass


@job("work.async-echo")
async def echo_async(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


@job("work.stop-self", **DEAF, heartbeat_timeout=60)
def stop_self(diary: str) -> None:
    note(diary, "started", os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(300)


@job("work.parents", retry=AT_ONCE)
def parents(ctx: JobContext) -> list[Any]:
    """Returns what it was given by those before it."""
    return ctx.parent_results


@job("work.spread", retry=AT_ONCE)
def spread(ctx: JobContext, values: list[Any]) -> int:
    """Adds a member to its workflow for each value."""
    assert ctx.workflow is not None
    return len([ctx.workflow.add(echo.step(value)) for value in values])


@job("work.current")
def current_job() -> list[str]:
    """The job that runs, as a function sees it that was handed nothing."""
    running = not_none(current())
    threaded: list[object] = []
    thread = threading.Thread(target=lambda: threaded.append(current()))
    thread.start()
    thread.join()
    return [running.id, running.type, str(threaded[0])]


@job("work.current-async")
async def current_job_async() -> list[str]:
    """The same in a coroutine, a task, and the thread for synchronous code."""
    found = [current(), await asyncio.create_task(_current()), await sync_to_async(current)()]
    return [not_none(one).id for one in found]


async def _current() -> JobContext | None:
    return current()


@job("work.log", retry=LATER)
def log(text: str) -> None:
    """Writes a line, as a library would that knows nothing of jobs."""
    logging.getLogger("shop.orders").info("says %s", text, extra={"order": 7})


@job("work.tell-sentry", retry=LATER)
def tell_sentry(text: str) -> None:
    """Sends a message of its own, and leaves a tag behind."""
    import sentry_sdk

    sentry_sdk.set_tag("left_behind", text)
    sentry_sdk.capture_message(text)


@job("work.fail-with", retry=LATER)
def fail_with(text: str) -> None:
    raise LookupError(f"no entry of {len(text)} letters")
