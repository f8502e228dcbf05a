"""Take the reports of workers: ACK, FAIL, requeue, release; many at once (OJS worker protocol 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import compress
from typing import NamedTuple
from uuid import UUID

from django_ojs import clock, conf, hooks
from django_ojs.domain import lifecycle
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import Conflict
from django_ojs.domain.failures import Failure, is_timeout_report
from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.jsonvalue import sanitise_text
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import State
from django_ojs.models import Attempt
from django_ojs.services.acknowledge import Ack, acknowledge
from django_ojs.services.commit import commit
from django_ojs.services.fencing import authorize_report, record_late_report, refused
from django_ojs.services.judging import Judge
from django_ojs.services.rate_limits import places
from django_ojs.store import locking
from django_ojs.store.contention import atomically, in_transaction


class Report(StrEnum):
    """The kinds of reports about an attempt."""

    __hash__ = str.__hash__

    ACK = "ack"
    FAIL = "fail"
    REQUEUE = "requeue"
    RELEASE = "release"


class Outcome(NamedTuple):
    """One report under one lease; ``result`` is JSON text.

    ``claimed`` is the record as claimed, if the reporter still has it. ``tried_at`` is when the report
    was first tried, if it has waited for a locked row since: lateness is judged by it. ``principal`` is
    the reporter's credential, ``None`` for a worker of this project.
    """

    lease: Lease
    report: Report
    result: str | None = None
    failure: Failure | None = None
    claimed: JobRow | None = None
    tried_at: datetime | None = None
    principal: str | None = None

    def holds(self, lease_id: UUID | None, principal: str | None) -> bool:
        """Whether this is the lease, and the reporter's own."""
        return (lease_id, principal) == (self.lease.lease_id, self.principal)


