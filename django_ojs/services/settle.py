"""Take the reports of workers: ACK, FAIL, requeue, release; many at once (OJS worker protocol 5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.domain.durations import format_instant
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRecord, Transition
from django_ojs.models import Attempt
from django_ojs.services.commit import commit
from django_ojs.store import locking
from django_ojs.store.contention import atomically
from django_ojs.store.leases import Held


class Report(StrEnum):
    """What a worker says of an attempt."""

    ACK = "ack"
    FAIL = "fail"
    REQUEUE = "requeue"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One report under one lease; ``result`` is JSON text."""

    lease: Held
    report: Report
    result: str | None = None
    failure: Failure | None = None


class Verdict(StrEnum):
    """What became of a report."""

    SETTLED = "settled"
    REPLAYED = "replayed"
    LOST = "lost"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to one report: the record as it is now, if there is one."""

    verdict: Verdict
    job: JobRecord | None


def settle(
    outcomes: Sequence[Outcome], *, now: datetime | None = None, using: str | None = None
) -> list[Settled]:
    """Write the reports, and say for each whether it counted; in the same order.

    A report whose lease is not the current one changes nothing: it is ``LOST``, and noted on its
    attempt. Repeating an ACK that was honoured is ``REPLAYED`` (decision L2). A constant number of
    statements for any number of reports.
    """
    using = using or conf.current().database
    return atomically(using, partial(_settle, outcomes, now, using))


def _settle(outcomes: Sequence[Outcome], now: datetime | None, using: str) -> list[Settled]:
    locked = locking.jobs((outcome.lease.job_id for outcome in outcomes), using=using)
    now = now or clock.now(using)
    answers: list[Settled | None] = []
    moves: list[Transition] = []
    settled: set[UUID] = set()
    for outcome in outcomes:
        job = locked.get(outcome.lease.job_id)
        if job is None:
            answers.append(Settled(Verdict.MISSING, None))
        elif job.lease_id != outcome.lease.lease_id or job.id in settled:
            answers.append(None)
        else:
            settled.add(job.id)
            move = _decide(job, outcome, now)
            moves.append(move)
            locked[job.id] = move.written
            answers.append(Settled(Verdict.SETTLED, move.written))
    commit(moves, now=now, using=using)
    refused = [outcome for outcome, answer in zip(outcomes, answers, strict=True) if answer is None]
    replayed = _refuse(refused, now, using) if refused else set()
    return [
        answer
        or Settled(
            Verdict.REPLAYED if outcome.lease in replayed else Verdict.LOST,
            locked[outcome.lease.job_id],
        )
        for outcome, answer in zip(outcomes, answers, strict=True)
    ]


def _decide(job: JobRecord, outcome: Outcome, now: datetime) -> Transition:
    match outcome.report:
        case Report.ACK:
            return lifecycle.ack(job, result=outcome.result, now=now)
        case Report.FAIL:
            failure = outcome.failure or Failure("handler_error", "unspecified error")
            return lifecycle.fail(job, failure, now=now, jitter=clock.jitter())
        case Report.REQUEUE:
            return lifecycle.requeue(job, now=now)
        case Report.RELEASE:
            return lifecycle.release(job, now=now)


def _refuse(outcomes: Sequence[Outcome], now: datetime, using: str) -> set[Held]:
    """Note late reports on the attempts they are about; returns the leases of repeated ACKs."""
    late = {outcome.lease: outcome for outcome in outcomes}
    attempts = Attempt.objects.using(using).filter(
        job_id__in={lease.job_id for lease in late}, lease_id__in={lease.lease_id for lease in late}
    )
    replayed = set()
    for attempt in attempts:
        lease = Held(attempt.job_id, attempt.lease_id)
        outcome = late[lease]
        if attempt.outcome == "completed" and outcome.report is Report.ACK:
            replayed.add(lease)
        elif attempt.late_report is None:
            report = {"report": str(outcome.report), "at": format_instant(now)}
            if outcome.failure is not None:
                report["error_type"] = outcome.failure.type
            Attempt.objects.using(using).filter(pk=attempt.pk, late_report__isnull=True).update(
                late_report=json.loads(json.dumps(report))
            )
    return replayed
