"""Threads that end, cancel, resume and retry members of one workflow at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from django_ojs import (
    batch,
    cancel_workflow,
    get_workflow,
    group,
    resume_workflow,
    step,
)
from django_ojs.api import retry
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import OJSError
from django_ojs.models import Event, Job, Workflow, WorkflowStep
from django_ojs.services.workflows import operate, tree, upkeep
from django_ojs.store import contention
from tests.races.stepping import Player, Work
from tests.races.test_singletons import everywhere
from tests.services.support import ack, fail, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "row_locks")]
ONCE: dict[str, Any] = {"retry": {"max_attempts": 1}}


@pytest.fixture
def row_locks(vendor: str) -> None:
    """Rows that can be locked one by one."""
    if vendor == "sqlite":
        pytest.skip("SQLite has one writer: nothing happens at once")


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """What each returns when all begin together; a refusal is returned, anything else is raised."""
    start = Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        try:
            start.wait(30)
            return work()
        except OJSError as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return [one.result(60) for one in [pool.submit(run, work) for work in works]]


def finish(workflow_id: Any) -> None:
    """Run everything that is left, and check the counters."""
    operate.cancel_members(workflow_id, actor=operate.REAPER, skip_locked=False, using="default")
    while jobs := take(100):
        ack(*jobs)
    assert get_workflow(workflow_id).state != "running"
    assert list(upkeep.drifts(using="default")) == []


@pytest.mark.parametrize("round_", range(5))
def test_members_that_end_at_once_fire_each_callback_once(round_: int) -> None:
    members = [step("test.job") for _ in range(8)]
    made = batch(*members, on_complete=step("test.job"), on_success=step("test.job")).enqueue()
    jobs = take(8)
    at_once(*(partial(ack, job) for job in jobs))
    fired = Job.objects.filter(workflow_id=made.id, workflow_step__lt=0)
    steps = fired.order_by("workflow_step").values_list("workflow_step", flat=True)
    assert list(steps) == [-2, -1]
    assert get_workflow(made).completed == 8
    finish(made.id)
    assert get_workflow(made).state == "completed"


@pytest.mark.parametrize("seed", range(6))
def test_a_report_against_cancel_and_resume_and_retry(seed: int) -> None:
    dice = random.Random(seed)
    made = batch(*(step("test.job", **ONCE) for _ in range(6)), on_complete=step("test.job")).enqueue()
    failed = take(2)
    fail(*failed)
    running = take(4)
    works: list[Callable[[], Any]] = [
        lambda: ack(*running[:2]),
        lambda: fail(*running[2:]),
        lambda: retry(failed[0].id),
        lambda: retry(failed[1].id),
        lambda: cancel_workflow(made),
        lambda: resume_workflow(made),
    ]
    dice.shuffle(works)
    at_once(*works)
    assert list(upkeep.drifts(using="default")) == []
    finish(made.id)
    ended = ["workflow.completed", "workflow.failed", "workflow.cancelled"]
    resumed = Event.objects.filter(kind="workflow.resumed").count()
    assert Event.objects.filter(kind__in=ended).count() <= 1 + resumed
    callbacks = Job.objects.filter(workflow_id=made.id, workflow_step=-1)
    assert callbacks.count() <= get_workflow(made).runs


def test_members_inside_that_end_at_once_end_all_that_they_are_in(
    players: tuple[Player, Player], frozen: FrozenClock
) -> None:
    """Only the outermost workflow is locked for them."""

    def scene() -> tuple[Work, Work]:
        for model in (Job, WorkflowStep, Workflow):
            model._default_manager.all()._raw_delete("default")
        group(group(step("test.job"), step("test.job"))).enqueue()
        one, other = take(2)
        return partial(ack, one), partial(ack, other)

    for _ in everywhere(players, scene):
        rows = Workflow.objects.values_list("state", "total", "open", "completed")
        assert sorted(rows) == [("completed", 1, 0, 1), ("completed", 2, 0, 2)]


def crossed() -> None:
    """Two threads report members of the same two workflows, a third cancels one of them."""
    made = [group(*(step("test.job") for _ in range(6))).enqueue() for _ in range(2)]
    jobs = take(12)
    of = [[job for job in jobs if job.workflow_id == one.id] for one in made]
    mixed = [job for pair in zip(*of, strict=True) for job in pair]
    at_once(
        lambda: ack(*mixed[:6]),
        lambda: ack(*mixed[6:][::-1]),
        lambda: cancel_workflow(made[1]),
    )
    for one in made:
        finish(one.id)


@pytest.fixture
def deadlocks(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """The deadlocks that the server has broken up, also those after which all was tried again."""
    seen: list[BaseException] = []
    known = contention.is_contention

    def watched(error: BaseException) -> bool:
        if contention._code(error) in ("40P01", 1213):
            seen.append(error)
        return known(error)

    monkeypatch.setattr(contention, "is_contention", watched)
    return seen


@pytest.mark.slow
def test_the_order_of_locks_leaves_no_deadlock(deadlocks: list[BaseException]) -> None:
    for _ in range(12):
        crossed()
    assert deadlocks == []


@pytest.mark.slow
def test_another_order_of_locks_is_found(
    deadlocks: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, turns = Barrier(2), iter(range(1000))

    def crosswise(roots: Iterable[UUID], using: str, *, skip_locked: bool = False) -> list[Workflow]:
        rows = Workflow.objects.using(using).select_for_update(skip_locked=skip_locked)
        order = sorted(set(roots))
        if len(order) < 2:
            return list(rows.filter(pk__in=order))
        turn = next(turns)
        order = order[::-1] if turn % 2 else order
        first = rows.get(pk=order[0])
        if turn < 2:
            both.wait(30)
        return [first, *(rows.get(pk=one) for one in order[1:])]

    monkeypatch.setattr(tree, "lock_roots", crosswise)
    made = [group(step("test.job")).enqueue().id for _ in range(2)]

    def lock() -> None:
        contention.atomically("default", lambda: tree.Tree.lock(made, using="default"))

    at_once(lock, lock)
    assert deadlocks
