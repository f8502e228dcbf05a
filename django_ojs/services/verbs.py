"""The operations on jobs that people and clients choose by name, and what each decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django_ojs import clock, conf
from django_ojs.domain import operations
from django_ojs.domain.errors import Conflict, LeaseLost
from django_ojs.domain.job import Actor, JobRecord, Transition
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import TERMINAL, State, Trigger, sources_of
from django_ojs.services.judging import Judge

Decide = Callable[[JobRecord, datetime], Transition | None]
API = Actor("api")


def cancelling(*, actor: Actor = API, strict: bool = False) -> Decide:
    """The decision of :func:`cancel`."""

    def decide(job: JobRecord, now: datetime) -> Transition | None:
        if job.state in TERMINAL and not strict:
            return None
        return operations.cancel(job, actor=actor, now=now)

    return decide


def extending(
    by_ms: int,
    *,
    lease: Lease | None = None,
    actor: Actor = API,
    now: datetime | None = None,
    using: str = "",
) -> Decide:
    """The decision of :func:`extend_timeout`, from this moment on."""
    using = using or conf.current().database
    tried_at = now or clock.now(using)
    judge = Judge(now, using)

    def decide(job: JobRecord, now: datetime) -> Transition:
        known = {"job_id": str(job.id), "current_state": job.state}
        if lease is not None and job.lease_id != lease.lease_id:
            raise LeaseLost("the lease was lost", **known)
        if judge.is_late(job, tried_at):
            raise Conflict("the time of the attempt is up", **known)
        return operations.extend(job, by_ms=by_ms, actor=actor, now=now)

    return decide


def retrying(
    *,
    actor: Actor,
    expires_at: datetime | bool | None = False,
    place: Mapping[str, Any] | None = None,
) -> Decide:
    """Give a discarded job a new life; the parameters are those of :func:`operate.retry_dead`."""
    return lambda job, now: operations.retry_dead(
        job, actor=actor, expires_at=expires_at, now=now, place=place
    )


def rescheduling(*, actor: Actor, when: datetime | None = None) -> Decide:
    """Start a scheduled or retryable job at another time, without ``when`` now."""
    return lambda job, now: operations.reschedule(job, when=when or now, actor=actor, now=now)


def discarding(*, actor: Actor) -> Decide:
    """Give up a waiting job, without a place in the dead letter."""
    return lambda job, now: operations.discard(job, actor=actor, now=now)


def editing(*, actor: Actor, **changes: Any) -> Decide:
    """Change the columns ``changes`` of a waiting job."""
    return lambda job, now: operations.edit(job, changes, actor=actor)


class Verb(NamedTuple):
    """An operation on jobs: the trigger that it pulls, and what makes its decision.

    ``decide(actor=..., **parameters)`` returns the decision about one job; ``None`` for operations
    that are more than a decision.
    """

    trigger: Trigger
    decide: Callable[..., Decide] | None = None

    @property
    def states(self) -> frozenset[State]:
        """The states that a job must be in."""
        return frozenset(state for state in sources_of(self.trigger) if state is not None)


VERBS: Mapping[str, Verb] = {
    "retry": Verb(Trigger.RETRY, retrying),
    "run_now": Verb(Trigger.RESCHEDULE, rescheduling),
    "reschedule": Verb(Trigger.RESCHEDULE, rescheduling),
    "cancel": Verb(Trigger.CANCEL, cancelling),
    "extend": Verb(Trigger.EXTEND, extending),
    "edit": Verb(Trigger.EDIT, editing),
    "discard": Verb(Trigger.DISCARD, discarding),
    "requeue": Verb(Trigger.PURGE),
    "purge": Verb(Trigger.PURGE),
}
"""The operations that people choose by name. ``requeue`` has the states of ``purge``: finished jobs."""
