"""Add jobs, in the caller's transaction (OJS core PUSH)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from math import inf
from uuid import UUID

from django.db import transaction

from django_ojs import clock, conf
from django_ojs.domain.admission import admit, copies_of, creation_events
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import Duplicate
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobRecord
from django_ojs.domain.lru import LRU
from django_ojs.domain.states import State
from django_ojs.services.commit import publish
from django_ojs.services.job_defaults import resolve_defaults
from django_ojs.signals import job_enqueued, job_scheduled
from django_ojs.store import inserting, locking, selectors
from django_ojs.store.contention import atomically
from django_ojs.store.notifications import payloads

_ANNOUNCED = frozenset({Kind.ENQUEUED, Kind.SCHEDULED})
_AVAILABLE = State.AVAILABLE.value
_KNOWN_FOR = 600.0
"""Seconds after which a known queue is checked again: it may have been pruned."""
_known_queues: LRU[tuple[str, str], float] = LRU(10_000)
"""By database and name: when the queue was last known to have a row (boottime)."""


def enqueue(
    envelopes: Sequence[Envelope], *, now: datetime | None = None, using: str | None = None
) -> list[JobRecord]:
    """Insert the jobs, all or none, and return their records in the same order.

    The rows become visible with the caller's transaction. An id that is taken by a job of the
    same content gives that job back (decision L4); raises :class:`Duplicate` for other content.
    One statement per 1,000 jobs, and one more where their events are stored.
    """
    using = using or conf.current().database
    now = now or clock.now(using)
    records = [
        admit(envelope, resolve_defaults(envelope), job_id=envelope.id or clock.new_id(), now=now)
        for envelope in envelopes
    ]
    return _add(records, now=now, using=using)


def enqueue_bulk(
    envelope: Envelope, args: Sequence[str], *, now: datetime, using: str | None = None
) -> list[JobRecord]:
    """Insert one job like ``envelope`` for each JSON text of arguments; else as :func:`enqueue`."""
    if envelope.id is not None:
        return enqueue([envelope._replace(args_json=text) for text in args], now=now, using=using)
    if not args:
        return []
    ids = clock.new_ids(len(args))
    first = admit(envelope, resolve_defaults(envelope), job_id=ids[0], now=now)
    return _add(copies_of(first, ids, args), now=now, using=using or conf.current().database)


def _add(records: list[JobRecord], *, now: datetime, using: str) -> list[JobRecord]:
    if not records:
        return []
    settings = conf.current()
    kept = not settings.stored_events.isdisjoint(_ANNOUNCED)
    named = any(record.digest is not None for record in records)
    publishing = kept or bool(job_enqueued.receivers) or bool(job_scheduled.receivers)
    work = partial(_insert, records, named=named, publishing=publishing, now=now, using=using)
    # One statement needs no transaction; several do, so that all jobs are stored or none.
    pools = {record.queue for record in records}
    one_statement = not (named or kept or len(pools) > 1 or len(records) > inserting.STRIDE)
    records = work() if one_statement else atomically(using, work)
    remember_queues(pools, using=using)
    return records


def _insert(
    records: list[JobRecord], *, named: bool, publishing: bool, now: datetime, using: str
) -> list[JobRecord]:
    ready = {(record.queue, record.type) for record in records if record.state == _AVAILABLE}
    wake_payloads = payloads(ready) if conf.current().notify else []
    chosen = [record.id for record in records if record.digest is not None]
    known = locking.existing(chosen, using=using) if publishing else set()
    inserting.jobs(records, may_exist=named, wake=wake_payloads[:1], using=using)
    inserting.notify(wake_payloads[1:], using=using)
    fresh = records
    if named:
        records, fresh = _existing(records, chosen, known, using)
    if publishing:
        publish(
            (job_event for job in fresh for job_event in creation_events(job)), now=now, using=using
        )
    return records


def _existing(
    records: list[JobRecord], chosen: list[UUID], known: set[UUID], using: str
) -> tuple[list[JobRecord], list[JobRecord]]:
    """What is stored under the ids that clients chose, and which of the records are new.

    ``known`` are the ids that were there before. One added meanwhile by another transaction is
    recognised by its creation time.
    """
    stored = selectors.jobs(chosen, using=using)
    answers, fresh = [], {}
    for record in records:
        there = record if record.digest is None else stored[record.id]
        if there.digest != record.digest:
            raise Duplicate(
                f"the id {record.id} is taken by a job with other content",
                existing_job_id=str(record.id),
                existing_job_state=there.state,
            )
        answers.append(there)
        added = there.created_at == record.created_at and there.lease_seq == 0
        if added and record.id not in known:
            fresh[record.id] = record
    return answers, list(fresh.values())


def remember_queues(names: Iterable[str], *, using: str) -> None:
    """Give each queue its row, if this process does not know that it has one."""
    add_queues(unknown(names, using=using), using=using)


def unknown(names: Iterable[str], *, using: str) -> list[str]:
    """The queues that this process has not lately known to have a row."""
    since = clock.boottime() - _KNOWN_FOR
    return [name for name in sorted(set(names)) if (_known_queues.get((using, name)) or -inf) < since]


def add_queues(names: Sequence[str], *, using: str) -> None:
    """Give each queue its row, after the commit: a row lock in a caller's long transaction would
    hold up every other first use of the queue. The ``queues`` maintenance task finds what a crash left
    out.
    """

    # A function, not a partial: when it fails Django names it, and fails itself where it cannot.
    def add() -> None:
        inserting.queues(names, using=using)
        know_queues(names, using=using)

    if names:
        transaction.on_commit(add, using=using, robust=True)


def know_queues(names: Iterable[str], *, using: str) -> None:
    """Remember that these queues have rows."""
    for name in names:
        _known_queues.put((using, name), clock.boottime())


def forget_queues(names: Iterable[str] | None = None, *, using: str = "") -> None:
    """Forget that these queues have rows; without names, of all: when their table was emptied."""
    if names is None:
        _known_queues.clear()
    for name in names or ():
        _known_queues.pop((using, name))
