"""What becomes of a job when it is enqueued."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, transaction

import django_ojs
from django_ojs import JobContext, batch, job
from django_ojs.models import Job
from django_ojs.testing import (
    Drained,
    JobClock,
    assert_enqueued,
    drain,
    enqueued,
    fake,
    inline,
    refute_enqueued,
)
from django_ojs.testing.modes import mode


@pytest.fixture
def add() -> Any:
    @job("kit.add")
    def add(a: int, b: int) -> int:
        return a + b

    return add


@pytest.mark.every_database
def test_inline_runs_at_once(database: str, add: Any) -> None:
    with inline():
        done = add.enqueue(1, 2)
        assert (done.state, done.result) == ("completed", 3)
        assert [one.state for one in add.enqueue_many([(1, 1), (2, 2)])] == ["completed"] * 2
        assert add.using(delay="1h").enqueue(1, 2).state == "scheduled"
        assert django_ojs.enqueue("kit.add", [5, 5]).state == "completed"
        add.enqueue_on_commit(6, 6)
    assert Job.objects.filter(state="completed").count() == (5 if database == "committed" else 4)
    assert add.enqueue(1, 2).state == "available"


@pytest.mark.every_database
def test_inline_waits_for_the_end_of_a_block(database: str, add: Any) -> None:
    with inline():
        with transaction.atomic():
            with transaction.atomic():
                one = add.enqueue(1, 2)
            assert django_ojs.get(one).state == "available"
        assert django_ojs.get(one).state == "completed"
        with pytest.raises(ValueError, match="taken back"), transaction.atomic():
            two = add.enqueue(3, 4)
            raise ValueError("taken back")
        assert not Job.objects.filter(pk=two.id).exists()


@pytest.mark.every_database
def test_inline_runs_what_handlers_enqueue_and_workflows(database: str, add: Any) -> None:
    @job("kit.more")
    def more(ctx: JobContext) -> Any:
        return add.enqueue(1, sum(ctx.parent_results)).state

    with inline():
        flow = batch(add.steps([(1, 1), (2, 2)]), on_success=more.step()).enqueue()
        assert django_ojs.get_workflow(flow).state == "completed"
        assert Job.objects.get(type="kit.more").result == "available"
        assert_enqueued(add, args=[1, 6], state="completed")
        assert drain() == Drained()


def test_inline_failures_are_raised_on_demand(database: str) -> None:
    @job("kit.fails")
    def fails() -> None:
        raise ValueError("no")

    with inline():
        assert fails.enqueue().state == "retryable"
    with inline(raise_failures=True), pytest.raises(ValueError, match="no"):
        fails.enqueue()


def test_fake_needs_no_database(add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "cursor", None)
    monkeypatch.setattr(connections["default"], "connect", None)
    with fake():
        one = add.using(queue="sums", delay="1h").enqueue(1, 2)
        add.enqueue_many([(1, 1), (2, 2)])
        assert_enqueued(add, count=3)
        assert enqueued(args=[1, 2], queue="sums", scheduled_in="1h") == [one]
        refute_enqueued(add, args=[3, 3])
        with pytest.raises(RuntimeError, match="mode 'fake'"):
            drain()
        with JobClock() as clock:
            now = clock.freeze()
            assert add.enqueue(5, 5).created_at == now
    with fake():
        refute_enqueued()


def test_fake_refuses_workflows(ojs_db: None, add: Any) -> None:
    with fake(), pytest.raises(RuntimeError, match="workflow"):
        batch(add.steps([(1, 1)]), on_success=add.step(1, 1)).enqueue()
    assert enqueued() == []


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match=r"'eager' is no mode.*manual, inline, fake"):
        mode("eager")
