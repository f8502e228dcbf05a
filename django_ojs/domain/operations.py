"""Decisions that a client or an operator asks for, as against a worker or a clock.

Same form as :mod:`django_ojs.domain.lifecycle`: a record and an explicit ``now`` in, a
:class:`~django_ojs.domain.job.Transition` out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import Conflict, InvalidRequest
from django_ojs.domain.events import Kind, job_event
from django_ojs.domain.job import (
    NO_LEASE,
    Actor,
    AttemptEnd,
    JobEvent,
    JobRow,
    Transition,
    who,
)
from django_ojs.domain.states import WAITING, State, Trigger, sources_of
from django_ojs.domain.timeouts import (
    active_deadline,
    available_from,
    elapsed,
    lease_end,
    soft_deadline,
    waiting_deadline,
)


def cancel(job: JobRow, *, actor: Actor, now: datetime, **told: str) -> Transition:
    """End a waiting or running job at once (decision L3); its worker learns from the next beat.

    ``told`` are more fields of the event.
    """
    end = AttemptEnd("cancelled", None) if job.state == State.ACTIVE else None
    fields = {"cancelled_by": who(actor), **actor.event_fields(), **told}
    return Transition(
        Trigger.CANCEL,
        job,
        State.CANCELLED,
        {**NO_LEASE, "deadline_at": None, "finished_at": now},
        end,
        (job_event(Kind.CANCELLED, job, previous_state=job.state, **fields),),
    )


def discard(job: JobRow, *, actor: Actor, now: datetime) -> Transition:
    """An operator gives up a waiting job; it does not enter the dead letter."""
    job_events = (job_event(Kind.DISCARDED, job, total_attempts=job.attempt, **actor.event_fields()),)
    changes = {"deadline_at": None, "finished_at": now}
    return Transition(Trigger.DISCARD, job, State.DISCARDED, changes, None, job_events)


def activate(job: JobRow, *, now: datetime) -> Transition:
    """Let a ``pending`` job wait for a worker, or for its time (OJS core ACTIVATE)."""
    if job.scheduled_at is not None and job.scheduled_at > now:
        job_events = (job_event(Kind.SCHEDULED, job, scheduled_at=format_instant(job.scheduled_at)),)
        # As for a job that is scheduled from the start: one without it was never activated.
        entered = {"enqueued_at": job.created_at}
        return Transition(Trigger.ACTIVATE, job, State.SCHEDULED, entered, None, job_events)
    job_events = (job_event(Kind.ENQUEUED, job, priority=job.priority),)
    changes = available_from(job, now)
    return Transition(Trigger.ACTIVATE, job, State.AVAILABLE, changes, None, job_events)


def retry_dead(
    job: JobRow,
    *,
    actor: Actor,
    expires_at: datetime | bool | None,
    now: datetime,
    place: Mapping[str, Any] | None = None,
    trigger: Trigger = Trigger.RETRY,
) -> Transition:
    """An operator retries a ``discarded`` job (decision R5): a new life under the same id. As part of
    a workflow that is resumed (``trigger``) a ``cancelled`` one too.

    ``expires_at`` replaces the absolute expiry, ``None`` clears it, ``False`` keeps it; raises
    :class:`Conflict` when what is kept has passed. ``place`` may have another ``queue`` and
    ``priority``.
    """
    expiry = job.expires_at if isinstance(expires_at, bool) else expires_at
    if State(job.state) in sources_of(trigger) and expiry is not None and expiry <= now:
        raise Conflict(
            "expires_at has passed: give a new one, or clear it",
            field="expires_at",
            job_id=str(job.id),
            current_state=job.state,
        )
    reborn = job._replace(attempt=0, limits_from=now, expires_at=expiry, **(place or {}))
    changes: dict[str, Any] = {
        **(place or {}),
        "attempt": 0,
        "limits_from": now,
        "expires_at": expiry,
        **available_from(reborn, now),
        "scheduled_at": None,
        "started_at": None,
        "finished_at": None,
        "error": None,
        "retry_delay_ms": None,
        "dead_letter": False,
    }
    job_events: tuple[JobEvent, ...] = (job_event(Kind.RETRIED, reborn, **actor.event_fields()),)
    if job.dead_letter:
        job_events += (job_event(Kind.DEAD_LETTER_RETRIED, reborn, **actor.event_fields()),)
    job_events += (job_event(Kind.ENQUEUED, reborn, priority=reborn.priority),)
    return Transition(trigger, job, State.AVAILABLE, changes, None, job_events)


def reschedule(job: JobRow, *, when: datetime, actor: Actor, now: datetime) -> Transition:
    """Move the start of a ``scheduled`` or ``retryable`` job; a time not after ``now`` means now."""
    moved = job_event(Kind.RESCHEDULED, job, scheduled_at=format_instant(when), **actor.event_fields())
    if when > now:
        target = State(job.state)
        return Transition(Trigger.RESCHEDULE, job, target, {"scheduled_at": when}, None, (moved,))
    job_events = (moved, job_event(Kind.ENQUEUED, job, priority=job.priority))
    changes = {"scheduled_at": now, **available_from(job, now)}
    return Transition(Trigger.RESCHEDULE, job, State.AVAILABLE, changes, None, job_events)


def extend(job: JobRow, *, by_ms: int, actor: Actor, now: datetime) -> Transition:
    """Extend the running attempt by up to ``by_ms`` milliseconds (decision T2).

    What the total timeout leaves is granted, measured on the soft deadline; both deadlines stay
    within it, and a visibility lease that the old one cut short gets what the new one leaves it.
    Raises :class:`Conflict` when nothing can be granted.
    """
    granted_ms, deadline = by_ms, now
    if job.state == State.ACTIVE:
        granted_ms = _room(job, by_ms)
        if granted_ms == 0:
            raise Conflict(
                "the total timeout leaves no room to extend",
                job_id=str(job.id),
                current_state=job.state,
            )
        longer = job._replace(extended_ms=job.extended_ms + granted_ms)
        # After an outage the deadline may be later than what the limits add up to.
        deadline = max(active_deadline(longer), job.deadline_at or now)
    return Transition(
        Trigger.EXTEND,
        job,
        State.ACTIVE,
        {
            "extended_ms": job.extended_ms + granted_ms,
            "deadline_at": deadline,
            "lease_expires_at": lease_end(job, deadline),
        },
        None,
        (
            job_event(
                Kind.TIMEOUT_EXTENDED,
                job,
                extended_by_ms=granted_ms,
                deadline_at=format_instant(deadline),
                **actor.event_fields(),
            ),
        ),
    )


def _room(job: JobRow, by_ms: int) -> int:
    """How much of ``by_ms`` the soft deadline can move."""
    now, then = soft_deadline(job), soft_deadline(job._replace(extended_ms=job.extended_ms + by_ms))
    assert now is not None and then is not None
    return elapsed(now, then)


def edit(job: JobRow, changes: dict[str, Any], *, actor: Actor) -> Transition:
    """Change priority, queue or limits of a waiting job; its deadline follows.

    Raises :class:`InvalidRequest` when the total timeout would be below an explicit timeout.
    """
    edited = job._replace(**changes)
    total = edited.total_timeout_ms
    if edited.timeout_explicit and total is not None and total < edited.timeout_ms:
        raise InvalidRequest("total_timeout", "must not be below timeout")
    deadline = waiting_deadline(edited) if job.state in WAITING else None
    job_events = (job_event(Kind.EDITED, job, changed=sorted(changes), **actor.event_fields()),)
    return Transition(
        Trigger.EDIT, job, State(job.state), {**changes, "deadline_at": deadline}, None, job_events
    )


def purged(job: JobRow, *, actor: Actor) -> JobEvent:
    """That an operator deleted a finished job."""
    return job_event(Kind.PURGED, job, previous_state=job.state, **actor.event_fields())
