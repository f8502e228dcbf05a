"""Handlers that say why they were told to stop, and do something about it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from django_ojs.api import DeadLetter, Discard, Fail, JobContext, Retry, SoftStop, job
from django_ojs.handlers.exceptions import HandlerDecision
from tests.workload.tools import LATER, note

TERMS: dict[str, Any] = {"retry": LATER}


@job("stop.witness", grace_period=10, **TERMS)
def witness(ctx: JobContext, diary: str) -> object:
    """Saves why it was told to stop; a later attempt returns that."""
    if ctx.last_checkpoint is not None:
        return ctx.last_checkpoint
    note(diary, "started", os.getpid())
    try:
        time.sleep(300)
    except SoftStop as stop:
        note(diary, "stopped", stop.reason, ctx.cancel_reason)
        ctx.checkpoint({"reason": stop.reason})
        note(diary, "saved")
        raise
    return None


@job("stop.awaiting", grace_period=10, **TERMS)
async def awaiting(ctx: JobContext, diary: str) -> None:
    """The same as a coroutine."""
    note(diary, "started", os.getpid())
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        note(diary, "stopped", ctx.cancel_reason)
        ctx.checkpoint({"reason": ctx.cancel_reason})
        raise


@job("stop.silent", heartbeat="manual", heartbeat_timeout=2, grace_period=10, **TERMS)
def silent(ctx: JobContext, diary: str) -> None:
    """Shows no sign of life."""
    note(diary, "started", os.getpid())
    try:
        time.sleep(300)
    except SoftStop as stop:
        note(diary, "stopped", stop.reason, ctx.cancel_reason)
        raise


@job("stop.told", soft="flag", grace_period=10, **TERMS)
def told(ctx: JobContext, diary: str, how: str) -> str | None:
    """Nothing is raised in it; it looks, and returns what it has."""
    note(diary, "started", os.getpid())
    while not ctx.cancelled:
        time.sleep(0.01)
    note(diary, "stopped", ctx.cancel_reason)
    if how == "check":
        ctx.check()
    return ctx.cancel_reason


@job("stop.told-async", soft="flag", grace_period=10, **TERMS)
async def told_async(ctx: JobContext, diary: str, how: str) -> str | None:
    """The same as a coroutine."""
    note(diary, "started", os.getpid())
    while not ctx.cancelled:
        await asyncio.sleep(0.01)
    if how == "check":
        ctx.check()
    return ctx.cancel_reason


@job("stop.deaf", soft="flag", **TERMS)
def deaf(diary: str) -> None:
    """Is told and does not look."""
    note(diary, "started", os.getpid())
    time.sleep(300)


@job("stop.stubborn", **TERMS)
def stubborn(diary: str) -> None:
    """Hears the signal and goes on; a second one would be heard too."""
    note(diary, "started", os.getpid())
    while True:
        try:
            time.sleep(300)
        except SoftStop as stop:
            note(diary, "stopped", stop.reason)


@job("stop.slow", **TERMS)
def slow(ctx: JobContext, diary: str, seconds: float) -> None:
    """Needs so long, after it was told to stop, to save where it was."""
    note(diary, "started", os.getpid())
    try:
        time.sleep(300)
    except SoftStop as stop:
        note(diary, "stopped", stop.reason)
        time.sleep(seconds)
        ctx.checkpoint({"reason": stop.reason})
        note(diary, "saved")
        raise


@job("stop.late-result", grace_period=10, **TERMS)
def late_result(diary: str) -> str:
    """Returns a result all the same."""
    note(diary, "started", os.getpid())
    try:
        time.sleep(300)
    except SoftStop as stop:
        note(diary, "stopped", stop.reason)
    return "late"


DECISIONS: dict[str, type[HandlerDecision]] = {
    "discard": Discard,
    "fail": Fail,
    "dead letter": DeadLetter,
}


@job("stop.decide", grace_period=10, **TERMS)
def decide(diary: str, how: str) -> None:
    """Decides in its grace period what happens next."""
    note(diary, "started", os.getpid())
    try:
        time.sleep(300)
    except SoftStop:
        if how == "retry":
            raise Retry("not now", after="45s") from None
        raise DECISIONS[how]("no use") from None


@job("stop.decide-async", grace_period=10, **TERMS)
async def decide_async(diary: str) -> None:
    """The same as a coroutine."""
    note(diary, "started", os.getpid())
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        raise Discard("no use") from None


_kept: list[asyncio.Task[None]] = []


@job("stop.leaving", **TERMS)
async def leaving(diary: str, flag: str, how: str) -> str:
    """Has ended, but a task that it leaves ends only when the file appears."""

    async def linger() -> None:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            note(diary, "ending")
            while not os.path.exists(flag):
                await asyncio.sleep(0.01)

    _kept.append(asyncio.create_task(linger()))
    await asyncio.sleep(0)
    if how == "raises":
        raise ValueError(how)
    return how
