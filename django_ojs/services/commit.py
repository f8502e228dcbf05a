"""One transaction per decision: guarded write, attempt rows, event rows, transition hooks; then signals
and log lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from django_ojs import clock, conf, hooks
from django_ojs.domain.job import JobEvent, JobRow, Transition
from django_ojs.domain.states import State
from django_ojs.services import audit, job_log
from django_ojs.signals import EventRecord, by_kind, deliver
from django_ojs.store import inserting
from django_ojs.store.notifications import payloads
from django_ojs.store.transitions import apply, end_alike, end_all_alike


def commit(
    transitions: Sequence[Transition], *, seen: Sequence[str] = (), now: datetime, using: str
) -> None:
    """Write the transitions with their attempt rows and events, and run the hooks that want them.

    To be called inside the transaction that locked the jobs; without locks, ``seen`` names the columns
    that the decisions depend on beside state and lease, and :class:`LeaseLost` is raised when a job has
    changed. Signals are sent, and workers woken, when the outermost transaction commits.
    """
    if not transitions:
        return
    apply(transitions, seen=seen, using=using)
    inserting.attempts(
        [
            _ended(transition.job, transition.attempt.outcome, transition.attempt.error, now)
            for transition in transitions
            if transition.attempt is not None
        ],
        using=using,
    )
    _publish(
        [
            (job_event, transition.target)
            for transition in transitions
            for job_event in transition.job_events
        ],
        now=now,
        using=using,
    )
    job_log.after_commit(transitions, now=now, using=using)
    wake(
        {
            (transition.changes.get("queue", transition.job.queue), transition.job.type)
            for transition in transitions
            if transition.target is State.AVAILABLE
        },
        {
            transition.job.worker_id
            for transition in transitions
            if transition.target is State.CANCELLED
            and transition.source is State.ACTIVE
            and transition.job.worker_id
        },
        using=using,
    )
    hooks.run_transition_hooks(transitions, now=now, using=using)


def commit_alike(
    decision: Transition,
    jobs: Sequence[JobRow],
    results: Sequence[str | None],
    *,
    pass_over: bool = False,
    now: datetime,
    using: str,
) -> list[JobRow]:
    """Commit that the attempts of these jobs have succeeded, by one statement: see :func:`end_alike`.

    For jobs without hooks, while no event of it :func:`is_published`, outside of a transaction. Returns
    the jobs that were as their records say.
    """
    ended = end_alike(decision, jobs, results, pass_over=pass_over, now=now, using=using)
    job_log.completed(ended, now=now, using=using)
    return ended


def commit_all_alike(
    decision: Transition,
    jobs: Sequence[JobRow],
    results: Sequence[str | None],
    *,
    now: datetime,
    using: str,
) -> None:
    """The same within a transaction, for all of them: raises :class:`LeaseLost` if one has changed."""
    assert decision.attempt is not None
    end_all_alike(decision, jobs, results, using=using)
    outcome = decision.attempt.outcome
    inserting.attempts([_ended(job, outcome, None, now) for job in jobs], using=using)
    job_log.completed(jobs, now=now, using=using)


def _ended(job: JobRow, outcome: str, error: str | None, now: datetime) -> tuple[object, ...]:
    """The row of an attempt that ends now."""
    return (
        *(job.id, job.lease_id, job.lease_seq, job.attempt, job.worker_id, job.lease_principal),
        *(outcome, job.started_at, now, job.deadline_at, error, None),
    )


def is_published(kind: str) -> bool:
    """Whether events of this kind are stored, or a signal sends them to a receiver."""
    return by_kind[kind].heard() or kind in conf.current().stored_events


def publish(job_events: Iterable[JobEvent], *, now: datetime, using: str) -> None:
    """Store the events of configured kinds, and send signals that have receivers.

    ``state`` of an event about a job is the state of its record.
    """
    with_states = [
        (job_event, State(job_event.job.state) if job_event.job else None) for job_event in job_events
    ]
    _publish(with_states, now=now, using=using)


def _publish(
    with_states: Sequence[tuple[JobEvent, State | None]], *, now: datetime, using: str
) -> None:
    audit.record((job_event for job_event, _ in with_states), now=now, using=using)
    stored = conf.current().stored_events
    kinds = set(filter(is_published, {job_event.kind for job_event, _ in with_states}))
    published = [
        EventRecord(clock.new_id(), job_event.kind, now, _data(job_event, state))
        for job_event, state in with_states
        if job_event.kind in kinds
    ]
    if not published:
        return
    inserting.events([event for event in published if event.kind in stored], using=using)
    for event in published:
        if by_kind[event.kind].receivers:
            transaction.on_commit(_sender(event), using=using, robust=True)


def _data(job_event: JobEvent, state: State | None) -> Mapping[str, Any]:
    data = {key: value for key, value in job_event.data.items() if key != "address"}
    return data if state is None else {**data, "state": state.value}


def wake(places: Iterable[tuple[str, str]], workers: Iterable[str] = (), *, using: str) -> None:
    """Notify listening workers on commit: these (queue, type) pairs have jobs (an empty type means
    any), these workers lost leases.
    """
    if conf.current().notify:
        lost = [f"w:{worker}" for worker in sorted(workers)]
        inserting.notify(payloads(places) + lost, using=using)


def _sender(event: EventRecord) -> Callable[[], None]:
    """A function, not a partial: when it fails Django names it, and fails itself where it cannot."""

    def send() -> None:
        deliver(event)

    return send
