"""What the machine does in a step: by the services and by the model, then compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from django.db import connections, transaction
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    multiple,
)

from django_ojs import clock
from django_ojs.api import enqueue
from django_ojs.domain.errors import Conflict, Duplicate, InvalidRequest, NotFound
from django_ojs.domain.failures import Directive, Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.domain.leases import Lease
from django_ojs.services import checkpoints, leases, reaper, settle, workers
from tests.conftest import empty_tables
from tests.model import choices
from tests.model.history import History, Step, read, snapshot
from tests.model.lives import Life, ms
from tests.model.world import Said, World
from tests.services.support import take

LOOP = timedelta(seconds=5)


class Steps(RuleBasedStateMachine):
    """The services against the model, on whatever database there is."""

    faults: dict[str, int] = {}
    checked: dict[str, int] = {}

    def __init__(self) -> None:
        super().__init__()
        with transaction.atomic():
            empty_tables()
        self.clock = clock.FrozenClock()
        sqlite = connections["default"].vendor == "sqlite"
        self.world = World(self.clock.time, ms(1 if sqlite else 0))
        self.patches = ExitStack()
        self.patches.enter_context(clock.using_clock(self.clock))
        self.patches.enter_context(patch.object(clock, "jitter", lambda: self.world.dice))
        self.history = History()
        self.step = Step("start")
        self.ever: list[UUID] = []
        self.workers: dict[str, list[workers.WorkerInfo]] = {}
        self.set_back = False
        self.slack_known = False

    def teardown(self) -> None:
        """Undo the patches; what was injected and checked counts for the test."""
        self.patches.close()
        for row, times in self.world.faults.items():
            type(self).faults[row] = type(self).faults.get(row, 0) + times
        for name, times in self.history.checked.items():
            type(self).checked[name] = type(self).checked.get(name, 0) + times

    def _enqueue(self, options: dict[str, Any], **named: Any) -> Life:
        options = dict(options)
        policy = options.pop("policy")
        if "expires_at" in options:
            options["expires_at"] = self.world.now + timedelta(seconds=options["expires_at"])
        made = enqueue(choices.TYPE, [1], retry=policy.wire(), **options, **named)
        job = Life(made.id, options["queue"], self.world.now, policy, options["priority"])
        for name, column in (
            ("timeout", "timeout"),
            ("grace_period", "grace"),
            ("heartbeat_timeout", "silence"),
            ("total_timeout", "total"),
            ("enqueue_ttl", "ttl"),
            ("attempt_ttl", "attempt_ttl"),
            ("visibility_timeout", "visibility"),
        ):
            if name in options:
                setattr(job, column, options[name] * 1000)
        job.timeout_said, job.silence_said = "timeout" in options, "heartbeat_timeout" in options
        job.expires = options.get("expires_at")
        if "delay" in options:
            job.scheduled = self.world.now + timedelta(seconds=options["delay"])
        if "pending" in options:
            job.state, job.enqueued = "pending", None
        elif job.scheduled is not None:
            job.state = "scheduled"
            job.told("job.scheduled")
        else:
            job.told("job.enqueued")
        job.deadline = job.waiting_end()
        self.world.jobs[job.id] = job
        self.ever.append(job.id)
        return job

    def _enqueue_twice(self, options: dict[str, Any]) -> None:
        job = self._enqueue(options, id=str(clock.new_id()))
        options = {**options, "id": str(job.id), "retry": job.policy.wire()}
        del options["policy"]
        self._advance(0.001)
        again = enqueue(choices.TYPE, [1], **options)
        self.history.hold("I15", again.id == job.id, lambda: f"{again.id} for {job.id}")
        with pytest.raises(Duplicate):
            enqueue(choices.TYPE, [2], **options)

    def _hand_out(
        self, both: Sequence[str], limit: int, worker: str, beats: bool, asked: int | None
    ) -> Any:
        before = read().jobs
        self.step = Step("claim")
        claimed = take(
            limit,
            queues=both,
            types=[choices.TYPE],
            worker=worker,
            beats=beats,
            visibility_ms=asked,
        )
        got = [job.id for job in claimed]
        self._in_order(got, before, both)
        expected = self.world.expire_or_give(both, limit)
        assert got == [job.id for job in expected], f"model: claimed {got}, not {expected}"
        for record, job in zip(claimed, expected, strict=True):
            assert record.lease_id is not None
            job.begin(record.lease_id, self.world.now, worker, beats, asked)
        return multiple(*claimed)

    def _in_order(self, got: list[UUID], before: dict[UUID, JobRow], both: Sequence[str]) -> None:
        """No claim from a paused queue (I13), no job before one that goes first (I14)."""
        stopped = [job_id for job_id in got if before[job_id].queue in self.world.paused]
        self.history.hold("I13", not stopped, lambda: f"claimed while paused: {stopped}")
        row = [job for queue in both for job in snapshot(before, queue)]
        fit = [
            job.id
            for job in row
            if job.queue not in self.world.paused
            and (job.deadline_at is None or job.deadline_at > self.world.now)
        ]
        self.history.hold("I14", got == fit[: len(got)], lambda: f"{got} before {fit}")

    def _said(self, job: JobRow, report: str, failure: dict[str, Any], whole: bool) -> Said:
        known = (job.deadline_at, job.progress) if whole and report == "ack" else None
        return Said(job.id, job.lease_id, report, known=known, **failure)

    def _settle(self, reports: list[Said], records: Sequence[JobRow]) -> None:
        current = {job.lease for job in self.world.active()}
        stale = [one for one in reports if one.lease not in current]
        self.step = Step(reports[0].report, stale=len(stale) == len(reports))
        self._count_stale(stale)
        answers = settle.settle(
            [
                settle.Outcome(
                    Lease(one.job, known(one.lease)),
                    settle.Report(one.report),
                    failure=_failure(one),
                    claimed=record if one.known is not None else None,
                )
                for one, record in zip(reports, records, strict=True)
            ]
        )
        verdicts = [str(answer.verdict) for answer in answers]
        honoured = [
            one
            for one, verdict in zip(reports, verdicts, strict=True)
            if verdict == "settled" and one.lease not in current
        ]
        self.history.hold("I6", not honoured, lambda: f"a stale report was honoured: {honoured}")
        # What is given back unstarted may have expired long ago.
        self.slack_known &= reports[0].report != "release"
        expected = self.world.settle(reports)
        self.world.faults["F60"] += expected.count("replayed")
        assert verdicts == expected, f"model: {verdicts}, not {expected}"

    def _count_stale(self, stale: Sequence[Said]) -> None:
        for said in stale:
            job = self.world.jobs.get(said.job)
            for old in job.attempts if job else []:
                if old.lease == said.lease:
                    self.world.faults["F57"] += old.outcome == "cancelled"
                    self.world.faults["F56"] += old.outcome not in ("cancelled", "completed")
                    again = job is not None and job.state == "active" and job.attempt == old.attempt
                    self.world.faults["F65"] += again

    def _report(self, record: JobRow, lease_claim: str, report: str, failure: dict[str, Any]) -> None:
        self.step = Step(f"{report} with {lease_claim}")
        said = Said(
            record.id,
            record.lease_id if lease_claim == "lease" else None,
            report,
            worker={"worker": record.worker_id, "both": record.worker_id, "other worker": "w9"}.get(
                lease_claim
            ),
            attempt=record.attempt if lease_claim in ("attempt", "both") else None,
            **failure,
        )
        try:
            settled = settle.report(
                said.job,
                LeaseClaim(said.lease, said.worker, said.attempt),
                settle.Report(report),
                failure=_failure(said),
            )
            answer = str(settled.verdict)
        except NotFound:
            answer = "missing"
        except Conflict as refusal:
            answer = refusal.details["reason"]
        job = self.world.jobs.get(said.job)
        self.step.stale = job is None or job.lease is None or said.lease not in (None, job.lease)
        self.slack_known &= report != "release"
        expected = self.world.report(said)
        self.world.faults["F60"] += expected == "replayed"
        self.world.faults["F62"] += expected == "lease_lost"
        self.world.faults["F63"] += expected == "lease_required"
        wrong = answer == "settled" != expected
        self.history.hold("I6", not wrong, lambda: f"a stale report was honoured: {said}")
        assert answer == expected, f"model: {answer}, not {expected}"

    def _send(self, records: list[JobRow], what: str) -> None:
        asked = 9000 if what == "beat, seen" else None
        if not what.startswith("beat"):
            records = records[:1]
        by_job = {job.id: job for job in records}
        held = [Lease(job.id, known(job.lease_id)) for job in by_job.values()]
        told = records[0] if what == "told progress" else None
        reports = [leases.Progress(held[0], 0.5 if told else 2.0, job=told)]
        send: Callable[[], Any] = partial(leases.beat, held, visibility_ms=asked)
        if what == "checkpoint":
            send = partial(leases.checkpoint, held[0], '{"at": 1}')
        elif what == "saved checkpoint":
            shown = LeaseClaim(held[0].lease_id)
            save = partial(checkpoints.save, held[0].job_id, '{"at": 2}', {}, shown)
            send = partial(allowed, save)
        elif what.endswith("progress"):
            send = partial(leases.progress, reports)
        for job in self._sign(what, held, send, asked):
            if what.endswith("checkpoint"):
                job.checkpoints += 1
            elif what.endswith("progress"):
                job.progress = 0.5 if told else 1.0
                job.told(*(["job.progress"] if told else []))

    def _sign(
        self, name: str, held: Sequence[Lease], send: Callable[[], Any], asked: int | None
    ) -> list[Life]:
        jobs = [self.world.jobs.get(lease.job_id) for lease in held]
        known = [
            job
            for job, lease in zip(jobs, held, strict=True)
            if job is not None and job.lease == lease.lease_id
        ]
        alive = [job for job in known if not self.world.over(job)]
        late = []
        if name.endswith("checkpoint"):
            late = [
                job
                for job, lease in zip(jobs, held, strict=True)
                if job is not None and job not in alive and self.world.cleaning_up(job, lease.lease_id)
            ]
        self.step = Step(name, stale=not alive and not late and not known)
        self.world.faults["F64"] += len(held) - len(known)
        answer = send()
        if isinstance(answer, bool):
            kept = {held[0].job_id} if answer else set()
        else:
            kept = {one.job_id for one in answer}
        lost = kept - {job.id for job in [*alive, *late]}
        self.history.hold("I6", not lost, lambda: f"{name}: extended under stale leases: {lost}")
        alive += late
        assert kept == {job.id for job in alive}, f"model: {name}: {kept}"
        for job in known:
            # A beat is written to the row also when the time of the attempt is up.
            if job not in late and (job in alive or name == "live" or name.startswith("beat")):
                job.heard(self.world.now, asked)
        return alive

    def _running(self, pick: int) -> Life | None:
        found = self.world.active()
        return found[pick % len(found)] if found else None

    def _any(self, pick: int) -> Life | None:
        found = [job for _, job in sorted(self.world.jobs.items())]
        return found[pick % len(found)] if found else None

    def _agree(self, done: bool, predicted: bool) -> None:
        assert done == predicted, f"model: {self.step.name}: done {done}, predicted {predicted}"

    def _advance(self, seconds: float) -> None:
        self.world.now = self.clock.advance(seconds)

    def _scan(self, cadence: timedelta | None, alive: str = "") -> None:
        """The reaper looks; ``alive`` says when, if all workers are."""
        counts = reaper.scan(cadence=cadence, ran_by="model").counts
        if alive:
            self.history.hold("I10", not counts["stalled"], lambda: f"stalled {alive}: {counts}")
        expected = self.world.scan(cadence)
        assert +counts == +expected, f"model: reaped {counts}, not {expected}"
        self.slack_known = True

    @property
    def _slack(self) -> timedelta | None:
        """How late a reaper that scanned when it did may be."""
        scanned = self.world.scanned if self.slack_known else None
        return None if scanned is None else self.world.now - scanned

    @invariant()
    def holds(self) -> None:
        """Everything, after every step."""
        self.history.check(self.step, self.world, slack=self._slack, set_back=self.set_back)
        self.step = Step("nothing", stale=True)


def until(now: datetime, ends: Iterable[datetime | None]) -> float:
    """Seconds from now to the first of these moments that is to come."""
    ahead = [end for end in ends if end is not None and end > now]
    return (min(ahead) - now).total_seconds() if ahead else 0


def known(lease: UUID | None) -> UUID:
    assert lease is not None
    return lease


def _failure(said: Said) -> Failure | None:
    if said.report != "fail":
        return None
    return Failure(
        said.error,
        "no",
        retryable=said.retryable,
        directive=None if said.directive is None else Directive(said.directive),
        retry_after_ms=said.after,
    )


def allowed(call: Callable[[], object]) -> bool:
    """Whether a verb was done, rather than refused."""
    try:
        call()
    except (Conflict, NotFound, InvalidRequest):
        return False
    return True
