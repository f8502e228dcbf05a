"""Execution middleware of the process tests, and what executors do before they end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django_ojs import hooks
from django_ojs.handlers.context import JobContext
from tests.workload.tools import note, wait_for

Next = Callable[[JobContext], Any]
DIARY = os.environ.get("OJS_TEST_DIARY", os.devnull)


def outer(context: JobContext, next: Next) -> Any:
    """Writes down what it sees."""
    note(DIARY, "outer", context.type, context.attempt)
    try:
        result = next(context)
    except BaseException as error:
        note(DIARY, "raised", type(error).__name__)
        raise
    note(DIARY, "returned", result)
    return result


def inner(context: JobContext, next: Next) -> Any:
    """Does what ``meta`` says."""
    note(DIARY, "inner", context.type)
    if "args" in context.meta:
        context.args = context.meta["args"]
    if "refuse" in context.meta:
        raise LookupError("refused by the middleware")
    result = next(context)
    if "wait_for" in context.meta:
        note(DIARY, "waiting", os.getpid())
        wait_for(context.meta["wait_for"])
    return ["wrapped", result] if "wrap" in context.meta else result


@hooks.before_exit
def leave() -> None:
    note(DIARY, "leaving", os.getpid())
    if os.environ.get("OJS_TEST_HANG"):
        time.sleep(600)


@hooks.before_exit
def fail() -> None:
    note(DIARY, "failing")
    raise ValueError(f"not sent to {Path(DIARY).name}")


@hooks.before_exit
def left() -> None:
    note(DIARY, "left", os.getpid())
