"""Coroutines that share a process (``ASYNC_SLOTS``), and what some of them do to it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from django_ojs.api import JobContext, job
from django_ojs.models import Queue
from tests.workload.tools import DEAF, LATER, SOFT, note


@job("slots.sleep", retry=LATER)
async def sleep(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@job("slots.until", retry=LATER)
async def until(diary: str, flag: str) -> int:
    """Works until the file appears."""
    note(diary, "began", os.getpid())
    while not os.path.exists(flag):
        await asyncio.sleep(0.02)
    return os.getpid()


@job("slots.alone", retry=LATER, isolate=True)
async def alone() -> int:
    return os.getpid()


@job("slots.plain", retry=LATER)
def plain() -> int:
    return os.getpid()


@job("slots.stop", **SOFT)
async def stop(diary: str) -> None:
    """Is told to stop, and does."""
    note(diary, "began", os.getpid())
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError as error:
        note(diary, "cancelled", error)
        raise


@job("slots.swallow", **DEAF)
async def swallow(diary: str) -> None:
    """Swallows its cancellation."""
    note(diary, "began", os.getpid())
    while True:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            note(diary, "swallowed")


@job("slots.hold", **SOFT)
async def hold(diary: str) -> None:
    """Holds the loop, and can be interrupted."""
    note(diary, "began", os.getpid())
    while True:
        time.sleep(0.01)


@job("slots.deaf", **DEAF)
async def deaf(diary: str) -> None:
    """Holds the loop, and cannot be interrupted."""
    note(diary, "began", os.getpid())
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            note(diary, "ignored")


@job("slots.exit", retry=LATER)
async def leave() -> None:
    raise SystemExit(3)


@job("slots.crash", retry=LATER)
async def crash() -> None:
    os._exit(7)


@job("slots.transaction", retry=LATER)
async def in_transaction(seconds: float) -> list[Any]:
    """Has a transaction open while others run; they are not in it."""

    def begin() -> int:
        connection.set_autocommit(False)
        return Queue.objects.count()

    await sync_to_async(begin)()
    await asyncio.sleep(seconds)

    return [await sync_to_async(_wrapper)(), await sync_to_async(_commits)()]


def _commits() -> bool:
    """Whether the connection of this thread commits by itself."""
    return connection.get_autocommit()


def _wrapper() -> int:
    """Which connection it is."""
    connection.ensure_connection()
    return id(connection.connection)


@job("slots.autocommit", retry=LATER)
async def autocommits() -> list[Any]:
    """Its connection, and whether that commits by itself, as at the beginning of each job."""
    found = []
    for _ in range(5):
        found.append(await sync_to_async(_commits)())
        await asyncio.sleep(0.02)
    return [await sync_to_async(_wrapper)(), *found]


@job("slots.context", retry=LATER)
async def ask(ctx: JobContext) -> list[Any]:
    """Uses all that a context has."""
    refused = False
    try:
        ctx.checkpoint({"at": 0})
    except RuntimeError as error:
        refused = "await ctx.acheckpoint()" in str(error)
    await ctx.acheckpoint({"at": 1})
    await sync_to_async(ctx.checkpoint)({"at": 2})
    await ctx.aprogress(0.5, "half")
    before = ctx.deadline
    after = await ctx.aextend_timeout(60)
    return [refused, ctx.last_checkpoint, round((after - before).total_seconds())]


@job("slots.save", timeout=1, grace_period=30, retry=LATER)
async def save(ctx: JobContext, diary: str) -> None:
    """Saves without a pause, so that its cancellation meets a call."""
    note(diary, "began", os.getpid())
    while True:
        await ctx.acheckpoint({})


@job("slots.leave", retry=LATER)
async def leave_task(what: str) -> int:
    """Leaves a task behind, that ends with its cancellation or does not, or a call in a thread."""
    if what == "thread":
        _kept.append(asyncio.get_running_loop().run_in_executor(None, time.sleep, 2))
    else:
        _kept.append(asyncio.create_task(stubborn() if what == "stubborn" else asyncio.sleep(300)))
    await asyncio.sleep(0)
    return os.getpid()


_kept: list[asyncio.Future[Any]] = []


async def stubborn() -> None:
    """Swallows every cancellation."""
    while True:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            continue


@job("slots.report", **SOFT)
async def report(ctx: JobContext, diary: str) -> None:
    """Waits for a thread that reports its progress until it must not any more."""
    await asyncio.to_thread(_report_on, ctx, diary)


def _report_on(ctx: JobContext, diary: str) -> None:
    while True:
        try:
            ctx.progress(0.5)
            ctx.heartbeat()
        except Exception as error:
            note(diary, "refused", type(error).__name__)
            return
        time.sleep(0.01)
