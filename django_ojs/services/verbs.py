"""The operations on jobs that people and clients choose by name, and what each decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import operations
from django_ojs.domain.errors import Conflict, LeaseLost
from django_ojs.domain.job import Actor, JobRow, Transition
from django_ojs.domain.jsonvalue import check_text
from django_ojs.domain.leases import Lease
from django_ojs.domain.options import check_names
from django_ojs.domain.states import TERMINAL, State, Trigger, sources_of
from django_ojs.services.editing import EDITABLE, changes_of
from django_ojs.services.judging import Judge
from django_ojs.services.unique import Revival

Decide = Callable[[JobRow, datetime], Transition | None]
API = Actor("api")


def caller(by: str, reason: str = "", field: str = "by") -> Actor:
    """Who calls the Python API, and why. Raises :class:`InvalidRequest` for what is not text."""
    return Actor("api", check_text(by or "", field), check_text(reason or "", "reason"))


class Reviving:
    """A decision that gives ended jobs a new life: unique ones hold their keys again.

    Raises :class:`Duplicate` where an equal job waits or runs, unless ``allow_duplicate``.
    """

    def __init__(
        self, decide: Callable[[JobRow, datetime], Transition], *, allow_duplicate: bool
    ) -> None:
        self._decide = decide
        self._allow_duplicate = allow_duplicate
        self._revival: Revival | None = None

    def begin(self, ids: Collection[UUID], *, using: str) -> None:
        """Lock the keys of the unique jobs among them, before any job."""
        self._revival = Revival(ids, using=using)

    def __call__(self, job: JobRow, now: datetime) -> Transition:
        """Decide about a job under its lock; :meth:`begin` must have been called."""
        assert self._revival is not None
        transition = self._decide(job, now)
        if not self._allow_duplicate:
            self._revival.check(job)
        self._revival.revived([transition.written])
        return transition

    def finish(self) -> None:
        """Store who holds the keys."""
        assert self._revival is not None
        self._revival.write()


def cancelling(*, actor: Actor = API, strict: bool = False) -> Decide:
    """The decision of :func:`cancel`."""

    def decide(job: JobRow, now: datetime) -> Transition | None:
        if job.state in TERMINAL and not strict:
            return None
        return operations.cancel(job, actor=actor, now=now)

    return decide


def extending(by_ms: int, *, lease: Lease | None = None, actor: Actor = API, using: str = "") -> Decide:
    """The decision of :func:`extend_timeout`, from this moment on."""
    using = using or conf.current().database
    tried_at, judge = clock.now(using), Judge(using)

    def decide(job: JobRow, now: datetime) -> Transition:
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
    allow_duplicate: bool = False,
) -> Reviving:
    """Make a discarded job available again; the parameters are those of :func:`operate.retry_dead`."""

    def decide(job: JobRow, now: datetime) -> Transition:
        return operations.retry_dead(job, actor=actor, expires_at=expires_at, now=now, place=place)

    return Reviving(decide, allow_duplicate=allow_duplicate)


def rescheduling(*, actor: Actor, when: datetime | None = None) -> Decide:
    """Start a scheduled or retryable job at another time, without ``when`` now."""
    return lambda job, now: operations.reschedule(job, when=when or now, actor=actor, now=now)


def discarding(*, actor: Actor) -> Decide:
    """Give up a waiting job, without a place in the dead letter."""
    return lambda job, now: operations.discard(job, actor=actor, now=now)


def editing(*, actor: Actor, **options: Any) -> Decide:
    """Change options of a waiting job; see :func:`changes_of`. Raises ``TypeError`` for an unknown one
    and for none.
    """
    check_names("edit()", options, EDITABLE)
    if not options:
        raise TypeError(f"edit() needs something to change: the options are {', '.join(EDITABLE)}")
    return lambda job, now: operations.edit(job, changes_of(job, options, now), actor=actor)


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
