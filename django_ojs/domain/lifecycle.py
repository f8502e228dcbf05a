"""Decisions about the life of a job: pure functions from a record and an explicit ``now``.

Each returns a :class:`~django_ojs.domain.job.Transition` to be committed, or raises
:class:`~django_ojs.domain.errors.InvalidTransition`. A worker's FAIL and the reaper share
:func:`fail`; nothing else decides between ``retryable`` and ``discarded``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django_ojs.domain import retry
from django_ojs.domain.durations import format_instant
from django_ojs.domain.events import Kind, attempt_facts, job_event
from django_ojs.domain.failures import (
    Failure,
    error_object,
    is_timeout_report,
    no_time_left,
    timed_out,
    timeout_fields,
)
from django_ojs.domain.incidents import incident_of
from django_ojs.domain.job import NO_LEASE, AttemptEnd, JobEvent, JobRow, Transition, held_by
from django_ojs.domain.retry_decision import RetryDecision, decide_retry
from django_ojs.domain.states import State, Trigger
from django_ojs.domain.timeouts import (
    Fired,
    TimeoutKind,
    after,
    available_from,
    elapsed,
    fired,
    lease_end,
    starting_deadline,
    total_deadline,
    waiting_deadline,
)

KEPT_ERRORS = 50


def claim(
    job: JobRow,
    *,
    lease_id: UUID,
    worker_id: str | None,
    beats: bool,
    visibility_ms: int | None,
    principal: str | None = None,
    now: datetime,
) -> Transition:
    """Give the job to a worker under a fresh lease; the attempt counts from here (decision R1).

    ``beats`` is whether the worker has ever sent a heartbeat, which arms the default heartbeat
    timeout (decision T4). ``visibility_ms`` is the lease that the worker asked for, if any;
    ``principal`` the credential that it fetches with.
    """
    visibility = job.visibility_timeout_ms or visibility_ms
    changes: dict[str, Any] = {
        **held_by(worker_id, principal, now),
        "attempt": job.attempt + 1,
        "lease_seq": job.lease_seq + 1,
        "lease_id": lease_id,
        "heartbeat_armed": job.heartbeat_explicit or beats,
    }
    if job.progress is not None:
        # It is that of the attempt before; its data are for this one, until it reports its own.
        changes.update(progress=None, progress_message="")
    deadline = starting_deadline(job, now)
    changes["deadline_at"] = deadline
    if visibility is not None:
        changes["lease_visibility_ms"] = visibility
        changes["lease_expires_at"] = min(after(now, visibility), deadline)
    started = job_event(Kind.STARTED, job, attempt=job.attempt + 1, worker_id=worker_id)
    return Transition(Trigger.CLAIM, job, State.ACTIVE, changes, job_events=(started,))


def ack(job: JobRow, *, result: str | None, now: datetime) -> Transition:
    """The attempt succeeded; ``result`` is JSON text or ``None``."""
    changes: dict[str, Any] = {
        **NO_LEASE,
        "deadline_at": None,
        "finished_at": now,
        "result": result,
        "error": None,
    }
    if job.progress is not None:
        changes["progress"] = 1.0
    done = job_event(
        Kind.COMPLETED,
        job,
        duration_ms=elapsed(job.started_at or now, now),
        result=None if result is None else json.loads(result) if len(result) < 1024 else None,
    )
    return Transition(
        Trigger.ACK, job, State.COMPLETED, changes, AttemptEnd("completed", None), (done,)
    )


def fail(
    job: JobRow,
    failure: Failure,
    *,
    now: datetime,
    jitter: float,
    trigger: Trigger = Trigger.FAIL,
) -> Transition:
    """The attempt failed: retry or give up, as :func:`decide_retry` says.

    A worker that reports a timeout does not report which one:
    the total timeout goes first (decision T8). ``jitter`` is a number in [0, 1) drawn by the caller.
    """
    if is_timeout_report(failure):
        due = fired(job, now)
        if job.state == State.ACTIVE and due is not None and due.clock is TimeoutKind.TOTAL:
            return _total_expired(job, timed_out(due), now)
        ran_out = _execution(job, now)
        message = failure.message or timed_out(ran_out).message
        failure = replace(failure, fired=ran_out, message=message)
    at_once = trigger is Trigger.LAPSE
    decision = decide_retry(job, failure, now=now, jitter=jitter, at_once=at_once)
    ending = _failed(job, replace(failure, retryable=decision.retry), now)
    if decision.too_late:
        ending = _too_late(job, ending, decision, now)
    if not decision.retry:
        return _discarded(job, trigger, ending, decision.dead_letter, now)
    if at_once:
        return _available_again(job, trigger, ending, now)
    return _retryable(job, trigger, ending, decision.delay_ms, now)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a failure leaves on the job: the error, the history, events, the row of the attempt."""

    error: Mapping[str, Any]
    errors: str
    job_events: tuple[JobEvent, ...]
    attempt: AttemptEnd | None
    facts: Mapping[str, Any] = field(default_factory=dict)


