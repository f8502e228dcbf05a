"""From a validated request to the first record of a job (OJS core PUSH)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.events import Kind, job_event
from django_ojs.domain.job import JobEvent, JobRecord
from django_ojs.domain.limits import Limits
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import waiting_deadline

VERBATIM = "_ojs_verbatim"
"""The key of the stored extra fields under which a client's own spelling of times is kept."""


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What a job gets from its type, its queue and the settings where its request is silent.

    ``explicit`` are the limits that bind: those named for this type, and a heartbeat timeout that the
    operator set for the queue or for all jobs. ``limits`` has every default.
    """

    queue: str
    priority: int
    explicit: Limits
    limits: Limits
    max_attempts: int
    retry: str
    always_armed: bool


def admit(envelope: Envelope, defaults: JobDefaults, *, job_id: UUID, now: datetime) -> JobRecord:
    """The record of a new job: ``pending``, ``scheduled`` or ``available``.

    Raises :class:`InvalidRequest` when the total timeout is below an explicit timeout.
    """
    asked = envelope.limits
    explicit = defaults.explicit
    timeout = asked.timeout_ms or explicit.timeout_ms
    total = asked.total_timeout_ms or defaults.limits.total_timeout_ms
    if timeout is not None and total is not None and total < timeout:
        raise InvalidRequest("total_timeout", "must not be below timeout")
    heartbeat = asked.heartbeat_timeout_ms or explicit.heartbeat_timeout_ms
    limits = defaults.limits
    assert limits.timeout_ms and limits.heartbeat_timeout_ms and limits.grace_period_ms is not None
    state = _AVAILABLE
    if envelope.pending:
        state = State.PENDING.value
    elif envelope.scheduled_at is not None and envelope.scheduled_at > now:
        state = State.SCHEDULED.value
    ttl = asked.enqueue_ttl_ms or limits.enqueue_ttl_ms
    record = JobRecord(
        id=job_id,
        state=state,
        queue=envelope.queue or defaults.queue,
        type=envelope.type,
        priority=defaults.priority if envelope.priority is None else envelope.priority,
        attempt=0,
        max_attempts=defaults.max_attempts,
        lease_seq=0,
        lease_id=None,
        worker_id=None,
        lease_principal=None,
        created_at=now,
        limits_from=now,
        enqueued_at=now,
        scheduled_at=envelope.scheduled_at,
        expires_at=envelope.expires_at,
        started_at=None,
        heartbeat_at=None,
        lease_expires_at=None,
        deadline_at=None,
        finished_at=None,
        timeout_ms=timeout or limits.timeout_ms,
        grace_period_ms=_grace(asked, explicit, limits, defaults.always_armed),
        heartbeat_timeout_ms=heartbeat or limits.heartbeat_timeout_ms,
        total_timeout_ms=total,
        enqueue_ttl_ms=ttl,
        visibility_timeout_ms=asked.visibility_timeout_ms or limits.visibility_timeout_ms,
        lease_visibility_ms=None,
        extended_ms=0,
        timeout_explicit=timeout is not None,
        heartbeat_explicit=heartbeat is not None or defaults.always_armed,
        heartbeat_armed=False,
        dead_letter=False,
        retry_delay_ms=None,
        retry=defaults.retry,
        args=envelope.args_json,
        meta=envelope.meta_json,
        tags=json.dumps(list(envelope.tags)) if envelope.tags else "[]",
        result=None,
        error=None,
        errors="[]",
        extra=_extra(envelope),
        progress=None,
        progress_message="",
        progress_data=None,
        checkpoint=None,
        checkpoint_seq=0,
        checkpoint_info=None,
        digest=None if envelope.id is None else digest(envelope),
    )
    if total is None and ttl is None and envelope.expires_at is None:
        return record
    return record._replace(deadline_at=waiting_deadline(record))


def copies_of(record: JobRecord, ids: Iterable[UUID], args: Iterable[str]) -> list[JobRecord]:
    """Records like this one, with their own ids and arguments: admission asks for nothing else."""
    before, after = record[1:_ARGS], record[_ARGS + 1 :]
    make = JobRecord._make
    return [make((job_id, *before, text, *after)) for job_id, text in zip(ids, args, strict=True)]


_AVAILABLE = State.AVAILABLE.value
_ARGS = JobRecord._fields.index("args")


def creation_events(record: JobRecord) -> tuple[JobEvent, ...]:
    """The events of a new job; a pending one is announced when it is activated."""
    if record.state == State.PENDING:
        return ()
    if record.state == State.SCHEDULED:
        assert record.scheduled_at is not None
        return (job_event(Kind.SCHEDULED, record, scheduled_at=record.scheduled_at.isoformat()),)
    return (job_event(Kind.ENQUEUED, record, priority=record.priority),)


def digest(envelope: Envelope) -> str:
    """A fingerprint of the request: a repeated request has the same one."""
    content = (
        envelope.type,
        json.loads(envelope.args_json),
        json.loads(envelope.meta_json),
        envelope.queue,
        envelope.priority,
        envelope.tags,
        [getattr(envelope.limits, name) for name in Limits.__dataclass_fields__],
        envelope.retry,
        envelope.times_asked,
        envelope.pending,
        envelope.extra,
    )
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _grace(asked: Limits, explicit: Limits, limits: Limits, strict: bool) -> int:
    """Decision T3: a client that uses ``timeout_ms`` has no soft stop."""
    if asked.grace_period_ms is not None:
        return asked.grace_period_ms
    if explicit.grace_period_ms is not None:
        return explicit.grace_period_ms
    if asked.timeout_ms is not None and asked.timeout_given_in_ms and not strict:
        return 0
    assert limits.grace_period_ms is not None
    return limits.grace_period_ms


def _extra(envelope: Envelope) -> str:
    if envelope.extra is None and envelope.scheduled_text is None and envelope.expires_text is None:
        return "{}"
    verbatim = {
        name: text
        for name, text in (
            ("scheduled_at", envelope.scheduled_text),
            ("expires_at", envelope.expires_text),
        )
        if text is not None
    }
    if not verbatim:
        return json.dumps(envelope.extra) if envelope.extra else "{}"
    return json.dumps({**(envelope.extra or {}), VERBATIM: verbatim})
