"""Unique jobs: what becomes of a new job whose key another one holds (OJS unique jobs 5)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from django_ojs import clock, conf
from django_ojs.domain import operations
from django_ojs.domain.admission import VERBATIM
from django_ojs.domain.durations import parse_instant
from django_ojs.domain.errors import Duplicate
from django_ojs.domain.events import Kind, job_event
from django_ojs.domain.job import LARGE, Actor, ExistingJob, JobRow
from django_ojs.domain.states import LIVE, State
from django_ojs.domain.timeouts import waiting_deadline
from django_ojs.domain.unique import (
    DEBOUNCED_SINCE,
    OnConflict,
    UniquePolicy,
    by_age,
    held_longest,
    parse_unique,
    stored_policy,
)
from django_ojs.services.commit import commit, publish
from django_ojs.store import locking, selectors, unique_keys

logger = logging.getLogger("django_ojs.job")
Store = Callable[[list[JobRow]], list[JobRow]]


_may_replace: ContextVar[Callable[[JobRow], bool]] = ContextVar(
    "django_ojs.may_replace", default=lambda job: True
)


@contextmanager
def replacing(allowed: Callable[[JobRow], bool]) -> Iterator[None]:
    """In the block, a policy replaces jobs that are ``allowed`` only: others refuse the new one."""
    before = _may_replace.set(allowed)
    try:
        yield
    finally:
        _may_replace.reset(before)


class Holders:
    """The jobs that hold some unique keys, while this transaction holds the rows of the keys."""

    def __init__(self, keys: Mapping[str, str], *, to_change: bool, now: datetime, using: str) -> None:
        self._types = dict(keys)
        self._using = using
        locked = unique_keys.lock(keys, now, using=using)
        ids = {job_id for holders in locked.values() for job_id in holders}
        there = unique_keys.jobs(ids, to_change=to_change, using=using)
        self._jobs: dict[str, dict[UUID, JobRow]] = {
            key: {job_id: there[job_id] for job_id in holders if job_id in there}
            for key, holders in locked.items()
        }

    def matching(self, policy: UniquePolicy, record: JobRow, now: datetime) -> list[JobRow]:
        """The other holders of the job's key that count under the policy, the last created first."""
        assert record.unique_key is not None
        jobs = self._jobs[record.unique_key].values()
        found = [job for job in jobs if job.id != record.id and policy.matches(job, now)]
        return sorted(found, key=by_age, reverse=True)

    def has(self, record: JobRow) -> bool:
        """Whether this very job holds its key."""
        return record.unique_key is not None and record.id in self._jobs[record.unique_key]

    def put(self, job: JobRow) -> None:
        """Remember the job as it is now."""
        assert job.unique_key is not None
        self._jobs[job.unique_key][job.id] = job

    def write(self, now: datetime) -> None:
        """Store who holds each key from now on."""
        rows = [
            (key, self._types[key], [job.id for job in held_longest(jobs.values())])
            for key, jobs in self._jobs.items()
        ]
        unique_keys.write(rows, now, using=self._using)


def admit_unique(records: Sequence[JobRow], store: Store, *, now: datetime, using: str) -> list[JobRow]:
    """Store new jobs as the policies of the unique ones among them say; in the transaction of the
    caller. ``store`` inserts records and returns what is stored under their ids.

    A job that is there already is in the answer in place of the new one, as :class:`ExistingJob`. Jobs
    of one call count against each other in their order. An id that is taken goes before any policy.
    Raises :class:`Duplicate` with the existing job, before anything is inserted unless a job of the
    same call was replaced before.
    """
    named = [record.id for record in records if record.digest is not None]
    taken = locking.existing(named, using=using)
    policies = {
        index: policy
        for index, record in enumerate(records)
        if record.unique_key is not None
        and record.id not in taken
        and (policy := stored_policy(record)) is not None
    }
    if not policies:
        return store(list(records))
    keys = {str(records[index].unique_key): records[index].type for index in policies}
    to_change = any(policy.replaces for policy in policies.values())
    holders = Holders(keys, to_change=to_change, now=now, using=using)
    admission = _Admission(holders, store, now, using, len(records))
    for index, record in enumerate(records):
        admission.take(index, record, policies.get(index))
    found = admission.finish()
    holders.write(now)
    return found


