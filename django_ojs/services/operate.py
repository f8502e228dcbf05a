"""What clients and operators do to jobs: cancel, activate, retry, reschedule, extend, discard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs import clock, conf, hooks
from django_ojs.domain import operations
from django_ojs.domain.admission import VERBATIM, admit
from django_ojs.domain.envelope import Envelope, from_call
from django_ojs.domain.errors import Conflict, InvalidRequest, no_job
from django_ojs.domain.job import Actor, JobRow, Transition
from django_ojs.domain.leases import Lease
from django_ojs.domain.reserved import RETRIED_FROM
from django_ojs.domain.states import TERMINAL
from django_ojs.domain.timeouts import soft_deadline
from django_ojs.domain.unique import parse_unique
from django_ojs.services import audit, databases, rollup
from django_ojs.services.commit import commit, publish
from django_ojs.services.enqueue import enqueue
from django_ojs.services.job_defaults import resolve_defaults
from django_ojs.services.verbs import (
    API,
    Decide,
    Reviving,
    cancelling,
    discarding,
    editing,
    extending,
    rescheduling,
    retrying,
)
from django_ojs.store import deleting, locking, selectors, unique_keys
from django_ojs.store.contention import in_transaction


class Changed(NamedTuple):
    """A job before and after a decision; the same twice where it was left as it is."""

    before: JobRow
    after: JobRow


class Extension(NamedTuple):
    """More time for a running attempt, as it was granted.

    ``extended_by_ms`` is what was added this time; at ``soft_deadline_at`` the handler is asked to
    stop, at ``deadline_at`` the attempt ends. Neither is later than the total timeout.
    """

    job: JobRow
    extended_by_ms: int
    soft_deadline_at: datetime
    deadline_at: datetime


class Purged(NamedTuple):
    """Which jobs were deleted, and which were left as they are; those in neither were gone."""

    done: list[JobRow]
    left: list[JobRow]


def decide_each(ids: Collection[UUID], decide: Decide, *, using: str = "") -> list[JobRow]:
    """Lock the jobs, decide about each under the lock, commit all or none.

    Returns the records as they are now, in the order of ``ids``; a decision of ``None`` leaves a
    job as it is. Raises :class:`NotFound` for an unknown id, and what ``decide`` raises.
    """
    return [change.after for change in change_each(ids, decide, using=using)]


@in_transaction
def change_each(
    ids: Collection[UUID],
    decide: Decide,
    *,
    skip_gone: bool = False,
    reviving: Reviving | None = None,
    using: str = "",
) -> list[Changed]:
    """As :func:`decide_each`, with the records from before.

    With ``skip_gone``, unknown ids are left out of the answer. ``reviving`` is the decision that
    ``decide`` asks, if that gives jobs a new life: it locks the keys of unique jobs first.
    """
    if reviving is not None:
        reviving.begin(ids, using=using)
    before = locking.jobs(ids, using=using)
    asked = [job_id for job_id in ids if job_id in before or not skip_gone]
    locked = dict(before)
    now = clock.now(using)
    transitions = []
    for job_id in dict.fromkeys(asked):
        if job_id not in locked:
            raise no_job(job_id)
        transition = decide(locked[job_id], now)
        if transition is not None:
            if transition.written.queue != locked[job_id].queue:
                databases.refuse_elsewhere(transition.written.queue, using, "the job")
            transitions.append(transition)
            locked[job_id] = transition.written
    commit(transitions, now=now, using=using)
    if reviving is not None:
        reviving.finish()
    return [Changed(before[job_id], locked[job_id]) for job_id in asked]


def cancel(
    ids: Collection[UUID], *, actor: Actor = API, strict: bool = False, using: str = ""
) -> list[JobRow]:
    """Cancel waiting and running jobs at once (decision L3).

    A terminal job is left as it is, or with ``strict`` raises :class:`InvalidTransition`.
    """
    return decide_each(ids, cancelling(actor=actor, strict=strict), using=using)


@in_transaction
def activate(ids: Collection[UUID], *, actor: Actor = API, using: str = "") -> list[JobRow]:
    """Release ``pending`` jobs to the workers (OJS core ACTIVATE)."""

    def decide(job: JobRow, now: datetime) -> Transition:
        return operations.activate(job, now=now)

    after = decide_each(ids, decide, using=using)
    for job in after:
        audit.note("job.activated", actor, target=("job", str(job.id)), using=using)
    return after


def retry_dead(
    ids: Collection[UUID],
    *,
    actor: Actor = API,
    expires_at: datetime | bool | None = False,
    place: Mapping[str, Any] | None = None,
    allow_duplicate: bool = False,
    using: str = "",
) -> list[JobRow]:
    """Make ``discarded`` jobs available again under the same id (decision R5).

    ``expires_at`` replaces their absolute expiry, ``None`` clears it, ``False`` keeps it. ``place``
    may have another ``queue`` and ``priority``. Raises :class:`Conflict` when a kept expiry has
    passed, :class:`InvalidTransition` in other states and, unless ``allow_duplicate``,
    :class:`Duplicate` for a unique job while an equal one waits or runs.
    """
    decide = retrying(actor=actor, expires_at=expires_at, place=place, allow_duplicate=allow_duplicate)
    return [change.after for change in change_each(ids, decide, reviving=decide, using=using)]


def reschedule(
    ids: Collection[UUID], when: datetime, *, actor: Actor = API, using: str = ""
) -> list[JobRow]:
    """Move the start of ``scheduled`` and ``retryable`` jobs; a past time means now."""
    return decide_each(ids, rescheduling(actor=actor, when=when), using=using)


def discard(ids: Collection[UUID], *, actor: Actor = API, using: str = "") -> list[JobRow]:
    """Give up waiting jobs; they do not enter the dead letter."""
    return decide_each(ids, discarding(actor=actor), using=using)


def extend_timeout(
    ids: Collection[UUID],
    by_ms: int,
    *,
    lease: Lease | None = None,
    actor: Actor = API,
    using: str = "",
) -> list[Extension]:
    """Give running attempts up to ``by_ms`` milliseconds more (decision T2); says what was granted.

    Additive, repeatable, granted as far as the total timeout leaves room; recorded as
    ``job.timeout_extended``. Raises :class:`Conflict` when nothing can be granted or the time of the
    attempt is up and, with ``lease``, :class:`LeaseLost` when it does not hold.
    """
    decide = extending(by_ms, lease=lease, actor=actor, using=using)
    return [extension(change) for change in change_each(ids, decide, using=using)]


def extension(change: Changed) -> Extension:
    """What an extension that was made has granted."""
    soft, hard = soft_deadline(change.after), change.after.deadline_at
    assert soft is not None and hard is not None
    return Extension(change.after, change.after.extended_ms - change.before.extended_ms, soft, hard)


def edit(
    ids: Collection[UUID], options: Mapping[str, Any], *, actor: Actor = API, using: str = ""
) -> list[JobRow]:
    """Change these options of waiting jobs, all or none (OJS timeouts 10.3); ``None`` clears one.

    Deadlines follow; recorded as ``job.edited``. Raises :class:`InvalidRequest` naming the option (see
    :func:`changes_of`), :class:`InvalidTransition` for running and finished jobs, :class:`NotFound`;
    ``TypeError`` for an unknown option and for none.
    """
    return decide_each(ids, editing(actor=actor, **options), using=using)


def purge(ids: Collection[UUID], *, actor: Actor = API, using: str = "") -> list[JobRow]:
    """Delete finished jobs with their attempts before their time; their events stay.

    Returns what was deleted. Raises :class:`NotFound`, and :class:`Conflict` for a job that waits
    or runs; nothing is deleted then.
    """
    return _purge(ids, True, actor, using=using).done


def purge_finished(ids: Collection[UUID], *, actor: Actor = API, using: str = "") -> Purged:
    """As :func:`purge`, leaving unfinished and unknown jobs alone."""
    return _purge(ids, False, actor, using=using)


@in_transaction
def _purge(ids: Collection[UUID], strict: bool, actor: Actor, *, using: str = "") -> Purged:
    locked = locking.jobs(ids, using=using)
    found = Purged([], [])
    for job_id in dict.fromkeys(ids):
        if job_id not in locked:
            if strict:
                raise no_job(job_id)
        elif (job := locked[job_id]).state in TERMINAL:
            found.done.append(job)
        elif strict:
            raise Conflict(
                f"a job that is {job.state} cannot be deleted: cancel it first",
                job_id=str(job_id),
                current_state=job.state,
            )
        else:
            found.left.append(job)
    now = clock.now(using)
    rollup.count_deleted(found.done, using=using)
    deleting.jobs([job.id for job in found.done], using=using)
    job_events = [operations.purged(job, actor=actor) for job in found.done]
    publish(job_events, now=now, using=using)
    hooks.run_purge_hooks(found.done, now=now, using=using)
    return found


def requeue(
    job_id: UUID,
    args: Sequence[Any],
    *,
    queue: str,
    meta: Mapping[str, Any],
    new_id: UUID | None = None,
    check: Callable[[JobRow], None] = lambda job: None,
    actor: Actor = API,
    using: str | None = None,
) -> JobRow:
    """A new job like a finished one, with these arguments; the old one stays as it is.

    If a job with the ``new_id`` exists, it is returned and none is made: the request was repeated.

    Type, tags, priority, retry policy, limits and unknown fields are copied from the old job, whose id
    is in the new job's meta. ``check`` may refuse the old one under its lock by raising. Raises
    :class:`NotFound`, :class:`Conflict` when the old one is not finished, :class:`InvalidRequest`, and
    :class:`Duplicate` for a unique job while an equal one waits or runs.
    """
    using = using or conf.current().database
    changes = {"args": args, "queue": queue, "meta": {**meta, RETRIED_FROM: str(job_id)}}
    # Before the transaction: what it reads first may be all that it sees.
    keys = _keys_of_copy(job_id, changes, using)
    return _requeue(job_id, changes, keys, new_id, check, actor, using=using)


def _keys_of_copy(job_id: UUID, changes: Mapping[str, Any], using: str) -> dict[str, str]:
    """The unique key that a job like this one will have, with its job type; none of what is refused."""
    old = selectors.jobs([job_id], using=using).get(job_id)
    if old is None:
        return {}
    now = clock.now(using)
    with suppress(InvalidRequest):
        envelope = clone_with_changes(old, changes, now)
        new = admit(envelope, resolve_defaults(envelope), job_id=job_id, now=now)
        return {} if new.unique_key is None else {new.unique_key: new.type}
    return {}


@in_transaction
def _requeue(
    job_id: UUID,
    changes: Mapping[str, Any],
    keys: Mapping[str, str],
    new_id: UUID | None,
    check: Callable[[JobRow], None],
    actor: Actor,
    *,
    using: str = "",
) -> JobRow:
    if keys:
        # Before the job: one that is to replace it holds its key, and waits for the job.
        unique_keys.lock(keys, clock.now(using), using=using)
    old = locking.job(job_id, using=using)
    # Read under the lock of the old job, so that a repeated request waits for the first.
    if new_id is not None and (made := selectors.jobs([new_id], using=using)):
        return made[new_id]
    check(old)
    if old.state not in TERMINAL:
        raise Conflict(
            f"a job that is {old.state} cannot be requeued",
            job_id=str(job_id),
            current_state=old.state,
        )
    now = clock.now(using)
    envelope = clone_with_changes(old, changes, now)
    if new_id is not None:
        envelope = envelope._replace(id=new_id)
    if changes["queue"] != old.queue:
        databases.refuse_elsewhere(changes["queue"], using, "the job")
    new = enqueue([envelope], now=now, using=using)[0]
    target = ("job", str(old.id))
    audit.note("job.requeued", actor, target=target, using=using, new_job_id=str(new.id))
    return new


def clone_with_changes(old: JobRow, changes: Mapping[str, Any], now: datetime) -> Envelope:
    options: dict[str, Any] = {
        "priority": old.priority,
        "tags": old.json("tags"),
        "retry": old.json("retry"),
        "grace_period": f"{old.grace_period_ms}ms",
    }
    if old.timeout_explicit:
        options["timeout_ms"] = old.timeout_ms
    if old.heartbeat_explicit:
        options["heartbeat_timeout_ms"] = old.heartbeat_timeout_ms
    for name in ("total_timeout_ms", "enqueue_ttl_ms", "attempt_ttl_ms", "visibility_timeout_ms"):
        options[name] = getattr(old, name)
    envelope = from_call(old.type, now=now, **options, **changes)
    extra = {key: value for key, value in old.json("extra").items() if key != VERBATIM}
    if extra.get("unique") is not None:
        # What a person asks for is neither left undone nor the end of another job.
        policy = parse_unique(extra["unique"]).for_requeue()
        extra["unique"] = policy.to_wire()
    return envelope._replace(extra=extra or None)
