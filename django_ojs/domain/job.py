"""A row of the job table as an immutable value, and what a decision about it looks like."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.errors import InvalidTransition
from django_ojs.domain.states import ARROWS, FENCED, State, Trigger, sources_of

LARGE: Mapping[str, Any] = {
    "args": "[]",
    "meta": "{}",
    "tags": "[]",
    "result": None,
    "error": None,
    "errors": "[]",
    "extra": "{}",
    "progress_data": None,
    "checkpoint": None,
    "checkpoint_info": None,
}
"""The columns that may be large, and what stands in a record that is without them."""


class JobRow(NamedTuple):
    """What is stored about one job.

    Columns that hold JSON (``args meta tags retry result error errors extra progress_data
    checkpoint checkpoint_info``) are kept as JSON text: most verbs only pass them on. Times are
    aware, in UTC; limits are milliseconds. ``hooks`` has a bit for each transition hook that wants to
    see the job end; a ``held`` job waits for a place under a rate limit; ``incident`` is that of its
    last failure. First what a job is enqueued with; the defaults are what its life has not written
    yet.
    """

    id: UUID
    state: str
    queue: str
    type: str
    priority: int
    max_attempts: int
    created_at: datetime
    limits_from: datetime
    enqueued_at: datetime | None
    scheduled_at: datetime | None
    expires_at: datetime | None
    timeout_ms: int
    grace_period_ms: int
    heartbeat_timeout_ms: int
    total_timeout_ms: int | None
    enqueue_ttl_ms: int | None
    attempt_ttl_ms: int | None
    visibility_timeout_ms: int | None
    timeout_explicit: bool
    heartbeat_explicit: bool
    retry: str
    args: str
    meta: str
    tags: str
    extra: str
    digest: str | None
    attempt: int = 0
    lease_seq: int = 0
    lease_id: UUID | None = None
    worker_id: str | None = None
    lease_principal: str | None = None
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    heartbeat_armed: bool = False
    lease_expires_at: datetime | None = None
    lease_visibility_ms: int | None = None
    deadline_at: datetime | None = None
    extended_ms: int = 0
    finished_at: datetime | None = None
    result: str | None = None
    error: str | None = None
    errors: str = "[]"
    incident: str | None = None
    retry_delay_ms: int | None = None
    dead_letter: bool = False
    progress: float | None = None
    progress_message: str = ""
    progress_data: str | None = None
    checkpoint: str | None = None
    checkpoint_seq: int = 0
    checkpoint_info: str | None = None
    unique_key: str | None = None
    hooks: int = 0
    held: bool = False
    workflow_id: UUID | None = None
    workflow_step: int | None = None

    def json(self, column: str) -> Any:
        """The parsed value of a JSON column, ``None`` where it is unset."""
        text = getattr(self, column)
        if text in _EMPTY:
            return _EMPTY[text]()
        return None if text is None else json.loads(text)

    def small(self) -> JobRow:
        """The same job without what may be large."""
        return self._replace(**LARGE)

    @property
    def deduplicated(self) -> bool:
        """Whether an ``enqueue`` found this job instead of storing a new one."""
        return False

    @property
    def text_bytes(self) -> int:
        """The approximate size of its text: arguments, checkpoint, error history."""
        return (
            len(self.args)
            + len(self.meta)
            + len(self.errors)
            + len(self.extra)
            + len(self.checkpoint or "")
            + len(self.progress_data or "")
        )


def ran_for(job: Any, now: datetime | None = None) -> timedelta | None:
    """How long the last attempt of a job took, or has taken until ``now``; of anything with its times.

    ``None`` if it never started, and if it waited again after that attempt, whose end its times do not
    have.
    """
    started, until = job.started_at, job.finished_at or now
    if started is None or until is None:
        return None
    entered = (moment for moment in (job.enqueued_at, job.scheduled_at) if moment is not None)
    return None if any(moment > started for moment in entered) else until - started


class ExistingJob(JobRow):
    """A job that an ``enqueue`` found instead of storing a new one: the same id, or an equal job."""

    __slots__ = ()

    @property
    def deduplicated(self) -> bool:
        """Always true."""
        return True


class AttemptEnd(NamedTuple):
    """How an attempt ended; becomes its row in the table of attempts."""

    outcome: str
    error: str | None


class JobEvent(NamedTuple):
    """An OJS event before it has an id: its kind, its ``payload``, and the job it is about, if any."""

    kind: str
    payload: Mapping[str, Any]
    job: JobRow | None = None

    @property
    def data(self) -> Mapping[str, Any]:
        """All data fields (OJS events); built on demand: most events are not stored."""
        job = self.job
        if job is None:
            return self.payload
        shared = {"job_id": str(job.id), "job_type": job.type, "queue": job.queue}
        return {**shared, "attempt": job.attempt, **self.payload}


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, for events and audit.

    ``source`` is one of ``api``, ``http``, ``admin``, ``command``, ``worker``, ``reaper``;
    ``address`` where the request came from; ``bulk`` is the bulk job that acts for a person.
    """

    source: str = "api"
    name: str = ""
    reason: str = ""
    address: str = ""
    bulk: str = ""

    def event_fields(self) -> dict[str, str]:
        """The fields of events; empty ones are left out."""
        named = {
            "source": self.source,
            "actor": self.name,
            "reason": self.reason,
            "address": self.address,
            "bulk_job_id": self.bulk,
        }
        return {key: value for key, value in named.items() if value}


