"""One transaction per decision: guarded write, attempt rows, event rows; then signals and log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from django_ojs import clock, conf
from django_ojs.domain.job import Fact, Transition
from django_ojs.domain.states import State
from django_ojs.services import audit, job_log
from django_ojs.signals import Event, by_kind, deliver
from django_ojs.store import inserting, transitions
from django_ojs.store.wakeup import payloads


def commit(moves: Sequence[Transition], *, seen: Sequence[str] = (), now: datetime, using: str) -> None:
    """Write decisions and all that must be true with them.

    To be called inside the transaction that locked the jobs; where they were not locked, ``seen``
    names the columns that the decisions rest on beside state and lease, and :class:`LeaseLost` says
    that a job has changed. Signals are sent, and workers woken, when the outermost transaction
    commits.
    """
    if not moves:
        return
    transitions.apply(moves, seen=seen, using=using)
    inserting.attempts(
        [
            (
                move.job.id,
                move.job.lease_id,
                move.job.lease_seq,
                move.job.attempt,
                move.job.worker_id,
                move.job.lease_principal,
                move.attempt.outcome,
                move.job.started_at,
                now,
                move.job.deadline_at,
                move.attempt.error,
                None,
            )
            for move in moves
            if move.attempt is not None
        ],
        using=using,
    )
    _publish([(fact, move.target) for move in moves for fact in move.facts], now=now, using=using)
    job_log.after_commit(moves, now=now, using=using)
    wake(
        {
            (move.changes.get("queue", move.job.queue), move.job.type)
            for move in moves
            if move.target is State.AVAILABLE
        },
        {
            move.job.worker_id
            for move in moves
            if move.target is State.CANCELLED and move.source is State.ACTIVE and move.job.worker_id
        },
        using=using,
    )


def publish(facts: Iterable[Fact], *, now: datetime, using: str) -> None:
    """Store the kinds of events that are kept, and send the signals that anyone listens to.

    An event about a job says in ``state`` what state it led to: here that of its record.
    """
    told = [(fact, State(fact.job.state) if fact.job else None) for fact in facts]
    _publish(told, now=now, using=using)


def _publish(told: Sequence[tuple[Fact, State | None]], *, now: datetime, using: str) -> None:
    audit.record((fact for fact, _ in told), now=now, using=using)
    stored = conf.current().stored_events
    wanted = {
        kind for kind in {fact.kind for fact, _ in told} if kind in stored or by_kind[kind].receivers
    }
    heard = [
        Event(clock.new_id(), fact.kind, now, _data(fact, state))
        for fact, state in told
        if fact.kind in wanted
    ]
    if not heard:
        return
    inserting.events([event for event in heard if event.kind in stored], using=using)
    for event in heard:
        if by_kind[event.kind].receivers:
            transaction.on_commit(_sender(event), using=using, robust=True)


def _data(fact: Fact, state: State | None) -> Mapping[str, Any]:
    data = {key: value for key, value in fact.data.items() if key != "address"}
    return data if state is None else {**data, "state": state.value}


def wake(places: Iterable[tuple[str, str]], workers: Iterable[str] = (), *, using: str) -> None:
    """Tell listening workers, with the commit: these queues have jobs of these types (empty for any),
    these workers lost some.
    """
    if conf.current().notify:
        lost = [f"w:{worker}" for worker in sorted(workers)]
        inserting.notify(payloads(places) + lost, using=using)


def _sender(event: Event) -> Callable[[], None]:
    """A function, not a partial: when it fails Django names it, and fails itself where it cannot."""

    def send() -> None:
        deliver(event)

    return send
