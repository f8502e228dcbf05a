"""The calls for coroutines: the same answers, in the thread of Django's ORM."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

import django_ojs
from django_ojs import api
from tests.services.support import take
from tests.workload import jobs

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and close the connection of its thread."""

    async def whole() -> T:
        try:
            return await work
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(whole())


def test_jobs() -> None:
    async def work() -> None:
        made = await api.aenqueue("a.job", [1], queue="mail", delay="1h")
        assert (await api.aget(made)).state == "scheduled"
        moved = await api.areschedule(made, timedelta(0))
        assert moved.state == "available"
        assert (await api.acancel(made.id, reason="late")).state == "cancelled"
        several = await api.aenqueue_many("a.job", [[1], [2]], pending=True)
        assert (await api.aactivate(several[0])).state == "available"
        with pytest.raises(api.NotFound):
            await api.aget(api.new_id())

    run(work())


def test_handlers_and_workflows() -> None:
    async def work() -> None:
        made = await jobs.echo.using(queue="mail").aenqueue("x")
        assert (made.type, made.queue) == ("work.echo", "mail")
        assert len(await jobs.echo.aenqueue_many([["a"], ["b"]])) == 2
        with pytest.raises(TypeError, match="too many positional arguments"):
            await jobs.echo.aenqueue(1, 2, 3)
        flow = await api.chain(jobs.echo.step(1), jobs.echo.step(2)).aenqueue(name="two")
        assert (await api.aget_workflow(flow)).name == "two"
        assert (await api.acancel_workflow(flow)).state == "cancelled"

    run(work())


def test_what_runs_is_extended_and_what_was_discarded_gets_a_new_life() -> None:
    made = api.enqueue("test.job", timeout="10s")
    take(1)

    async def work() -> None:
        assert (await api.aextend_timeout(made, "5s")).extended_by_ms == 5000
        with pytest.raises(api.InvalidTransition):
            await api.aretry(made)

    run(work())


def test_every_call_that_takes_a_job_has_a_twin() -> None:
    for name in api.__all__:
        call = getattr(django_ojs, name)
        if f"a{name}" in api.__all__:
            assert inspect.iscoroutinefunction(getattr(django_ojs, f"a{name}"))
            assert not inspect.iscoroutinefunction(call)
            assert str(inspect.signature(getattr(django_ojs, f"a{name}"))) == str(
                inspect.signature(call)
            )
    twins = {name for name in api.__all__ if f"a{name}" in api.__all__}
    assert twins == {
        *("enqueue", "enqueue_many", "get", "cancel", "activate", "retry", "reschedule", "edit"),
        *("jobs", "count_jobs", "extend_timeout", "get_workflow", "cancel_workflow", "resume_workflow"),
    }