def who(actor: Actor) -> str:
    """What events call ``cancelled_by`` and the like: the name, without one the source."""
    return actor.name or actor.source


_EMPTY: Mapping[str | None, type[Any]] = {"{}": dict, "[]": list}
_PLACES = {column: index for index, column in enumerate(JobRow._fields)}
_STATES = {str(state): state for state in State}  # a lookup costs less than a call of the Enum


@dataclass(slots=True)
class Transition:
    """A decision: what one job becomes, guarded by what it was. It does not change.

    It is applied by a write that holds only while the job is still in ``source`` and, where
    ``lease_id`` is given, still under that lease. Raises :class:`InvalidTransition` when the arrow
    is not in the table, or a worker's report comes without a lease.
    """

    # Not frozen: a claim makes one for each job, at three times the cost then.

    trigger: Trigger
    job: JobRow
    target: State
    changes: Mapping[str, Any]
    attempt: AttemptEnd | None = None
    job_events: tuple[JobEvent, ...] = field(default=())

    def __post_init__(self) -> None:
        if (self.trigger, self.job.state, self.target) not in ARROWS:
            sources = sorted(source for source in sources_of(self.trigger) if source)
            raise InvalidTransition(
                f"{self.trigger} needs a job that is {' or '.join(sources)}: this one is {self.source}",
                job_id=str(self.job.id),
                current_state=str(self.source),
                expected_state=" | ".join(sources),
            )
        if self.trigger in FENCED and self.job.lease_id is None:
            raise InvalidTransition(f"{self.trigger} needs a lease", job_id=str(self.job.id))

    @property
    def source(self) -> State:
        """The state that the job must still be in."""
        return _STATES.get(self.job.state) or State(self.job.state)

    @property
    def written(self) -> JobRow:
        """The record as it is after the write, without reading it again."""
        return changed(self.job, self.target, self.changes)


def changed(job: JobRow, state: State, changes: Mapping[str, Any]) -> JobRow:
    """The record with these changes. At a third of the cost of ``_replace`` for so many fields."""
    values = list(job)
    values[_PLACES["state"]] = state.value
    for column, value in changes.items():
        values[_PLACES[column]] = value
    return JobRow._make(values)


def changed_alike(
    jobs: Sequence[JobRow],
    state: State,
    changes: Mapping[str, Any],
    varying: Mapping[str, Sequence[Any]],
) -> list[JobRow]:
    """The records, at least one, with changes that they share and those that differ: by column, at less
    than half of the cost of one by one.
    """
    columns: list[Iterable[Any]] = list(zip(*jobs, strict=True))
    columns[_PLACES["state"]] = repeat(state.value, len(jobs))
    for column, value in changes.items():
        columns[_PLACES[column]] = repeat(value, len(jobs))
    for column, values in varying.items():
        columns[_PLACES[column]] = values
    return list(map(JobRow._make, zip(*columns, strict=True)))


def held_by(worker_id: str | None, principal: str | None, now: datetime) -> dict[str, Any]:
    """What changes in the same way for every job that a worker starts ``now``, unless it or its worker
    asks for a visibility timeout.
    """
    return {
        "worker_id": worker_id,
        "lease_principal": principal,
        "started_at": now,
        "heartbeat_at": now,
        "extended_ms": 0,
        "lease_visibility_ms": None,
        "lease_expires_at": None,
    }


NO_LEASE: Mapping[str, Any] = {
    "lease_id": None,
    "worker_id": None,
    "lease_principal": None,
    "heartbeat_at": None,
    "lease_expires_at": None,
    "lease_visibility_ms": None,
    "extended_ms": 0,
}
"""The changes that end an open attempt."""
