"""The judgement of workflows finds what is planted, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.soak import workflow_plan
from tests.soak.ledger import Entry
from tests.soak.oracle import Verdict
from tests.soak.workflow_oracle import Counts, MemberRow, StepRow, WorkflowRow, judge
from tests.soak.workflow_plan import Member, Shape

pytestmark = pytest.mark.tool

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class World:
    """A chain of two, whose second member failed, with both callbacks; and what the ledger says."""

    def __init__(self) -> None:
        self.entries = [
            Entry(0, 1, event, {"workflow": "w"}) for event in ("try workflow", "acknowledged workflow")
        ]
        for number, job in enumerate("abcd"):
            began = 10 * number
            self.entries += [
                Entry(began, 1, "start", {"job": job, "attempt": 1}),
                Entry(began + 5, 1, "effect", {"job": job, "attempt": 1}),
            ]
        self.workflow = WorkflowRow("w", "", "chain", "failed", None, 1, Counts(2, 0, 1, 1), 0, at(4))
        self.members = {
            0: MemberRow("w", "a", "completed", 0, True),
            1: MemberRow("w", "b", "discarded", 1, True),
            -1: MemberRow("w", "c", "completed", -1, True),
            -3: MemberRow("w", "d", "completed", -3, True),
        }
        self.more: list[MemberRow] = []
        self.steps = [
            StepRow("w", "started", "completed", "", 0, []),
            StepRow("w", "started", "completed", "", 1, [0]),
            *(StepRow("w", "started", "completed", "", place, []) for place in (-1, -3)),
            StepRow("w", "waiting", "completed", "", -2, []),
        ]

    def wrong(self) -> dict[str, int]:
        """How often each rule is broken."""
        verdict = Verdict()
        members = [*self.members.values(), *self.more]
        judge(verdict, self.entries, [self.workflow], members, self.steps)
        return {rule: len(found) for rule, found in verdict.wrong.items() if found}


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_is_found_where_nothing_is(world: World) -> None:
    assert world.wrong() == {}


def test_a_lost_workflow(world: World) -> None:
    world.entries += [
        Entry(0, 1, event, {"workflow": "lost"}) for event in ("try workflow", "acknowledged workflow")
    ]
    assert world.wrong() == {"workflows lost": 1}


def test_a_workflow_that_nobody_asked_for(world: World) -> None:
    world.entries = world.entries[2:]
    assert world.wrong() == {"workflows unexpected": 1}


def test_a_stuck_workflow(world: World) -> None:
    world.workflow = world.workflow._replace(state="running", finished_at=None)
    assert world.wrong() == {"workflows stuck": 1}


def test_a_count_that_was_lost(world: World) -> None:
    world.workflow = world.workflow._replace(counts=Counts(2, 0, 2, 0))
    assert world.wrong() == {"counters unlike the rows": 1}


def test_a_member_that_has_not_ended(world: World) -> None:
    world.members[1] = world.members[1]._replace(state="available")
    assert world.wrong() == {"counters unlike the rows": 1, "started before their time": 2}


@pytest.mark.parametrize("missing", [-1, -3])
def test_a_callback_that_never_ran(world: World, missing: int) -> None:
    del world.members[missing]
    assert world.wrong() == {"callbacks not exactly once": 1}


@pytest.mark.parametrize("again", [-1, -2, -3])
def test_a_callback_too_many(world: World, again: int) -> None:
    world.more.append(world.members[-1]._replace(id="e", step=again))
    assert world.wrong() == {"callbacks not exactly once": 1}


def test_a_callback_of_a_cancelled_workflow(world: World) -> None:
    world.workflow = world.workflow._replace(state="cancelled")
    del world.members[-1], world.members[-3]
    assert world.wrong() == {}
    world.more += [MemberRow("w", key, "completed", -1, True) for key in "ef"]
    assert world.wrong() == {"callbacks not exactly once": 1}


def test_a_step_before_its_time(world: World) -> None:
    world.entries = [
        one._replace(ns=one.ns + 8) if one.data.get("job") == "a" else one for one in world.entries
    ]
    assert world.wrong() == {"started before their time": 1}


def test_a_step_after_a_failed_one(world: World) -> None:
    world.members[0] = world.members[0]._replace(state="discarded")
    world.workflow = world.workflow._replace(counts=Counts(2, 0, 0, 2))
    assert world.wrong() == {"started before their time": 1}
    world.steps[1] = world.steps[1]._replace(when="ended")
    assert world.wrong() == {}


def test_a_step_that_never_ran_is_cancelled(world: World) -> None:
    del world.members[1]
    world.steps[1] = world.steps[1]._replace(state="cancelled")
    world.workflow = world.workflow._replace(counts=Counts(2, 0, 1, 0))
    assert world.wrong() == {}


def test_a_seed_makes_the_same_workflows_of_every_kind() -> None:
    made = [shape for shape, _ in zip(workflow_plan.shapes(3), range(200), strict=False)]
    assert made == [shape for shape, _ in zip(workflow_plan.shapes(3), range(200), strict=False)]
    assert {shape.kind for shape in made} == set(workflow_plan.KINDS)
    members = [member for shape in made for member in shape.members]
    assert {member.kind for member in members if isinstance(member, Member)} == set(workflow_plan.MIX)
    assert any(isinstance(member, Shape) for member in members)
    assert any(shape.cancel_after is not None for shape in made)
    assert any(shape.timeout is not None for shape in made)
    assert any(shape.resume_after is not None for shape in made)
