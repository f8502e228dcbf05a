"""Attempts that start, many at once: one decision for all that are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import DatabaseError, NotSupportedError, connections

from django_ojs import clock
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobRow, Transition, changed_alike, held_by
from django_ojs.domain.states import Trigger
from django_ojs.services import job_log
from django_ojs.services.commit import commit, is_published
from django_ojs.store.contention import is_contention
from django_ojs.store.dialect import dialect
from django_ojs.store.picking import Picked
from django_ojs.store.transitions import Started, start_alike, start_picked

_RESTS_ON = attrgetter(
    *("attempt", "lease_seq", "lease_id", "timeout_ms", "grace_period_ms", "total_timeout_ms"),
    *("visibility_timeout_ms", "heartbeat_explicit", "progress", "hooks"),
)
"""What the decision to start an attempt depends on, but for times of the job's own."""


class Holder(NamedTuple):
    """Whose leases they will be; ``beats`` if it sends heartbeats for all of its jobs."""

    worker_id: str | None
    beats: bool
    principal: str | None


def start_at_once(
    pick: Callable[..., Picked], order: Callable[[JobRow], Any], holder: Holder, *, using: str
) -> Started | None:
    """Start attempts of jobs that are picked (:mod:`picking`) by one statement, where it can: the
    records in this order.

    ``None`` if it was not tried, or met a lock: then claim as ever. Jobs that it has locked and not
    started are to be claimed as ever too. Only where the database can, nobody hears of starts, and no
    transaction is open. A worker that waited starts what was announced in less than half of the time.
    """
    sql, steps = dialect(using), clock.steps(using)
    if not sql.updates_what_it_locks or steps is None or connections[using].in_atomic_block:
        return None
    if is_published(Kind.STARTED) or job_log.is_enabled(Trigger.CLAIM):
        return None
    now = clock.stamp(using)
    changes = held_by(holder.worker_id, holder.principal, now)
    try:
        started = start_picked(
            pick(steps=steps, sql=sql), changes, beats=holder.beats, now=now, using=using
        )
    except DatabaseError as error:
        if isinstance(error, NotSupportedError) and f'"{sql.place}"' in str(error):
            sql.find_by_key()
        elif not is_contention(error):
            raise
        return None
    return started._replace(jobs=sorted(started.jobs, key=order))


def start(
    jobs: Sequence[JobRow],
    decide: Callable[..., Transition],
    others: Sequence[Transition] = (),
    *,
    now: datetime,
    using: str,
) -> list[JobRow]:
    """Start an attempt of each job, under a new lease, and return the records as written, in order.

    ``decide(job, lease_id=, now=)`` is :func:`lifecycle.claim` for a worker. To be called in the
    transaction that locked the jobs; ``others`` are decisions about other jobs, to be committed too.
    """
    together = not is_published(Kind.STARTED) and not job_log.is_enabled(Trigger.CLAIM)
    groups: dict[object, list[JobRow]] = defaultdict(list)
    for job in jobs:
        groups[_RESTS_ON(job)].append(job)
    started: list[JobRow] = []
    transitions = list(others)
    for alike in groups.values():
        if together and len(alike) > 1 and _is_plain(alike[0]):
            started += _at_once(alike, decide, now, using)
        else:
            decisions = [decide(job, lease_id=clock.new_lease(), now=now) for job in alike]
            started += [decision.written for decision in decisions]
            transitions += decisions
    commit(transitions, now=now, using=using)
    if len(groups) > 1:
        places = {job.id: place for place, job in enumerate(jobs)}
        started.sort(key=lambda job: places[job.id])
    return started


def _is_plain(job: JobRow) -> bool:
    """Whether nothing else changes with the start, and its end depends on nothing of the job's own."""
    return not (job.hooks or job.lease_id) and job.progress is None and job.total_timeout_ms is None


def _at_once(
    jobs: Sequence[JobRow], decide: Callable[..., Transition], now: datetime, using: str
) -> list[JobRow]:
    leases = clock.new_leases(len(jobs))
    decision = decide(jobs[0], lease_id=leases[0], now=now)
    start_alike(decision, jobs, leases, using=using)
    return changed_alike(jobs, decision.target, decision.changes, {"lease_id": leases})
