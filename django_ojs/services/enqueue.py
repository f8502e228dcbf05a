"""Add jobs, in the caller's transaction (OJS core PUSH)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from math import inf
from uuid import UUID

from django.db import connections, transaction

from django_ojs import clock, conf
from django_ojs.domain.admission import admit, copies_of, creation_events, digest
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import Duplicate
from django_ojs.domain.events import Kind
from django_ojs.domain.job import ExistingJob, JobRow
from django_ojs.domain.lru import LRU
from django_ojs.domain.states import State
from django_ojs.services import announcing, databases, middleware
from django_ojs.services.commit import publish
from django_ojs.services.job_defaults import is_unique, resolve_defaults
from django_ojs.services.rate_limits import at_once, places, policies
from django_ojs.services.unique import admit_unique
from django_ojs.signals import job_enqueued, job_scheduled
from django_ojs.store import inserting, locking, selectors
from django_ojs.store.contention import alone, atomically, is_in_transaction, see_latest

_ANNOUNCED = frozenset({Kind.ENQUEUED, Kind.SCHEDULED})
DROPPED = "dropped"
"""The state in the record of a job that the enqueue middleware dropped; no stored job has it."""
_AVAILABLE = State.AVAILABLE.value
_KNOWN_FOR = 600.0
"""Seconds after which a known queue is checked again: it may have been pruned."""
_known_queues: LRU[tuple[str, str], float] = LRU(10_000)
"""By database and name: when the queue was last known to have a row (boottime)."""


def enqueue(
    envelopes: Sequence[Envelope], *, now: datetime | None = None, using: str | None = None
) -> list[JobRow]:
    """Insert the jobs, all or none, and return their records in the same order.

    Without ``using`` they go where their queue is, and the time is of that database. The rows become
    visible with the caller's transaction, if that is in the same database. An id that is taken by a
    job of the same content gives that job back (decision L4); raises :class:`Duplicate` for other
    content. A unique job may give back another one, or raise :class:`Duplicate`
    (``services/unique.py``). The record of a job that was there already is ``deduplicated``. Of a job
    that the enqueue middleware drops nothing is stored: the state of its record is ``dropped``. One
    statement per 1,000 jobs, and one more where their events are stored.
    """
    if middleware.chain.members():
        return _through_middleware(envelopes, now=now, using=using)
    to = using or databases.of_envelopes(envelopes)
    now = now or clock.now(to)
    records = [
        admit(envelope, resolve_defaults(envelope), job_id=envelope.id or clock.new_id(), now=now)
        for envelope in envelopes
    ]
    return insert(records, now=now, using=to)


def _through_middleware(
    envelopes: Sequence[Envelope], *, now: datetime | None, using: str | None
) -> list[JobRow]:
    if not envelopes:
        return []
    asked_at = now or clock.now(using or databases.of_call(envelopes[0].type, envelopes[0].queue))
    requests = [middleware.request_for(envelope, now=asked_at) for envelope in envelopes]

    def store() -> list[JobRow]:
        passed = middleware.passed(requests)
        kept = [request.envelope for request in passed if request is not None]
        to, at = _place(kept, asked_at, using)
        records = [
            _admitted(given, request, at)
            for given, request in zip(requests, passed, strict=True)
            if request is not None
        ]
        stored = iter(insert(records, now=at, using=to))
        return [
            _dropped(given, asked_at) if request is None else next(stored)
            for given, request in zip(requests, passed, strict=True)
        ]

    return middleware.around(requests[0], len(requests), store)


def _place(envelopes: Sequence[Envelope], now: datetime, using: str | None) -> tuple[str, datetime]:
    """The database of jobs that have passed the enqueue middleware, which may have given them another
    queue, and the time there.
    """
    if using is not None:
        return using, now
    to = databases.of_envelopes(envelopes)
    return to, clock.now(to) if conf.current().databases.are_several else now


def _admitted(given: EnqueueRequest, request: EnqueueRequest, now: datetime) -> JobRow:
    envelope = request.envelope
    record = admit(envelope, resolve_defaults(envelope), job_id=request.id, now=now)
    if record.digest is None:
        return record
    # Of what the client asked for: the middleware may stamp a repeated request with something new.
    return record._replace(digest=digest(given.envelope))


def _dropped(request: EnqueueRequest, now: datetime) -> JobRow:
    """The record, not stored, of a job that the enqueue middleware dropped."""
    envelope = request.envelope
    record = admit(envelope, resolve_defaults(envelope), job_id=request.id, now=now)
    return record._replace(state=DROPPED)


def enqueue_bulk(
    envelope: Envelope, args: Sequence[str], *, now: datetime, using: str | None = None
) -> list[JobRow]:
    """Insert one job like ``envelope`` for each JSON text of arguments; else as :func:`enqueue`."""
    if not args:
        return []
    if envelope.id is not None or not middleware.is_shared() or is_unique(envelope):
        return enqueue([envelope._replace(args_json=text) for text in args], now=now, using=using)
    ids = clock.new_ids(len(args))
    if not middleware.chain.members():
        using = using or databases.of_envelopes([envelope])
        first = admit(envelope, resolve_defaults(envelope), job_id=ids[0], now=now)
        return insert(copies_of(first, ids, args), now=now, using=using)
    request = EnqueueRequest(ids[0], envelope._replace(args_json=args[0]), now)

    def store() -> list[JobRow]:
        (passed,) = middleware.passed([request])
        if passed is None:
            return copies_of(_dropped(request, now), ids, args)
        to, at = _place([passed.envelope], now, using)
        first = admit(passed.envelope, resolve_defaults(passed.envelope), job_id=ids[0], now=at)
        return insert(copies_of(first, ids, args), now=at, using=to)

    return middleware.around(request, len(args), store)


def insert(records: list[JobRow], *, now: datetime, using: str) -> list[JobRow]:
    """Insert jobs that have passed the enqueue middleware; else as :func:`enqueue`."""
    if not records:
        return []
    if any(record.unique_key is not None for record in records):
        return _unique(records, now=now, using=using)
    return _store(records, now=now, using=using)


def _unique(records: list[JobRow], *, now: datetime, using: str) -> list[JobRow]:
    own = not connections[using].in_atomic_block
    tries = count()

    def work() -> list[JobRow]:
        # A try that lost a race under REPEATABLE READ would lose the next one as well.
        if next(tries) and own:
            see_latest(using)
        store = partial(_store, now=now, using=using)
        return admit_unique(records, store, now=now, using=using)

    return atomically(using, work)


def _store(records: list[JobRow], *, now: datetime, using: str) -> list[JobRow]:
    if not records:
        return []
    records = policies.marked(records, using=using)
    settings = conf.current()
    kept = not settings.stored_events.isdisjoint(_ANNOUNCED)
    publishing = kept or bool(job_enqueued.receivers) or bool(job_scheduled.receivers)
    pools, named, limited = set(), False, False
    for record in records:
        pools.add(record.queue)
        named = named or record.digest is not None
        limited = limited or record.held
    work = partial(
        _insert,
        records,
        named=named,
        limited=limited,
        publishing=publishing,
        apart=not is_in_transaction(connections[using]),
        now=now,
        using=using,
    )
    # One statement needs no transaction; several do, so that all jobs are stored or none.
    several = named or kept or limited or len(pools) > 1 or len(records) > inserting.STRIDE
    records, announced = (atomically if several else alone)(using, work)
    announcing.committed(announced, using=using)
    remember_queues(pools, using=using)
    return records


def _insert(
    records: list[JobRow],
    *,
    named: bool,
    limited: bool,
    publishing: bool,
    apart: bool,
    now: datetime,
    using: str,
) -> tuple[list[JobRow], announcing.Announcement]:
    settled = False
    if limited and not named:
        records, settled = at_once.decide(records, now=now, using=using)
    ready = {(one.queue, one.type) for one in records if one.state == _AVAILABLE and not one.held}
    announced = announcing.announcement(ready, alone=apart, using=using)
    notify_of = announced.payloads
    chosen = [record.id for record in records if record.digest is not None] if named else []
    known = locking.existing(chosen, using=using) if publishing or limited else set()
    inserting.jobs(records, may_exist=named, wake=notify_of[:1], using=using)
    inserting.notify(notify_of[1:], using=using)
    fresh = records
    if named:
        records, fresh = _existing(records, chosen, known, using)
    if publishing:
        publish(
            (job_event for job in fresh for job_event in creation_events(job)), now=now, using=using
        )
    places.add(fresh, settled=settled, now=now, using=using)
    return records, announced


def _existing(
    records: list[JobRow], chosen: list[UUID], known: set[UUID], using: str
) -> tuple[list[JobRow], list[JobRow]]:
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
        added = there.created_at == record.created_at and there.lease_seq == 0
        if added and record.id not in known:
            fresh[record.id] = record
        elif record.digest is not None:
            there = ExistingJob._make(there)
        answers.append(there)
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
        alone(using, partial(inserting.queues, names, using=using))
        # A test that captures callbacks runs them in its transaction, and rolls that back.
        if not connections[using].in_atomic_block:
            know_queues(names, using=using)

    if names:
        transaction.on_commit(add, using=using, robust=True)


def know_queues(names: Iterable[str], *, using: str) -> None:
    """Remember that these queues have rows."""
    for name in names:
        _known_queues.put((using, name), clock.boottime())


def forget_all_queues() -> None:
    """Forget of every queue that it has a row: the tables were emptied."""
    _known_queues.clear()


def forget_queues(names: Iterable[str], *, using: str) -> None:
    """Forget that these queues have rows."""
    for name in names:
        _known_queues.pop((using, name))