class _Admission:
    """The jobs of one call, one after the other."""

    def __init__(self, holders: Holders, store: Store, now: datetime, using: str, count: int) -> None:
        self._holders = holders
        self._store = store
        self._now = now
        self._using = using
        self._count = count
        self._waiting: list[tuple[int, JobRow]] = []
        self._places: dict[UUID, int] = {}
        self._answers: dict[int, JobRow] = {}

    def take(self, index: int, record: JobRow, policy: UniquePolicy | None) -> None:
        """Decide about the next job."""
        if policy is None or self._holders.has(record):
            self._waiting.append((index, record))
            return
        there = self._holders.matching(policy, record, self._now)
        if there and not policy.replaces:
            self._deduplicate(index, record, policy, there[0])
            return
        victims = [job for job in there if job.state in LIVE]
        if victims:
            record = self._replace(index, record, policy, victims)
        self._holders.put(record)
        self._places[record.id] = index
        self._waiting.append((index, record))

    def finish(self) -> list[JobRow]:
        """Store what is left, and return the answers in order."""
        self._flush()
        return [self._answers[index] for index in range(self._count)]

    def _flush(self) -> None:
        stored = self._store([record for _, record in self._waiting])
        for (index, _), record in zip(self._waiting, stored, strict=True):
            self._answers[index] = record
        self._waiting.clear()

    def _deduplicate(self, index: int, record: JobRow, policy: UniquePolicy, existing: JobRow) -> None:
        if policy.on_conflict is OnConflict.REJECT:
            raise self._refusal(index, record, existing, "an equal job exists")
        self._tell(record, policy, existing)
        self._answers[index] = ExistingJob._make(existing)

    def _replace(
        self, index: int, record: JobRow, policy: UniquePolicy, victims: Sequence[JobRow]
    ) -> JobRow:
        for job in victims:
            if not _may_replace.get()(job):
                raise self._refusal(index, record, job, "an equal job exists")
            if job.workflow_id is not None and job.state == State.ACTIVE:
                words = f"an equal job runs as part of the workflow {job.workflow_id}"
                raise self._refusal(index, record, job, words)
        if any(job.id in self._places for job in victims):
            self._flush()
            # As they are stored: with the hooks of their limits.
            victims = [
                self._answers[self._places[job.id]] if job.id in self._places else job
                for job in victims
            ]
        now = clock.now(self._using)
        actor = Actor(reason=f"replaced by {record.id}")
        transitions = [
            operations.cancel(
                job, actor=actor, now=now, cancelled_by="unique", replaced_by=str(record.id)
            )
            for job in victims
        ]
        commit(transitions, now=now, using=self._using)
        for transition in transitions:
            self._holders.put(transition.written)
            if transition.job.id in self._places:
                self._answers[self._places[transition.job.id]] = transition.written
        self._tell(record, policy, victims[0])
        return _in_place_of(record, policy, victims, self._now)

    def _tell(self, record: JobRow, policy: UniquePolicy, existing: JobRow) -> None:
        new = {"new_job_id": str(record.id)} if policy.replaces else {}
        event = job_event(
            Kind.DEDUPLICATED,
            existing,
            on_conflict=str(policy.on_conflict),
            unique_key=record.unique_key,
            **new,
        )
        publish([event], now=self._now, using=self._using)
        if logger.isEnabledFor(logging.DEBUG):
            _log_after_commit(existing, policy, self._using)

    def _refusal(self, index: int, record: JobRow, existing: JobRow, words: str) -> Duplicate:
        error = refusal(record, existing, words)
        if self._count > 1:
            error.details = {**error.details, "index": index}
        return error


def refusal(record: JobRow, existing: JobRow, words: str) -> Duplicate:
    """The error for a job that may not be while another one holds its key."""
    error = Duplicate(
        f"{words}: {existing.id}, {existing.state}",
        existing_job_id=str(existing.id),
        existing_job_state=existing.state,
        unique_key=record.unique_key,
    )
    error.existing = existing
    return error


