"""Random workflows, random ends of their members, random acts of people: what holds after each step."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F

from django_ojs import (
    WorkflowRecord,
    batch,
    cancel_workflow,
    chain,
    group,
    resume_workflow,
    step,
    workflow,
)
from django_ojs.api import cancel
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict, InvalidTransition
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import LIVE
from django_ojs.models import Job, RateLimitPlace, Workflow
from django_ojs.services import operate, promote, reap
from django_ojs.services.settle import Outcome, Report, settle
from django_ojs.services.workflows import upkeep
from django_ojs.services.workflows.starting import BIT

from .support import held, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

SEEDS = {"sqlite": range(75, 90), "postgresql": range(6), "mysql": range(6)}


class World:
    """A few workflows, and those who act on them."""

    def __init__(self, seed: int, frozen: FrozenClock) -> None:
        self.random = random.Random(seed)
        self.clock = frozen
        self.made: list[WorkflowRecord] = []
        self.failing = self.random.choice([0.3, 0.3, 0.7])
        self.telling = self.random.choice([0.4, 0.1])

    def a_step(self) -> Any:
        when: Any = "ended" if self.random.random() < 0.2 else "completed"
        attempts = {"max_attempts": self.random.choice([1, 1, 2]), "initial_interval": "PT1S"}
        options: dict[str, Any] = {}
        if self.random.random() < 0.3:
            options["rate_limit"] = {"key": "k", "concurrency": 2}
        return step("test.job", retry=attempts, when=when, **options)

    def a_workflow(self, depth: int = 1) -> Any:
        kind: Any = self.random.choice([chain, group, batch, workflow])
        members = [
            self.a_workflow(depth + 1) if depth < 3 and self.random.random() < 0.2 else self.a_step()
            for _ in range(self.random.randint(1, 4))
        ]
        names = ["on_complete", "on_success", "on_failure"]
        chosen = [name for name in names if self.random.random() < self.telling]
        if kind is batch and not chosen:
            chosen = ["on_complete"]
        callbacks: dict[str, Any] = {
            name: step("test.job", retry={"max_attempts": 1}) for name in chosen
        }
        if kind is workflow:
            dag = workflow("dag", **callbacks)
            nodes: list[Any] = []
            for member in members:
                after = [node for node in nodes if self.random.random() < 0.5]
                nodes.append(dag.add(member, after=after))
            return dag
        return kind(*members, **callbacks)

    def act(self) -> None:
        """Do one thing."""
        acts = [self.create, self.work, self.work, self.work, self.work, self.people, self.time]
        acts += [self.retry, self.retry]
        with suppress(Conflict, InvalidTransition):
            self.random.choice(acts)()
        self.check()

    def create(self) -> None:
        if len(self.made) < 4:
            timeout = self.random.choice([None, "20s", "60s"])
            self.made.append(self.a_workflow().enqueue(workflow_timeout=timeout))

    def work(self) -> None:
        promote.promote(seconds=1, using="default")
        outcomes = [self.an_end(job) for job in take(self.random.randint(1, 8))]
        at_once = self.random.choice([1, 8])
        for start in range(0, len(outcomes), at_once):
            settle(outcomes[start : start + at_once])

    def an_end(self, job: JobRow) -> Outcome:
        if self.random.random() > self.failing:
            return Outcome(held(job), Report.ACK)
        return Outcome(held(job), Report.FAIL, failure=Failure("test.Error", "no"))

    def people(self) -> None:
        if not self.made:
            return
        one = self.random.choice(self.made)
        job = self.random.choice([None, *Job.objects.filter(workflow_id__isnull=False).order_by("pk")])
        act = self.random.randrange(5)
        if act == 0:
            cancel_workflow(one)
        elif act in (1, 2):
            resume_workflow(one)
        elif job is not None and act == 3:
            cancel(job.id)
        elif job is not None and self.random.random() < 0.3:
            operate.purge([job.id])

    def retry(self) -> None:
        """Of one tree, all that have failed for good, or some of them."""
        dead = Job.objects.filter(state="discarded", workflow_step__gte=0).order_by("pk")
        found = {job.pk: job.workflow_id for job in dead if job.workflow_id and job.hooks & BIT}
        rows = Workflow.objects.filter(pk__in=list(found.values()))
        roots = dict(rows.order_by("pk").values_list("pk", "root_id"))
        if roots:
            root = self.random.choice(list(roots.values()))
            ids = [job_id for job_id, owner in found.items() if roots[owner] == root]
            operate.retry_dead(self.random.sample(ids, self.random.choice([1, len(ids)])))

    def time(self) -> None:
        self.clock.advance(self.random.choice([1, 5, 15]))
        reap.reap()

    def check(self) -> None:
        """What always holds."""
        assert [str(drift) for drift in upkeep.drifts()] == []
        for row in Workflow.objects.all():
            is_over = not row.open and not row.callbacks_open
            assert is_over == (row.finished_at is not None), row
            assert row.open >= 0 and row.callbacks_open >= 0 and row.cancelled >= 0, row
            if row.finished_at is not None:
                assert row.state != "running", row
        self.check_callbacks()

    def check_callbacks(self) -> None:
        """Each callback at most once in a run, and in a run that has ended as often as it should."""
        callbacks = Job.objects.alias(bit=F("hooks").bitand(BIT)).filter(workflow_step__lt=0, bit=BIT)
        fired: Counter[tuple[UUID | None, int | None]] = Counter(
            callbacks.values_list("workflow_id", "workflow_step")
        )
        assert [place for place, count in fired.items() if count > 1] == []
        for row in Workflow.objects.filter(callbacks_fired=True):
            places = {step for owner, step in fired if owner == row.pk}
            assert not {-2, -3} <= places, row

    def to_the_end(self) -> None:
        """Whatever is left comes to its end."""
        for _ in range(200):
            if not Job.objects.filter(state__in=sorted(LIVE)).exists():
                break
            self.clock.advance(2)
            self.work()
            self.check()
        assert not Workflow.objects.filter(finished_at__isnull=True).exists()


@pytest.fixture
def seeds(vendor: str) -> range:
    return SEEDS[vendor]


@pytest.mark.slow
def test_random_workflows(frozen: FrozenClock, seeds: range) -> None:
    play(seeds, frozen)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_random_workflows(frozen: FrozenClock) -> None:
    play(range(1000, 1040), frozen)


def play(seeds: range, frozen: FrozenClock) -> None:
    """Forty acts in each world, then its end."""
    for seed in seeds:
        world = World(seed, frozen)
        try:
            for _ in range(40):
                world.act()
            world.to_the_end()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        Job.objects.all().delete()
        Workflow.objects.all().delete()
        RateLimitPlace.objects.all().delete()
        frozen.advance(timedelta(days=1).total_seconds())
