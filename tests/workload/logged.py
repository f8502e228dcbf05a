"""Handlers that log, and what becomes of them then (``OJS["LOGS"]``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time

from asgiref.sync import sync_to_async

from django_ojs.api import JobContext, job
from tests.workload.tools import DEAF, LATER, SOFT, note, wait_for

log = logging.getLogger("shop.orders")
apart = logging.getLogger("shop.apart")
ONCE = {"max_attempts": 1}


@job("logged.completes", retry=LATER)
def completes(word: str) -> None:
    log.debug("not kept")
    log.info("began %s", word)
    print("never a line of the log")
    try:
        raise LookupError(f"{word}\nof two lines")
    except LookupError:
        log.exception("went on with a\x00 \x1b[31m \ud800")


@job("logged.fails", retry=ONCE)
def fails(word: str) -> None:
    log.warning("about %s", word)
    raise ValueError(word)


@job("logged.deaf", **DEAF)
def deaf(diary: str) -> None:
    """Logs much before it has to be killed, so that most of it is not sent at once."""
    for number in range(1_000):
        log.info("line %d", number)
    log.error("now it hangs")
    note(diary, "started", os.getpid())
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            log.info("asked to stop")


@job("logged.crashes", retry=ONCE)
def crashes(how: str) -> None:
    log.info("last words")
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGSEGV)


@job("logged.floods", retry=LATER)
def floods(number: int) -> float:
    """Returns how many seconds its lines took."""
    began = time.monotonic()
    for one in range(number):
        log.info("line %d", one)
    return time.monotonic() - began


class Broken:
    """Cannot be written, and logs while that is tried."""

    def __str__(self) -> str:
        log.info("nested %s", self)
        raise RuntimeError("no text")


@job("logged.broken", retry=ONCE)
def broken() -> str:
    log.info("a number: %d", "none")
    log.info("a thing: %s", Broken())
    log.info(Broken())
    log.info("x" * 1_000_000)
    log.info("many\n" * 10_000)
    return "completed"


@job("logged.threads", retry=LATER)
def threads() -> None:
    """Logs in a thread without a context, from a signal handler and from a process of its own."""

    def work() -> None:
        log.info("in a thread")

    def export() -> None:
        log.info("in an exporter")

    for thread in (threading.Thread(target=work), threading.Thread(target=export, name="OtelBatch")):
        thread.start()
        thread.join()
    before = signal.signal(signal.SIGUSR2, lambda *_: log.info("in a signal handler"))
    os.kill(os.getpid(), signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)
    if (child := os.fork()) == 0:
        log.info("in a child")
        os._exit(0)
    os.waitpid(child, 0)
    apart.info("apart")
    log.info("at the end")


@job("logged.waits", retry=LATER, timeout=60, heartbeat_timeout=8)
def waits(diary: str, flag: str) -> None:
    log.info("waiting")
    note(diary, "started", os.getpid())
    wait_for(flag)
    log.info("waited")


@job("logged.stops", **SOFT)
def stops() -> None:
    """Is asked to stop in the middle of logging."""
    try:
        while True:
            log.info("on and on")
    finally:
        log.info("stopped")


@job("logged.interrupted", retry=ONCE)
def interrupted(ctx: JobContext) -> int:
    """Logs from a signal handler that comes everywhere, from a thread and from a destructor."""
    over = threading.Event()
    seen = 0

    class Noisy:
        def __del__(self) -> None:
            log.info("in a destructor")

    def beside() -> None:
        while not over.is_set():
            log.info("beside")

    def on_alarm(number: int, frame: object) -> None:
        nonlocal seen
        seen += 1
        log.info("alarm %d", seen)

    before = signal.signal(signal.SIGALRM, on_alarm)
    thread = threading.Thread(target=beside)
    thread.start()
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            ctx.progress(0.5, "x" * 100)
            log.info("on and on")
            noisy = Noisy()
            noisy.itself = noisy  # type: ignore[attr-defined]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        over.set()
        thread.join()
        signal.signal(signal.SIGALRM, before)
    return seen


@job("logged.alarms", retry=ONCE)
def alarms() -> int:
    """An alarm raises wherever it comes, as in decorators that limit a call."""
    raised = 0

    def on_alarm(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, on_alarm)
    for number in range(500):
        with contextlib.suppress(TimeoutError):
            try:
                # It comes again, since the standard library swallows some: where it makes a record.
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + number / 1e6, 0.01)
                while True:
                    log.info("on and on")
            except TimeoutError:
                raised += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    log.info("at the end")
    return raised


@job("logged.configures", retry=ONCE)
def configures() -> None:
    """Takes every handler away, as a library that configures logging does."""
    log.info("before")
    logging.basicConfig(force=True, level=logging.INFO, stream=sys.stderr)
    log.info("unseen")


@job("logged.turns", retry=LATER)
async def turns(ctx: JobContext, name: str) -> int:
    """Many run at a time in one process; each logs in its task, in one of its own and in a thread."""

    async def inner() -> None:
        await asyncio.sleep(0.01)
        log.info("%s in a task", name)

    def plain() -> None:
        log.info("%s in a thread", name)

    for number in range(3):
        log.info("%s %d", name, number)
        await asyncio.sleep(0.01)
    await asyncio.create_task(inner())
    await sync_to_async(plain)()
    await asyncio.to_thread(plain)
    return os.getpid()


@job("logged.turns-crash", retry=LATER)
async def turns_crash(diary: str, flag: str) -> None:
    log.info("it will crash")
    note(diary, "began")
    while not os.path.exists(flag):
        await asyncio.sleep(0.02)
    os._exit(7)
