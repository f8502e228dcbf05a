"""What workers run as tasks. ``diary`` is a file that tells the test what happened."""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth import get_user_model

from django_ojs import JobContext
from django_ojs.tasks_backend import TaskContext, limits, task
from tests.workload.tools import note


class Rejected(Exception):
    """What a task raises."""


@task(retry={"max_attempts": 1})
def add(first: int, second: int = 1, *rest: int, scale: int = 1) -> int:
    return (first + second + sum(rest)) * scale


@task
def shape(value: Any) -> Any:
    return value, {"of": (1, 2)}


@task(retry={"max_attempts": 1})
async def count_users(*, minus: int = 0) -> int:
    return await get_user_model().objects.acount() - minus


@task(takes_context=True, max_attempts=2, backoff=1)
def flaky(context: TaskContext, good_from: int) -> list[Any]:
    result = context.task_result
    if context.attempt < good_from:
        raise Rejected(f"attempt {context.attempt}")
    context.job.progress(0.5, "half")
    return [context.attempt, result.id, result.status, len(result.errors), context.job.id]


@task(takes_context=True)
async def flaky_async(context: TaskContext) -> list[Any]:
    return [context.attempt, context.task_result.id, context.task_result.task.name]


@task(timeout=1, grace_period=0, max_attempts=1)
def overrun(diary: str) -> None:
    note(diary, "started")
    time.sleep(60)


@task(type="work.tasks.limited")
@limits(timeout="10m", heartbeat_timeout="60s", max_attempts=7)
def limited() -> None: ...


@task(throttle="1h")
def throttled(number: int) -> None: ...


@task(max_attempts=1)
def both(ctx: JobContext, value: int) -> list[Any]:
    return [ctx.attempt, value]


@task(takes_context=True)
@limits(timeout="1s", grace_period=10, soft="flag", heartbeat="manual", heartbeat_timeout=60)
def patient(context: TaskContext, diary: str) -> str:
    """Nothing is raised in it: it looks, and returns what it has."""
    while not context.job.cancelled:
        time.sleep(0.01)
    return f"told: {context.job.cancel_reason}"
