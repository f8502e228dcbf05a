"""From a validated request to the first record of a job (OJS core PUSH)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any
from uuid import UUID

from django_ojs.domain.durations import format_instant
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.events import Kind, job_event
from django_ojs.domain.job import JobEvent, JobRow
from django_ojs.domain.limits import Limits
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import waiting_deadline
from django_ojs.domain.unique import DEBOUNCED_SINCE, UniquePolicy, parse_unique, unique_key

VERBATIM = "_ojs_verbatim"
"""The key of the stored extra fields under which a client's own spelling of times is kept."""


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What a job gets from its type, its queue and the settings where its request is silent.

    ``explicit`` are the limits that bind: those named for this type, and a heartbeat timeout that the
    operator set for the queue or for all jobs. ``limits`` has every default. ``parameters`` are the
    names of the arguments by position, where the handler is known.
    """

    queue: str
    priority: int
    explicit: Limits
    limits: Limits
    max_attempts: int
    retry: str
    always_armed: bool
    rate_limit: Mapping[str, Any] | None = None
    unique: UniquePolicy | None = None
    parameters: tuple[str, ...] = ()


def admit(envelope: Envelope, defaults: JobDefaults, *, job_id: UUID, now: datetime) -> JobRow:
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
    attempt_ttl = asked.attempt_ttl_ms or limits.attempt_ttl_ms
    record = JobRow(
        id=job_id,
        state=state,
        queue=envelope.queue or defaults.queue,
        type=envelope.type,
        priority=defaults.priority if envelope.priority is None else envelope.priority,
        max_attempts=defaults.max_attempts,
        created_at=now,
        limits_from=now,
        enqueued_at=None if envelope.pending else now,
        scheduled_at=envelope.scheduled_at,
        expires_at=envelope.expires_at,
        timeout_ms=timeout or limits.timeout_ms,
        grace_period_ms=_grace(asked, explicit, limits, defaults.always_armed),
        heartbeat_timeout_ms=heartbeat or limits.heartbeat_timeout_ms,
        total_timeout_ms=total,
        enqueue_ttl_ms=ttl,
        attempt_ttl_ms=attempt_ttl,
        visibility_timeout_ms=asked.visibility_timeout_ms or limits.visibility_timeout_ms,
        timeout_explicit=timeout is not None,
        heartbeat_explicit=heartbeat is not None or defaults.always_armed,
        retry=defaults.retry,
        args=envelope.args_json,
        meta=envelope.meta_json,
        tags=json.dumps(list(envelope.tags)) if envelope.tags else "[]",
        extra=_extra(envelope, defaults.rate_limit),
        digest=None if envelope.id is None else digest(envelope),
    )
    given = None if envelope.extra is None else envelope.extra.get("unique")
    if given is not None or defaults.unique is not None:
        record = _unique(record, given, defaults, now)
    if (total, ttl, attempt_ttl, envelope.expires_at) == (None, None, None, None):
        return record
    return record._replace(deadline_at=waiting_deadline(record))


def _unique(record: JobRow, given: Any, defaults: JobDefaults, now: datetime) -> JobRow:
    """The record with its unique key and, if it is to be debounced, its start.

    ``given`` is the policy of the request, or ``False`` for none whatever the job type declares.
    """
    extra = record.json("extra")
    if given is False:
        del extra["unique"]
        return record._replace(extra=json.dumps(extra))
    if given is None:
        assert defaults.unique is not None
        policy = defaults.unique
        extra["unique"] = policy.to_wire()
    else:
        policy = parse_unique(given)
    record = record._replace(unique_key=unique_key(policy, record, defaults.parameters))
    if policy.debounce_ms is not None:
        extra["unique"] = {**extra["unique"], DEBOUNCED_SINCE: now.isoformat()}
        if record.scheduled_at is None and record.state == _AVAILABLE:
            start = now + timedelta(milliseconds=policy.debounce_ms)
            record = record._replace(state=State.SCHEDULED.value, scheduled_at=start)
    return record._replace(extra=json.dumps(extra))


def copies_of(
    record: JobRow, ids: Iterable[UUID], args: Iterable[str], steps: Iterable[int] | None = None
) -> list[JobRow]:
    """Records like this one, with their own ids and arguments, and perhaps places in a workflow:
    admission asks for nothing else.
    """
    before, after = record[1:_ARGS], record[_ARGS + 1 : -1]
    make = JobRow._make
    each = repeat(record.workflow_step) if steps is None else steps
    # The shortest wins: ``repeat`` has no end.
    return [
        make((job_id, *before, text, *after, step))
        for job_id, text, step in zip(ids, args, each, strict=False)
    ]


_AVAILABLE = State.AVAILABLE.value
_ARGS = JobRow._fields.index("args")
assert JobRow._fields[-1] == "workflow_step"


def creation_events(record: JobRow) -> tuple[JobEvent, ...]:
    """The events of a new job; a pending one is announced when it is activated."""
    if record.state == State.PENDING:
        return ()
    if record.state == State.SCHEDULED:
        assert record.scheduled_at is not None
        when = format_instant(record.scheduled_at)
        return (job_event(Kind.SCHEDULED, record, scheduled_at=when),)
    more = {} if record.unique_key is None else {"unique_key": record.unique_key}
    return (job_event(Kind.ENQUEUED, record, priority=record.priority, **more),)


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


def _extra(envelope: Envelope, rate_limit: Mapping[str, Any] | None) -> str:
    if rate_limit is not None and (envelope.extra or {}).get("rate_limit") is None:
        envelope = envelope._replace(extra={**(envelope.extra or {}), "rate_limit": rate_limit})
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
