"""The handlers of the soak: they write ``start`` first and ``effect`` last, and return who they were.

Each misbehaves in its first ``bad`` attempts and then behaves, so that most jobs complete in the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from django.db import connection

from django_ojs.api import JobContext, get, job
from tests.soak import ledger, plan

SLEEP = {
    "postgresql": "SELECT pg_sleep(30)",
    "mysql": "SELECT SLEEP(30)",
    "sqlite": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c",
}


class Broken(Exception):
    """What ``soak.raise`` raises; its message names the attempt."""

    ojs_error_type = "soak.broken"


def _begin(ctx: JobContext) -> None:
    ledger.write("start", job=ctx.id, attempt=ctx.attempt)


def _end(ctx: JobContext) -> dict[str, Any]:
    ledger.write("effect", job=ctx.id, attempt=ctx.attempt)
    return {"attempt": ctx.attempt}


@contextlib.contextmanager
def _crashing(ctx: JobContext, bad: int) -> Iterator[bool]:
    """Whether this attempt is to crash; if so, say when."""
    _begin(ctx)
    if ctx.attempt <= bad:
        faulthandler.disable()
        ledger.write("crash", job=ctx.id, attempt=ctx.attempt)
    yield ctx.attempt <= bad


@job("soak.quick", **plan.LIMITS)
def quick(ctx: JobContext, bad: int, millis: int) -> Any:
    _begin(ctx)
    time.sleep(millis / 1000 if ctx.attempt == 1 else plan.AGAIN)
    return _end(ctx)


@job("soak.slow", **plan.LIMITS)
def slow(ctx: JobContext, bad: int, millis: int) -> Any:
    _begin(ctx)
    if ctx.attempt > 1:
        millis = int(plan.AGAIN * 1000)
    for step in range(10):
        ctx.progress(step / 10)
        time.sleep(millis / 10_000)
    return _end(ctx)


@job("soak.long", **plan.LIMITS_OF["long"])
def long(ctx: JobContext, bad: int, millis: int) -> Any:
    """Says every second that it is still at work, beside a child in a session of its own."""
    _begin(ctx)
    quiet: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    subprocess.Popen(["sleep", "986"], start_new_session=True, **quiet)
    for _ in range(plan.LONG_STEPS if ctx.attempt == 1 else plan.LONG_AGAIN):
        ledger.write("step", job=ctx.id, attempt=ctx.attempt)
        time.sleep(1)
    return _end(ctx)


@job("soak.single", **plan.LIMITS_OF["single"])
def single(ctx: JobContext, bad: int, millis: int) -> Any:
    """Has one attempt only."""
    _begin(ctx)
    time.sleep(millis / 1000)
    return _end(ctx)


@job("soak.expires", **plan.LIMITS)
def expires(ctx: JobContext, bad: int, millis: int) -> Any:
    """Is never to run."""
    _begin(ctx)
    return _end(ctx)


@job("soak.words", **plan.LIMITS)
def words(ctx: JobContext, bad: int, millis: int) -> Any:
    """Says more than is read at once, and crashes; the next attempt tells what was heard of it."""
    if ctx.attempt > 1:
        _begin(ctx)
        heard = get(ctx.id).progress_data
        # Last: this read may meet a session that was ended.
        return {**_end(ctx), "heard": heard}
    with _crashing(ctx, 1):
        for word in range(plan.LAST_WORD):
            ctx.progress(word / plan.LAST_WORD, data=word + 1)
        os._exit(3)


@job("soak.raise", **plan.LIMITS)
def raise_it(ctx: JobContext, bad: int, millis: int) -> Any:
    _begin(ctx)
    time.sleep(millis / 1000)
    if ctx.attempt <= bad:
        ledger.write("end", job=ctx.id, attempt=ctx.attempt)
        raise Broken(f"attempt {ctx.attempt}")
    return _end(ctx)


@job("soak.loop", **plan.LIMITS)
def loop(ctx: JobContext, bad: int, millis: int) -> Any:
    _begin(ctx)
    while ctx.attempt <= bad:
        pass
    return _end(ctx)


@job("soak.swallow", **plan.LIMITS)
def swallow(ctx: JobContext, bad: int, millis: int) -> Any:
    _begin(ctx)
    while ctx.attempt <= bad:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(0.01)
    return _end(ctx)


@job("soak.segfault", **plan.LIMITS)
def segfault(ctx: JobContext, bad: int, millis: int) -> Any:
    with _crashing(ctx, bad) as crash:
        if crash:
            ctypes.string_at(0)
    return _end(ctx)


@job("soak.exit", **plan.LIMITS)
def exit_now(ctx: JobContext, bad: int, millis: int) -> Any:
    with _crashing(ctx, bad) as crash:
        if crash:
            os._exit(0)
    return _end(ctx)


@job("soak.kill-self", **plan.LIMITS)
def kill_self(ctx: JobContext, bad: int, millis: int) -> Any:
    with _crashing(ctx, bad) as crash:
        if crash:
            os.kill(os.getpid(), signal.SIGKILL)
    return _end(ctx)


@job("soak.children", **plan.LIMITS)
def children(ctx: JobContext, bad: int, millis: int) -> Any:
    """Leaves a child, one in a session of its own, and a grandchild that nobody waits for."""
    _begin(ctx)
    quiet: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    subprocess.Popen(["sleep", "987"], **quiet)
    subprocess.Popen(["sleep", "988"], start_new_session=True, **quiet)
    subprocess.Popen(["sh", "-c", "setsid sleep 989 & exit 0"], **quiet).wait()
    if ctx.attempt <= bad:
        time.sleep(1)
    return _end(ctx)


@job("soak.result", **plan.LIMITS)
def result(ctx: JobContext, bad: int, millis: int) -> Any:
    """No effect before a result that cannot be one."""
    _begin(ctx)
    odd = (object(), "x" * (2 << 20), "a\x00b", float("nan"), "\ud800")[millis % 5]
    if bad > 1:
        ledger.write("end", job=ctx.id, attempt=ctx.attempt)
        return odd
    return {**_end(ctx), "large": "x" * (1 << 17)}


@job("soak.sql", **plan.LIMITS)
def sql(ctx: JobContext, bad: int, millis: int) -> Any:
    """Waits inside the database for longer than it may."""
    _begin(ctx)
    if ctx.attempt <= bad:
        with connection.cursor() as cursor:
            cursor.execute(SLEEP[connection.vendor])
            cursor.fetchall()
    return _end(ctx)


@job("soak.fork", **plan.LIMITS)
def fork(ctx: JobContext, bad: int, millis: int) -> Any:
    """Forks, and the copy comes back out of the handler too, with a result of its own."""
    _begin(ctx)
    copy = os.fork()
    if not copy:
        return {"attempt": -1}
    os.waitpid(copy, 0)
    return _end(ctx)