def _in_place_of(
    record: JobRow, policy: UniquePolicy, victims: Sequence[JobRow], now: datetime
) -> JobRow:
    """The new job with what it takes over: its start, and since when it has been put off."""
    if policy.on_conflict is OnConflict.REPLACE_EXCEPT_SCHEDULE:
        planned = [job for job in victims if job.state == State.SCHEDULED]
        if not planned:
            return record
        first = min(planned, key=_planned)
        return _starting(record, _planned(first), now, _spelling(first))
    start = record.scheduled_at
    if policy.debounce_ms is None or start is None:
        return record
    extra = record.json("extra")
    mark = extra["unique"].get(DEBOUNCED_SINCE)
    marks = [(job.json("extra").get("unique") or {}).get(DEBOUNCED_SINCE) for job in victims]
    since = min(one for one in (mark, *marks) if one is not None)
    extra["unique"][DEBOUNCED_SINCE] = since
    record = record._replace(extra=json.dumps(extra))
    if policy.max_wait_ms is None:
        return record
    latest = datetime.fromisoformat(since) + timedelta(milliseconds=policy.max_wait_ms)
    return _starting(record, min(start, latest), now)


def _planned(job: JobRow) -> datetime:
    assert job.scheduled_at is not None
    return job.scheduled_at


def _spelling(job: JobRow) -> str | None:
    """How the client wrote the start of a job, if it is still that."""
    text = job.json("extra").get(VERBATIM, {}).get("scheduled_at")
    if text is None or parse_instant(text, "scheduled_at", job.created_at)[0] != job.scheduled_at:
        return None
    return str(text)


def _starting(record: JobRow, when: datetime, now: datetime, spelling: str | None = None) -> JobRow:
    """The new job with another start, and how a client wrote that."""
    state = record.state
    if state != State.PENDING:
        state = (State.SCHEDULED if when > now else State.AVAILABLE).value
    extra = record.json("extra")
    verbatim = {**extra.pop(VERBATIM, {}), "scheduled_at": spelling}
    if kept := {name: text for name, text in verbatim.items() if text is not None}:
        extra[VERBATIM] = kept
    record = record._replace(scheduled_at=when, state=state, extra=json.dumps(extra))
    # Also where it had none: one that was to be put off may be available instead.
    return record._replace(deadline_at=waiting_deadline(record))


def _log_after_commit(existing: JobRow, policy: UniquePolicy, using: str) -> None:
    # A function, not a partial: when it fails Django names it, and fails itself where it cannot.
    def write() -> None:
        logger.debug(
            "%s %s deduplicated: queue %s, %s",
            existing.type,
            existing.id,
            existing.queue,
            policy.on_conflict,
            extra={
                "job_id": str(existing.id),
                "job_type": existing.type,
                "queue": existing.queue,
                "on_conflict": str(policy.on_conflict),
                "outcome": "deduplicated",
            },
        )

    transaction.on_commit(write, using=using, robust=True)


class Revival:
    """Jobs that get a new life, and those that hold the keys of the unique ones among them.

    Made before the jobs are locked: keys come first in the lock order.
    """

    def __init__(self, ids: Collection[UUID], *, using: str) -> None:
        keyed = unique_keys.keys_of(ids, using=using)
        self._holders: Holders | None = None
        self._policies: dict[UUID, UniquePolicy] = {}
        if keyed:
            self._policies = {
                job_id: parse_unique(one.policy)
                for job_id, one in keyed.items()
                if one.policy is not None
            }
            self._now = clock.now(using)
            keys = {one.key: one.type for one in keyed.values()}
            self._holders = Holders(keys, to_change=False, now=self._now, using=using)

    def check(self, job: JobRow) -> None:
        """Raise :class:`Duplicate` where an equal job is there that the job's own policy minds, and
        that has not ended.
        """
        policy = self._policies.get(job.id)
        if policy is None or self._holders is None:
            return
        there = [one for one in self._holders.matching(policy, job, self._now) if one.state in LIVE]
        if there:
            raise refusal(job, there[0], "an equal job is there")

    def revived(self, jobs: Iterable[JobRow]) -> None:
        """The jobs as they will be: they hold their keys again."""
        if self._holders is not None:
            for job in jobs:
                if job.unique_key is not None:
                    self._holders.put(job)

    def write(self) -> None:
        """Store who holds the keys."""
        if self._holders is not None:
            self._holders.write(self._now)


def other_holders(job: JobRow, *, using: str | None = None) -> list[JobRow]:
    """Who else holds the key of a job, the last created first, without what may be large; no locks."""
    if job.unique_key is None:
        return []
    using = using or conf.current().database
    ids = [one for one in unique_keys.holders(job.unique_key, using=using) if one != job.id]
    found = selectors.jobs(ids, without=LARGE, using=using)
    return sorted(found.values(), key=by_age, reverse=True)
