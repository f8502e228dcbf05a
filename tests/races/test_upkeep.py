"""What is old is deleted while somebody takes it up again, at each statement of both."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ojs import clock, group, resume_workflow, step
from django_ojs.api import retry
from django_ojs.domain.states import State
from django_ojs.models import Job, Workflow, WorkflowStep
from django_ojs.services import prune
from django_ojs.services.workflows import upkeep
from tests.races.stepping import Player, Work
from tests.races.test_singletons import everywhere
from tests.services.support import fail, make, take

pytestmark = pytest.mark.every_database

Players = tuple[Player, Player]


@pytest.mark.parametrize("first", ["prune", "resume"])
def test_a_workflow_that_is_resumed_is_not_pruned(
    players: Players, frozen: clock.FrozenClock, first: str
) -> None:
    def scene() -> tuple[Work, Work]:
        for model in (Job, WorkflowStep, Workflow):
            model._default_manager.all()._raw_delete("default")
        made = group(group(step("test.job", retry={"max_attempts": 1}))).enqueue()
        fail(*take())
        frozen.advance(60 * 86_400)
        before = frozen.time - timedelta(days=7)
        works: tuple[Work, Work] = (
            lambda: f"{len(upkeep.prune(before, 10, False, 'default'))} pruned",
            lambda: resume_workflow(made).state,
        )
        return works if first == "prune" else works[::-1]

    ends = set()
    for said in everywhere(players, scene):
        left = Workflow.objects.values_list("state", flat=True)
        ends.add((*sorted(said), *left, WorkflowStep.objects.exists()))
    assert ends == {
        ("0 pruned", "running", "running", "running", True),
        ("1 pruned", "NotFound", False),
    }


@pytest.mark.parametrize("first", ["prune", "retry"])
def test_a_job_that_is_retried_is_not_pruned(
    players: Players, frozen: clock.FrozenClock, first: str
) -> None:
    def scene() -> tuple[Work, Work]:
        Job.objects.all()._raw_delete("default")
        (job,) = make(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
        fail(*take())
        frozen.advance(60 * 86_400)
        due = frozen.time - timedelta(days=7), 10, False, "default"
        works: tuple[Work, Work] = (
            lambda: f"{prune._jobs('dead', prune.Front(), State.DISCARDED, True, *due)} pruned",
            lambda: retry(job.id).state,
        )
        return works if first == "prune" else works[::-1]

    ends = set()
    for said in everywhere(players, scene):
        ends.add((*sorted(said), *Job.objects.values_list("state", flat=True)))
    assert ends == {("0 pruned", "available", "available"), ("1 pruned", "NotFound")}
