"""Every way in which a member can end, in every kind of workflow: what is counted, what runs then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from django_ojs import (
    WorkflowRecord,
    batch,
    chain,
    get_workflow,
    group,
    new_id,
    resume_workflow,
    step,
    workflow,
)
from django_ojs.api import cancel, retry
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict
from django_ojs.domain.job import JobRow
from django_ojs.domain.workflow import MemberEnd
from django_ojs.models import Job, Workflow
from django_ojs.services import inspect, operate, promote, reap, up_to_date
from django_ojs.services.verbs import API
from django_ojs.services.workflows import operate as workflows
from django_ojs.services.workflows import upkeep
from django_ojs.store import invariants

from .support import ack, fail, release, take

pytestmark = pytest.mark.usefixtures("ojs_db")

MEMBER, OTHER = "test.member", "test.job"
COMPLETED, FAILED, CANCELLED = MemberEnd.COMPLETED, MemberEnd.FAILED, MemberEnd.CANCELLED
CALLBACKS = ("on_complete", "on_success", "on_failure")
ONCE = {"max_attempts": 1}
AGAIN = {"max_attempts": 2, "initial_interval": "PT1S", "jitter": False}


def member() -> JobRow:
    """The member that the test is about, claimed."""
    (job,) = take(types=(MEMBER,))
    return job


def waiting() -> JobRow:
    """The same, unclaimed."""
    return inspect.find(Job.objects.get(type=MEMBER).pk)


def later(frozen: FrozenClock, seconds: float) -> object:
    frozen.advance(seconds)
    return reap.reap()


def run_out(frozen: FrozenClock) -> None:
    """The member was running when its deadline came."""
    member()
    later(frozen, 6)


def expired_at_claim(frozen: FrozenClock) -> None:
    frozen.advance(6)
    assert take(types=(MEMBER,)) == []


def expired_when_read(frozen: FrozenClock) -> None:
    frozen.advance(6)
    up_to_date.find_up_to_date(waiting().id)


def lapse(frozen: FrozenClock) -> None:
    take(types=(MEMBER,), visibility_ms=5000, beats=False)
    later(frozen, 6)


class End(NamedTuple):
    """A way to end: what it is for the workflow, the options of the member, what is done."""

    counts: MemberEnd
    options: dict[str, Any]
    act: Callable[[FrozenClock], object]


ENDS = {
    "ack": End(COMPLETED, {}, lambda _: ack(member())),
    "last attempt fails": End(FAILED, {"retry": ONCE}, lambda _: fail(member())),
    "not retryable": End(FAILED, {}, lambda _: fail(member(), retryable=False)),
    "error that is not retried": End(
        FAILED, {"retry": {"non_retryable_errors": ["test.*"]}}, lambda _: fail(member())
    ),
    "execution timeout": End(FAILED, {"timeout": 5, "grace_period": 0, "retry": ONCE}, run_out),
    "total timeout while it runs": End(FAILED, {"total_timeout": 5}, run_out),
    "total timeout while it waits": End(FAILED, {"total_timeout": 5}, lambda frozen: later(frozen, 6)),
    "total timeout between attempts": End(
        FAILED,
        {"total_timeout": 60, "retry": AGAIN | {"initial_interval": "PT30S"}},
        lambda frozen: (fail(member()), later(frozen, 61)),
    ),
    "no time for another attempt": End(
        FAILED,
        {"timeout": 5, "total_timeout": 8, "retry": AGAIN | {"initial_interval": "PT10S"}},
        lambda _: fail(member()),
    ),
    "enqueue ttl": End(FAILED, {"enqueue_ttl": 5}, lambda frozen: later(frozen, 6)),
    "enqueue ttl seen by a claim": End(FAILED, {"enqueue_ttl": 5}, expired_at_claim),
    "enqueue ttl seen by a reader": End(FAILED, {"enqueue_ttl": 5}, expired_when_read),
    "worker is dead": End(FAILED, {"heartbeat_timeout": 5, "retry": ONCE}, run_out),
    "visibility lapses": End(FAILED, {"retry": ONCE}, lapse),
    "cancel while it waits": End(CANCELLED, {}, lambda _: cancel(waiting())),
    "cancel while it runs": End(CANCELLED, {}, lambda _: cancel(member())),
    "cancel between attempts": End(
        CANCELLED, {"retry": AGAIN}, lambda _: cancel(fail(member())[0].job or waiting())
    ),
    "discard by hand": End(FAILED, {}, lambda _: operate.discard([waiting().id])),
}


class Kind(NamedTuple):
    """A workflow of one member and others that complete, before it (``last``) or after it, and what
    becomes of it by the end of the member: state, completed, failed, cancelled.
    """

    make: Callable[[Any], Any]
    expected: dict[MemberEnd, tuple[str, int, int, int]]
    last: bool = False


def other(**options: Any) -> Any:
    return step(OTHER, **options)


def told() -> dict[str, Any]:
    """Each of the callbacks."""
    return {name: step(f"test.{name}") for name in CALLBACKS}


def dag(one: Any) -> Any:
    """One step after the member, one beside it, one that runs however those two end."""
    made = workflow("dag", **told())
    first, beside = made.add(one), made.add(other())
    after = made.add(other(), after=first)
    made.add(other(when="ended"), after=[after, beside])
    return made


def beside(*, completed: str, failed: str) -> dict[MemberEnd, tuple[str, int, int, int]]:
    """What becomes of two that do not wait for each other."""
    return {COMPLETED: (completed, 2, 0, 0), FAILED: (failed, 1, 1, 0), CANCELLED: (failed, 1, 0, 1)}


_EACH_FOR_ITSELF = beside(completed="completed", failed="failed")
_BY_CALLBACKS = beside(completed="completed", failed="completed")
_INNER_FAILED = ("failed", 1, 1, 0)
KINDS = {
    "chain, first": Kind(
        lambda one: chain(one, other(), **told()),
        {
            COMPLETED: ("completed", 2, 0, 0),
            FAILED: ("failed", 0, 1, 1),
            CANCELLED: ("failed", 0, 0, 2),
        },
    ),
    "chain, last": Kind(lambda one: chain(other(), one, **told()), _EACH_FOR_ITSELF, True),
    "chain that goes on": Kind(lambda one: chain(one, other(when="ended"), **told()), _EACH_FOR_ITSELF),
    "group, first": Kind(lambda one: group(one, other(), **told()), _EACH_FOR_ITSELF),
    "group, last": Kind(lambda one: group(one, other(), **told()), _EACH_FOR_ITSELF, True),
    "batch, first": Kind(lambda one: batch(one, other(), **told()), _BY_CALLBACKS),
    "batch, last": Kind(lambda one: batch(other(), one, **told()), _BY_CALLBACKS, True),
    "dag": Kind(
        dag,
        {
            COMPLETED: ("completed", 4, 0, 0),
            FAILED: ("failed", 2, 1, 1),
            CANCELLED: ("failed", 2, 0, 2),
        },
    ),
    "group in a chain": Kind(
        lambda one: chain(group(one, other()), other(), **told()),
        {
            COMPLETED: ("completed", 2, 0, 0),
            FAILED: ("failed", 0, 1, 1),
            CANCELLED: ("failed", 0, 1, 1),
        },
    ),
    "batch in a chain": Kind(
        lambda one: chain(batch(one, other(), on_failure=other()), other(), **told()),
        dict.fromkeys(MemberEnd, ("completed", 2, 0, 0)),
    ),
    "chain in a group": Kind(
        lambda one: group(chain(one, other()), other(), **told()),
        {COMPLETED: ("completed", 2, 0, 0), FAILED: _INNER_FAILED, CANCELLED: _INNER_FAILED},
    ),
    "three deep": Kind(
        lambda one: group(chain(batch(one, on_success=other()), other()), other(), **told()),
        dict.fromkeys(MemberEnd, ("completed", 2, 0, 0)),
        True,
    ),
}


def kinds(*everywhere: str) -> list[Any]:
    """All kinds; the tests of these run on every database."""
    marks = {name: [pytest.mark.every_database] for name in everywhere}
    return [pytest.param(name, marks=marks.get(name, [])) for name in KINDS]


def work_off() -> None:
    """Complete all jobs but the member, as long as there are any."""
    while jobs := take(20, types=(OTHER, *(f"test.{name}" for name in CALLBACKS))):
        ack(*jobs)


def counts(made: WorkflowRecord) -> tuple[str, int, int, int]:
    found = get_workflow(made)
    return found.state, found.completed, found.failed, found.cancelled


def fired(made: WorkflowRecord) -> list[str]:
    """The callbacks that have jobs, and how they ended."""
    rows = Job.objects.filter(workflow_id=made.id, workflow_step__lt=0).order_by("-workflow_step")
    return [f"{row.type.removeprefix('test.')} {row.state}" for row in rows]


def assert_sound(frozen: FrozenClock) -> None:
    """``ojs check`` finds nothing."""
    assert [str(drift) for drift in upkeep.drifts()] == []
    found = invariants.check(now=frozen.now("default"), slack=timedelta(seconds=30), using="default")
    assert found == []


def assert_over(made: WorkflowRecord, expected: tuple[str, int, int, int]) -> None:
    """The workflow has ended so, and has fired what belongs to it, once."""
    assert counts(made) == expected
    found = get_workflow(made)
    assert (found.open, found.finished_at is not None) == (0, True)
    other_one = "on_success" if found.completed == found.total else "on_failure"
    assert fired(made) == ["on_complete completed", f"{other_one} completed"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds("dag", "chain in a group"))
@pytest.mark.parametrize("end", ENDS)
def test_a_member_that_ends_counts(end: str, kind: str, frozen: FrozenClock) -> None:
    counted, options, act = ENDS[end]
    make, expected, last = KINDS[kind]
    made = make(step(MEMBER, **options)).enqueue()
    if last:
        work_off()
        assert get_workflow(made).state == "running"
    act(frozen)
    assert_sound(frozen)
    work_off()
    assert_over(made, expected[counted])
    assert_sound(frozen)


LIVES: dict[str, tuple[dict[str, Any], Callable[[FrozenClock], object]]] = {
    "fails": ({"retry": AGAIN}, lambda _: fail(member())),
    "execution timeout": ({"timeout": 5, "grace_period": 0, "retry": AGAIN}, run_out),
    "worker is dead": ({"heartbeat_timeout": 5, "retry": AGAIN}, run_out),
    "visibility lapses": ({"retry": AGAIN}, lapse),
    "given back": ({}, lambda _: release(member())),
    "claimed late": ({"enqueue_ttl": 30}, lambda frozen: later(frozen, 6)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds("batch, first"))
@pytest.mark.parametrize("life", LIVES)
def test_a_member_with_attempts_left_has_not_ended(life: str, kind: str, frozen: FrozenClock) -> None:
    options, act = LIVES[life]
    make, expected, _ = KINDS[kind]
    made = make(step(MEMBER, **options)).enqueue()
    work_off()
    before = counts(made)
    act(frozen)
    work_off()
    assert (counts(made), before[0], fired(made)) == (before, "running", [])
    assert_sound(frozen)
    frozen.advance(5)
    promote.promote(seconds=1, using="default")
    ack(member())
    work_off()
    assert_over(made, expected[COMPLETED])


@pytest.mark.slow
@pytest.mark.every_database
@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("chain, first", "ack"),
        *(
            (kind, end)
            for kind in ("group, first", "batch, first", "dag")
            for end in ("ack", "last attempt fails", "cancel while it waits")
        ),
    ],
)
def test_a_member_that_is_purged_counts_as_cancelled(kind: str, end: str, frozen: FrozenClock) -> None:
    """Its result is gone, whatever it was. What it had started goes on."""
    counted, options, act = ENDS[end]
    make, expected, _ = KINDS[kind]
    made = make(step(MEMBER, **options)).enqueue()
    act(frozen)
    operate.purge([waiting().id])
    assert_sound(frozen)
    work_off()
    _, completed, failed, cancelled = expected[counted]
    lost = (completed - (counted is COMPLETED), failed - (counted is FAILED))
    total = completed + failed + cancelled
    assert counts(made)[1:] == (*lost, total - sum(lost))
    assert counts(made)[0] == ("completed" if "batch" in kind else "failed")
    assert_sound(frozen)


@pytest.mark.parametrize("end", ["ack", "last attempt fails"])
@pytest.mark.parametrize("kind", kinds())
def test_a_purge_after_the_end_changes_nothing(end: str, kind: str, frozen: FrozenClock) -> None:
    counted, options, act = ENDS[end]
    make, expected, _ = KINDS[kind]
    made = make(step(MEMBER, **options)).enqueue()
    work_off()
    act(frozen)
    work_off()
    operate.purge([waiting().id])
    assert_over(made, expected[counted])
    assert_sound(frozen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds(*KINDS))
def test_a_row_that_was_deleted_by_hand_is_found_and_mended(kind: str, frozen: FrozenClock) -> None:
    """It counts as a member that was cancelled, and what waited for it does not run."""
    make, expected, _ = KINDS[kind]
    made = make(step(MEMBER)).enqueue()
    work_off()
    Job.objects.filter(type=MEMBER).delete()
    drifts = [drift.workflow_id for drift in upkeep.drifts()]
    assert len(drifts) == 1
    upkeep.repair(drifts[0], using="default")
    work_off()
    assert_over(made, expected[CANCELLED])
    assert_sound(frozen)


def a_dag(*, after: bool) -> WorkflowRecord:
    """The member, or a step ``after`` it, and another that runs; a step that waits for both to end."""
    made = workflow("dag")
    first, running = made.add(step(MEMBER, retry=ONCE)), made.add(step("test.running"))
    needed = made.add(other(), after=first) if after else first
    made.add(step("test.tidy", when="ended"), after=[needed, running])
    return made.enqueue()


@pytest.mark.every_database
@pytest.mark.parametrize("after", [True, False])
def test_a_retried_member_is_waited_for_again(after: bool, frozen: FrozenClock) -> None:
    made = a_dag(after=after)
    fail(member())
    retry(waiting())
    ack(member())
    work_off()
    assert not take(types=("test.tidy",)), "it waits for what still runs"
    assert_sound(frozen)
    ack(*take(types=("test.running",)))
    ack(*take(types=("test.tidy",)))
    assert get_workflow(made).state == "completed"


@pytest.mark.every_database
@pytest.mark.parametrize("after", [True, False])
def test_what_was_purged_is_not_waited_for_by_a_resumed_workflow(
    after: bool, frozen: FrozenClock
) -> None:
    made = a_dag(after=after)
    fail(member())
    fail(*take(types=("test.running",)), retryable=False)
    fail(*take(types=("test.tidy",)), retryable=False)
    assert get_workflow(made).state == "failed"
    operate.purge([waiting().id])
    resume_workflow(made)
    assert_sound(frozen)
    ack(*take(types=("test.running",)))
    ack(*take(types=("test.tidy",)))
    assert counts(made) == ("failed", 2, 0, 2 if after else 1)


def test_a_chain_whose_failed_step_was_purged_has_nothing_to_resume() -> None:
    made = chain(step(MEMBER, retry=ONCE), other()).enqueue()
    fail(member())
    operate.purge([waiting().id])
    with pytest.raises(Conflict, match="nothing of the workflow"):
        resume_workflow(made)
    assert counts(made)[0] == "failed"


@pytest.mark.slow
@pytest.mark.every_database
def test_a_nested_workflow_that_is_resumed_with_nothing_left_is_in_nobodys_way(
    frozen: FrozenClock,
) -> None:
    """Its last member completed while the whole was being cancelled: it ends as soon as it is resumed,
    and a step beside it that never started still runs before the callbacks.
    """
    callbacks: dict[str, Any] = {name: step(f"test.{name}") for name in CALLBACKS}
    made = workflow("dag", **callbacks)
    first = made.add(other())
    made.add(other(), after=first)
    made.add(group(step(MEMBER)))
    record = made.enqueue()
    running = take(2, types=(OTHER, MEMBER))
    assert workflows.stop(record.id, actor=API, using="default")
    ack(*running)
    workflows.cancel_members(record.id, actor=API, using="default")
    assert get_workflow(record).state == "cancelled"
    resume_workflow(record)
    assert (counts(record), fired(record)) == (("running", 2, 0, 0), [])
    assert_sound(frozen)
    work_off()
    assert_over(record, ("completed", 3, 0, 0))


@pytest.mark.every_database
def test_a_cancelled_workflow_with_nothing_left_is_completed_by_a_resume(frozen: FrozenClock) -> None:
    record = chain(group(step(MEMBER))).enqueue()
    running = member()
    assert workflows.stop(record.id, actor=API, using="default")
    ack(running)
    assert get_workflow(record).state == "cancelled"
    resume_workflow(record)
    assert counts(record) == ("completed", 1, 0, 0)
    assert_sound(frozen)


def test_a_workflow_that_was_there_already_has_its_errors() -> None:
    made = chain(step(MEMBER, retry=ONCE))
    mine = new_id()
    assert not made.enqueue(id=mine).errors
    fail(member())
    again = made.enqueue(id=mine)
    assert (again.state, [error["attempt"] for error in again.errors]) == ("failed", [1])
    assert again == get_workflow(mine)


@pytest.mark.every_database
def test_a_nested_workflow_that_is_being_stopped_has_not_ended_for_the_one_around_it(
    frozen: FrozenClock,
) -> None:
    """A member of it is retried after its deadline, before the other has been cancelled."""
    inner = workflow("dag", timeout="10s")
    inner.add(step(MEMBER, retry=ONCE))
    inner.add(other())
    record = group(inner).enqueue()
    fail(member())
    (running,) = take()
    frozen.advance(11)
    (nested,) = Workflow.objects.filter(parent_id=record.id)
    assert workflows.stop(nested.id, actor=API, timed_out=True, using="default")
    assert counts(record) == ("running", 0, 0, 0)
    retry(waiting())
    assert (counts(record), get_workflow(record).open) == (("running", 0, 0, 0), 1)
    assert_sound(frozen)
    ack(running, member())
    assert counts(record) == ("completed", 1, 0, 0)
