"""What is stored, before and after each step: the invariants, and the comparison with the model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.models import Attempt, Event
from django_ojs.store import invariants
from django_ojs.store.dialect import cursor, dialect
from tests.model.lives import TERMINAL, WAITING, ms
from tests.model.world import World

STATES = (*TERMINAL, *WAITING, "active")
TOLD_BY_TIME = {"I8", "I16"}
"""Invariants that compare moments, which say nothing once the clock was set back."""
ASKED_EVERY = 7
"""Every how many steps the invariants that are queries are asked for: they take longest."""
ATTEMPT = (
    "job_id",
    "lease_seq",
    "lease_id",
    "attempt",
    "worker_id",
    "started_at",
    "ended_at",
    "deadline_at",
    "outcome",
    "late_report",
)


@dataclass
class Stored:
    """All rows at one moment."""

    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    attempts: dict[UUID, list[tuple[Any, ...]]] = field(default_factory=dict)
    events: dict[UUID, Counter[str]] = field(default_factory=dict)


def read() -> Stored:
    """All rows as they are now."""
    stored = Stored()
    sql = dialect("default")
    with cursor("default") as cur:
        sql.fast_loaders(cur)
        cur.execute(f"SELECT {sql.job_columns} FROM django_ojs_job j")
        stored.jobs = {job.id: job for job in sql.jobs(cur.fetchall())}
    attempts = Attempt.objects.order_by("job_id", "lease_seq")
    for job_id, *ended in attempts.values_list(*ATTEMPT):
        stored.attempts.setdefault(job_id, []).append(tuple(ended))
    for job_id, kind in Event.objects.values_list("job_id", "kind"):
        if job_id is not None:
            stored.events.setdefault(job_id, Counter())[kind] += 1
    return stored


@dataclass
class Step:
    """What a step was: ``stale`` if it must change no job, ``retried`` and ``purged`` jobs."""

    name: str = ""
    stale: bool = False
    retried: set[UUID] = field(default_factory=set)
    purged: set[UUID] = field(default_factory=set)


class History:
    """The rows before the step, and everything that must hold between them and those after it."""

    def __init__(self) -> None:
        self.before = Stored()
        self.checked: Counter[str] = Counter()
        self.steps = 0

    def hold(self, name: str, condition: bool, text: Callable[[], str]) -> None:
        """An invariant, by name."""
        self.checked[name] += 1
        assert condition, f"{name}: {text()}"

    def check(self, step: Step, world: World, *, slack: timedelta | None, set_back: bool) -> None:
        """Everything that must hold after a step; ``slack`` is how long ago the last scan was."""
        after = read()
        self._conserved(step, world, after)
        for job_id, job in after.jobs.items():
            old = self.before.jobs.get(job_id)
            if old is not None:
                self._moved(step, old, job, after, world)
        for job in after.jobs.values():
            self._as_predicted(world, job, after)
        self.steps += 1
        if self.steps % ASKED_EVERY == 0:
            self.ask(world.now, slack, set_back)
        self.before = after

    def _conserved(self, step: Step, world: World, after: Stored) -> None:
        expected = set(world.jobs)
        self.hold("I1", set(after.jobs) == expected, lambda: f"{expected ^ set(after.jobs)}")
        strange = {job.state for job in after.jobs.values()} - set(STATES)
        self.hold("I1", not strange, lambda: f"states {strange}")
        lost = set(self.before.jobs) - set(after.jobs)
        self.hold("I1", lost == step.purged, lambda: f"deleted {lost}, purged {step.purged}")

    def _moved(self, step: Step, old: JobRow, job: JobRow, after: Stored, world: World) -> None:
        """One job before and after."""
        moved = f"{step.name}: {old.state} -> {job.state}"
        if old.state in TERMINAL:
            reborn = old.state == "discarded" and job.state == "available" and job.id in step.retried
            self.hold("I2", job.state == old.state or reborn, lambda: moved)
        if step.stale:
            changed = {
                name: (was, now)
                for name, was, now in zip(JobRow._fields, old, job, strict=True)
                if was != now
            }
            self.hold("I6", not changed, lambda: f"{step.name} of a stale lease changed {changed}")
        if job.state != old.state:
            told = after.events.get(job.id, Counter()).total()
            known = self.before.events.get(job.id, Counter()).total()
            self.hold("I17", told > known, lambda: f"{moved} without an event")
        if job.state in WAITING:
            used = f"{moved} after {job.attempt} of {job.max_attempts} attempts"
            self.hold("I3", job.attempt < max(1, job.max_attempts), lambda: used)
        if job.state == "retryable" != old.state:
            self._planned(old, job, world)

    def _planned(self, old: JobRow, job: JobRow, world: World) -> None:
        """A retry that was planned in this step."""
        assert job.scheduled_at is not None
        delay = job.scheduled_at - world.now
        life = world.jobs[job.id]
        if job.total_timeout_ms is not None:
            needed = delay + ms(job.timeout_ms if job.timeout_explicit else 0)
            end = job.limits_from + ms(job.total_timeout_ms)
            self.hold("I11", world.now + needed <= end, lambda: "a retry that cannot end in time")
        if life.after is None:
            raw = life.policy.backoff_ms(old.attempt)
            least, most = (raw * 0.5, raw * 1.5) if life.policy.jitter else (raw, raw)
            most = min(most, life.policy.most_ms)
            fits = ms(int(least)) <= delay <= ms(int(most) + 1)
            self.hold("I16", fits, lambda: f"a delay of {delay} for {raw} ms")

    def ask(self, now: datetime, slack: timedelta | None, set_back: bool) -> None:
        """The invariants that are queries; without ``slack`` those of deadlines are not asked."""
        late = timedelta(days=10_000) if slack is None else slack
        names = set(invariants.RULES) - (TOLD_BY_TIME if set_back else set())
        found = [
            finding
            for finding in invariants.check(now=now, slack=late, using="default")
            if finding.name in names
        ]
        self.checked.update(names)
        if found:
            raise AssertionError("; ".join(f"{one.name}: {one.rule}" for one in found))

    def _as_predicted(self, world: World, job: JobRow, after: Stored) -> None:
        """One job and its attempts against the model."""
        life = world.jobs[job.id]
        wrong = {
            name: (getattr(job, name), value)
            for name, value in life.columns().items()
            if getattr(job, name) != value
        }
        assert not wrong, f"model: stored, predicted: {wrong}"
        error = None if job.error is None else json.loads(job.error)["type"]
        errors = [one["type"] for one in json.loads(job.errors)]
        assert (error, errors) == (life.error, life.errors), f"model: {error}, {errors}"
        ended = [
            (
                one.seq,
                one.lease,
                one.attempt,
                one.worker,
                one.started,
                one.ended,
                one.deadline,
                one.outcome,
            )
            for one in life.attempts
        ]
        attempts = after.attempts.get(job.id, [])
        self.hold("I5", [row[:-1] for row in attempts] == ended, lambda: f"{attempts} for {ended}")
        noted = [row[-1] is not None for row in attempts]
        assert noted == [one.late is not None for one in life.attempts], f"model: notes {noted}"
        told = after.events.get(job.id, Counter())
        self.hold("I17", told == life.events, lambda: f"{told} for {life.events}")


def snapshot(jobs: Mapping[UUID, JobRow], queue: str) -> list[JobRow]:
    """The available jobs of a queue, in the order in which they must be claimed."""
    found = [job for job in jobs.values() if job.queue == queue and job.state == "available"]
    return sorted(found, key=lambda job: (-job.priority, job.enqueued_at, job.id))