def _failed(job: JobRow, failure: Failure, now: datetime) -> _Outcome:
    error = error_object(failure, attempt=job.attempt, now=now)
    outcome = _outcome(failure)
    failed = job_event(Kind.FAILED, job, error=_public(error), **attempt_facts(job, outcome, now))
    job_events = (*_timeout_facts(job, failure), failed)
    end = AttemptEnd(outcome, json.dumps(error))
    return _Outcome(error, _append(job.errors, error), job_events, end)


def _left(job: JobRow, ended: _Outcome) -> dict[str, Any]:
    """The changes that say what went wrong."""
    error = ended.error
    kept = {"error": json.dumps(error), "errors": ended.errors}
    return {**kept, "incident": incident_of(job.type, error)}


def _too_late(job: JobRow, failed: _Outcome, decision: RetryDecision, now: datetime) -> _Outcome:
    """The look-ahead of OJS timeouts 9.1: the failure stays the cause, the total timeout is why the
    job is given up.
    """
    total = total_deadline(job)
    assert total is not None and job.total_timeout_ms is not None
    failure = no_time_left(
        Fired(TimeoutKind.TOTAL, job.total_timeout_ms, elapsed(job.limits_from, now)),
        starts_in_ms=decision.delay_ms,
        takes_ms=decision.next_ms,
        left_ms=elapsed(now, total),
        cause=_public(failed.error),
    )
    error = error_object(failure, attempt=job.attempt, now=now)
    job_events = (*failed.job_events, *_timeout_facts(job, failure))
    return _Outcome(error, _append(failed.errors, error), job_events, failed.attempt)


def _retryable(
    job: JobRow, trigger: Trigger, ended: _Outcome, delay_ms: int, now: datetime
) -> Transition:
    when = after(now, delay_ms)
    changes = {
        **NO_LEASE,
        **_left(job, ended),
        "deadline_at": total_deadline(job),
        "scheduled_at": when,
        "retry_delay_ms": delay_ms,
    }
    retrying = job_event(
        Kind.RETRYING,
        job,
        max_attempts=job.max_attempts,
        next_retry_at=format_instant(when),
        retry_delay_ms=delay_ms,
        error=_public(ended.error),
    )
    job_events = (*ended.job_events, retrying)
    return Transition(trigger, job, State.RETRYABLE, changes, ended.attempt, job_events)


def _available_again(job: JobRow, trigger: Trigger, ended: _Outcome, now: datetime) -> Transition:
    changes = {
        **NO_LEASE,
        **_left(job, ended),
        "started_at": None,
        **available_from(job, now),
    }
    job_events = (*ended.job_events, job_event(Kind.ENQUEUED, job, priority=job.priority))
    return Transition(trigger, job, State.AVAILABLE, changes, ended.attempt, job_events)


def promote(job: JobRow, *, now: datetime) -> Transition:
    """Make a scheduled or retryable job available that is due."""
    job_events = (job_event(Kind.ENQUEUED, job, priority=job.priority),)
    changes = available_from(job, now)
    return Transition(Trigger.PROMOTE, job, State.AVAILABLE, changes, None, job_events)


def overdue(job: JobRow, *, now: datetime, jitter: float) -> Transition | None:
    """What the reaper does with ``job`` at ``now``; ``None`` when none of its timeouts has fired."""
    due = fired(job, now)
    if due is None:
        return None
    failure = timed_out(due)
    if due.clock is TimeoutKind.TOTAL:
        return _total_expired(job, failure, now)
    if due.clock is TimeoutKind.ENQUEUE_TTL:
        return _ttl_expired(job, failure, now)
    trigger = _REAPS[due.clock]
    return fail(job, failure, now=now, jitter=jitter, trigger=trigger)


_REAPS = {
    TimeoutKind.EXECUTION: Trigger.TIMEOUT,
    TimeoutKind.STALLED: Trigger.STALL,
    TimeoutKind.VISIBILITY: Trigger.LAPSE,
}


def requeue(job: JobRow, *, now: datetime) -> Transition:
    """The worker gives a started job back (NACK with ``requeue``); the attempt stays counted.

    Unless it was the last one: then the job may run once more. Where it was the only one, the job loses
    what it had to start by the first time: its attempts no longer say that it has started.
    """
    changes = {
        **NO_LEASE,
        "attempt": min(job.attempt, max(1, job.max_attempts) - 1),
        "started_at": None,
        **available_from(job, now),
    }
    if not changes["attempt"]:
        changes.update(enqueue_ttl_ms=None, expires_at=None)
    return Transition(
        Trigger.REQUEUE,
        job,
        State.AVAILABLE,
        changes,
        AttemptEnd("requeued", None),
        (job_event(Kind.ENQUEUED, job, priority=job.priority),),
    )