class Verdict(StrEnum):
    """The result of a report."""

    SETTLED = "settled"
    REPLAYED = "replayed"
    LOST = "lost"
    MISSING = "missing"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The answer to one report; ``job`` is the record as it is now, if it was read."""

    verdict: Verdict
    job: JobRow | None


def settle(
    outcomes: Sequence[Outcome], *, wait: bool = True, using: str | None = None
) -> list[SettleResult]:
    """Write the reports, and return for each whether it counted, in the same order.

    Locked rows are written last, one by one; without ``wait`` their reports are ``HELD``: send those
    again.

    A report with a lease that is not current, or of another credential, is ``LOST`` and changes
    nothing; it is noted on its attempt if that was the reporter's. A report after the deadline
    (:class:`Judge`) is ``LOST`` too, and ends the attempt with its timeout, unless it reports that
    timeout. Repeating an ACK that was honoured is ``REPLAYED`` (decision L2). A constant number of
    statements for any number of reports: one or two for ACKs with the ``claimed`` record.
    """
    using = using or conf.current().database
    tried_at = clock.now(using)
    plain = [_is_plain(outcome, tried_at) for outcome in outcomes]
    if any(plain):
        acks = [
            Ack(outcome.claimed, outcome.result)
            for outcome in compress(outcomes, plain)
            if outcome.claimed is not None
        ]
        written = iter(acknowledge(acks, using=using))
        plain = [can and next(written) for can in plain]
    rest = [
        outcome._replace(tried_at=outcome.tried_at or tried_at)
        for outcome, done in zip(outcomes, plain, strict=True)
        if not done
    ]
    read = iter(_settle_free(rest, wait, using))
    return [_SETTLED if done else next(read) for done in plain]


_SETTLED = SettleResult(Verdict.SETTLED, None)


def _is_plain(outcome: Outcome, tried_at: datetime) -> bool:
    """Whether this is an ACK, in time, of a job under the lease that it was claimed with."""
    job = outcome.claimed
    if outcome.report is not Report.ACK or job is None or job.lease_id != outcome.lease.lease_id:
        return False
    return job.deadline_at is not None and job.deadline_at > (outcome.tried_at or tried_at)


def report(
    job_id: UUID,
    lease_claim: LeaseClaim,
    kind: Report,
    *,
    result: str | None = None,
    failure: Failure | None = None,
    using: str | None = None,
) -> SettleResult:
    """Settle one report, authorized by its lease claim (decision L1).

    Raises :class:`NotFound`, :class:`Conflict` for a job that is not active or past its deadline, and
    :class:`LeaseLost` for an insufficient claim. Nothing is changed then, except a note of the late
    report, and the end of an attempt past its deadline. Repeating an ACK with its lease id is
    ``REPLAYED``.
    """
    using = using or conf.current().database
    tried_at = clock.now(using)
    answer = _report(job_id, lease_claim, kind, result, failure, tried_at, using=using)
    if isinstance(answer, Conflict):
        raise answer
    return answer


@in_transaction
def _report(
    job_id: UUID,
    lease_claim: LeaseClaim,
    kind: Report,
    result: str | None,
    failure: Failure | None,
    tried_at: datetime,
    *,
    using: str = "",
) -> SettleResult | Conflict:
    """A conflict is returned, not raised, so that the note of a late report is committed."""
    job = locking.job(job_id, using=using)
    now = clock.now(using)
    if lease_claim.lease_id is not None and lease_claim.lease_id != job.lease_id:
        lease = Lease(job_id, lease_claim.lease_id)
        late = Outcome(lease, kind, result, failure, principal=lease_claim.principal)
        settled = _settle([late], using)[0]
        if settled.verdict is Verdict.REPLAYED:
            return settled
        return refused(job, "lease_lost" if job.state == State.ACTIVE else "not_active")
    try:
        lease = authorize_report(job, lease_claim, now=now, using=using)
    except Conflict as refusal:
        if job.state != State.ACTIVE:
            record_late_report(job, lease_claim, _noted(kind, failure), now=now, using=using)
        return refusal
    outcome = Outcome(lease, kind, result, failure, tried_at=tried_at, principal=lease_claim.principal)
    settled = _settle([outcome], using)[0]
    if settled.verdict is Verdict.LOST:
        assert settled.job is not None
        return refused(settled.job, "not_active")
    return settled


def _settle_free(outcomes: Sequence[Outcome], wait: bool, using: str) -> list[SettleResult]:
    """Settle the unlocked ones together, then, with ``wait``, each locked one by itself."""
    if not outcomes:
        return []
    if len(outcomes) == 1 and wait:
        return atomically(using, partial(_settle, outcomes, using))
    answers = atomically(using, partial(_settle, outcomes, using, pass_over=True))
    if wait:
        for index, outcome in enumerate(outcomes):
            if answers[index].verdict is Verdict.HELD:
                answers[index] = atomically(using, partial(_settle, [outcome], using))[0]
    return answers


def _settle(outcomes: Sequence[Outcome], using: str, *, pass_over: bool = False) -> list[SettleResult]:
    wanted = {outcome.lease.job_id for outcome in outcomes}
    locked = locking.jobs(wanted, skip_locked=pass_over, using=using)
    held = locking.existing(wanted - locked.keys(), using=using) if pass_over else set()
    if pass_over:
        for job_id in hooks.held_by_others(locked.values(), using=using):
            held.add(job_id)
            del locked[job_id]
    judge = Judge(using)
    now = clock.now(using)
    answers: list[SettleResult | None] = []
    transitions: list[Transition] = []
    settled: set[UUID] = set()
    for outcome in outcomes:
        job = locked.get(outcome.lease.job_id)
        if job is None:
            verdict = Verdict.HELD if outcome.lease.job_id in held else Verdict.MISSING
            answers.append(SettleResult(verdict, None))
        elif job.id in settled or not outcome.holds(job.lease_id, job.lease_principal):
            answers.append(None)
        else:
            settled.add(job.id)
            ended = _ended(job, outcome, judge, now)
            transition = ended or _decide(job, outcome, now)
            transitions.append(transition)
            locked[job.id] = transition.written
            answers.append(None if ended else SettleResult(Verdict.SETTLED, transition.written))
    commit(transitions, now=now, using=using)
    refused = [outcome for outcome, answer in zip(outcomes, answers, strict=True) if answer is None]
    replayed = _refuse(refused, now, using) if refused else set()
    return [
        answer
        or SettleResult(
            Verdict.REPLAYED if outcome.lease in replayed else Verdict.LOST,
            locked[outcome.lease.job_id],
        )
        for outcome, answer in zip(outcomes, answers, strict=True)
    ]


def _ended(job: JobRow, outcome: Outcome, judge: Judge, now: datetime) -> Transition | None:
    """The transition for an attempt past its deadline, unless the report is that timeout.

    A release is accepted at any time: the job was not started.
    """
    says_so = outcome.failure is not None and is_timeout_report(outcome.failure)
    if says_so or outcome.report is Report.RELEASE:
        return None
    if not judge.is_late(job, outcome.tried_at or now):
        return None
    return lifecycle.overdue(job, now=judge.now, jitter=clock.jitter())


def _decide(job: JobRow, outcome: Outcome, now: datetime) -> Transition:
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


def _refuse(outcomes: Sequence[Outcome], now: datetime, using: str) -> set[Lease]:
    """Note late reports on the attempts they are about; returns the leases of repeated ACKs.

    Their handlers have ended: they take no place under a rate limit any more.
    """
    late = {outcome.lease: outcome for outcome in outcomes}
    attempts = Attempt.objects.using(using).filter(
        job_id__in={lease.job_id for lease in late}, lease_id__in={lease.lease_id for lease in late}
    )
    replayed = set()
    over = []
    for attempt in attempts:
        lease = Lease(attempt.job_id, attempt.lease_id)
        outcome = late[lease]
        if not outcome.holds(attempt.lease_id, attempt.principal):
            continue
        over.append(attempt.lease_id)
        if attempt.outcome == "completed" and outcome.report is Report.ACK:
            replayed.add(lease)
        elif attempt.late_report is None:
            noted = {**_noted(outcome.report, outcome.failure), "at": format_instant(now)}
            Attempt.objects.using(using).filter(pk=attempt.pk, late_report__isnull=True).update(
                late_report=noted
            )
    if over:
        places.ended(over, using=using)
    return replayed


def _noted(kind: Report, failure: Failure | None) -> dict[str, str]:
    noted = {"report": str(kind)}
    if failure is not None:
        noted["error_type"] = sanitise_text(failure.type, 255)
    return noted