def release(job: JobRow, *, now: datetime) -> Transition:
    """The worker gives back a job that it never began: no attempt is consumed.

    The place in the queue is kept, since ``enqueued_at`` does not change, and the clocks of what it has
    to start by go on.
    """
    unstarted = job._replace(state=State.AVAILABLE, attempt=max(0, job.attempt - 1))
    changes = {
        **NO_LEASE,
        "attempt": unstarted.attempt,
        "started_at": None,
        "deadline_at": waiting_deadline(unstarted),
    }
    return Transition(
        Trigger.RELEASE,
        job,
        State.AVAILABLE,
        changes,
        AttemptEnd("released", None),
        (job_event(Kind.RELEASED, job),),
    )


def recover(job: JobRow, *, execution_until: datetime, now: datetime) -> Transition:
    """After an outage (decision T9) the execution deadline gets air, and with it a visibility lease
    that it cut short; the total timeout gets none.
    """
    deadline = max(job.deadline_at or execution_until, execution_until)
    total = total_deadline(job)
    if total is not None:
        deadline = min(deadline, total)
    changes = {"deadline_at": deadline, "lease_expires_at": lease_end(job, deadline)}
    return Transition(Trigger.RECOVER, job, State.ACTIVE, changes)


def _execution(job: JobRow, now: datetime) -> Fired:
    """A worker's own report that the execution timeout ran out (OJS timeouts 7.2)."""
    started = job.started_at or now
    return Fired(TimeoutKind.EXECUTION, job.timeout_ms + job.extended_ms, elapsed(started, now))


def _total_expired(job: JobRow, failure: Failure, now: datetime) -> Transition:
    error = error_object(failure, attempt=job.attempt, now=now)
    end, facts = None, {}
    if job.state == State.ACTIVE:
        end = AttemptEnd("total_timeout", json.dumps(error))
        facts = attempt_facts(job, "total_timeout", now)
    ending = _Outcome(error, _append(job.errors, error), _timeout_facts(job, failure), end, facts)
    dead = retry.from_stored(job.retry).on_exhaustion == "dead_letter"
    transition = _discarded(job, Trigger.TOTAL_TIMEOUT, ending, dead, now)
    # Its handler is still running: when its grace period ends depends on what it was granted.
    return replace(transition, changes={**transition.changes, "extended_ms": job.extended_ms})


def _ttl_expired(job: JobRow, failure: Failure, now: datetime) -> Transition:
    assert failure.fired is not None
    error = error_object(failure, attempt=job.attempt, now=now)
    expired = job_event(
        Kind.EXPIRED,
        job,
        created_at=format_instant(job.created_at),
        expired_at=format_instant(now),
        ttl_ms=failure.fired.limit_ms,
    )
    job_events = (*_timeout_facts(job, failure), expired)
    ending = _Outcome(error, _append(job.errors, error), job_events, None)
    return _discarded(job, Trigger.EXPIRE, ending, False, now)


def _discarded(job: JobRow, trigger: Trigger, ended: _Outcome, dead: bool, now: datetime) -> Transition:
    job_events = (
        *ended.job_events,
        job_event(
            Kind.DISCARDED,
            job,
            total_attempts=job.attempt,
            last_error=_public(ended.error),
            dead_letter=dead,
            **ended.facts,
        ),
    )
    if dead:
        job_events += (job_event(Kind.DEAD_LETTER_ADDED, job, error=_public(ended.error)),)
    changes = {
        **NO_LEASE,
        **_left(job, ended),
        "finished_at": now,
        "deadline_at": None,
        "dead_letter": dead,
    }
    return Transition(trigger, job, State.DISCARDED, changes, ended.attempt, job_events)


def _outcome(failure: Failure) -> str:
    """The attempt's outcome: the name of what the server or the worker itself caused."""
    if failure.fired is not None:
        return failure.type
    return failure.type if failure.type in ("shutdown", "worker_crash", "timeout") else "failed"


_TIMEOUT_KINDS = {
    TimeoutKind.EXECUTION: Kind.TIMEOUT,
    TimeoutKind.STALLED: Kind.STALLED,
    TimeoutKind.VISIBILITY: Kind.STALLED,
    TimeoutKind.TOTAL: Kind.TOTAL_TIMEOUT,
    TimeoutKind.ENQUEUE_TTL: Kind.TTL_EXPIRED,
}


def _timeout_facts(job: JobRow, failure: Failure) -> tuple[JobEvent, ...]:
    if failure.fired is None:
        return ()
    kind = _TIMEOUT_KINDS[failure.fired.clock]
    own = timeout_fields(failure.fired)
    if failure.lookahead:
        own["lookahead"] = True
    return (job_event(kind, job, **own),)


def _append(errors: str, error: Mapping[str, Any]) -> str:
    """The history with one more entry, without backtraces: those stay with the attempts."""
    kept = json.loads(errors)[-(KEPT_ERRORS - 1) :]
    kept.append({key: value for key, value in error.items() if key != "backtrace"})
    return json.dumps(kept)


def _public(error: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("type", "code", "message", "retryable", "timeout_kind")
    return {key: error[key] for key in keys if key in error}
