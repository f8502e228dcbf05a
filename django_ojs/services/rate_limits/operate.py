"""What operators and handlers ask of a rate limit: an override, a time without starts, their end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidRequest, NotFound
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobEvent
from django_ojs.domain.rate_limit import check_key, parse_rate_limit
from django_ojs.models import RateLimit
from django_ojs.services import audit
from django_ojs.services.commit import publish
from django_ojs.services.rate_limits import admission, policies
from django_ojs.store import selectors
from django_ojs.store.contention import in_transaction

API = Actor()


@in_transaction
def override(
    key: str,
    limits: Mapping[str, Any],
    *,
    until: datetime | None = None,
    actor: Actor = API,
    using: str = "",
) -> RateLimit:
    """Set limits of a key that win over those of its jobs, until a time or for good.

    ``limits`` are those of OJS rate limiting 6, without the key; what it leaves out stays as jobs ask.
    The key ``queue:<name>`` limits a queue. Jobs that run keep their places; of those let in that
    have not started, as many wait again as are too many now. Raises :class:`InvalidRequest`.
    """
    check_key(key)
    policy = parse_rate_limit(limits, field="limits", named=False)
    now = clock.now(using)
    if until is not None and until <= now:
        raise InvalidRequest("expires_at", "must be in the future")
    row = admission.lock(key, using)
    admission.limit_queue_of(key, using)
    row.override, row.override_until, row.override_by = policy.limits(), until, actor.name
    row.save(using=using)
    _changed(key, now, using)
    ends = None if until is None else until.isoformat()
    target = ("ratelimit", key)
    audit.note(
        "rate_limit.overridden", actor, target=target, limits=row.override, until=ends, using=using
    )
    return row


@in_transaction
def clear_override(key: str, *, actor: Actor = API, using: str = "") -> RateLimit:
    """Let the limits of the jobs hold again, and jobs start that a :func:`block` holds.

    Raises :class:`NotFound` for a key that was never used.
    """
    row = admission.locked(key, using)
    if row is None:
        raise no_rate_limit(key)
    if row.override is not None or row.blocked_until is not None:
        row.override, row.override_until, row.override_by = None, None, ""
        row.blocked_until = None
        row.save(using=using)
        if not row.policy:
            admission.free_queue_of(key, using)
        _changed(key, clock.now(using), using)
        audit.note("rate_limit.restored", actor, target=("ratelimit", key), using=using)
    return row


@in_transaction
def block(key: str, until: datetime, *, reason: str = "", using: str = "") -> None:
    """Let nobody start under this key before a time: what it stands for has asked for that.

    Jobs that have been let in and have not started wait again (OJS rate limiting 9.1).
    """
    now = clock.now(using)
    if until <= now:
        return
    row = admission.lock(key, using)
    if row.blocked_until is None or row.blocked_until < until:
        row.blocked_until = until
        row.save(using=using)
        _changed(key, now, using)
        data = {"key": key, "until": format_instant(until), "reason": reason}
        publish([JobEvent(Kind.RATE_LIMIT_DYNAMIC_ADJUSTED, data)], now=now, using=using)


def block_of(job_id: UUID, until: datetime, *, reason: str = "", using: str) -> None:
    """:func:`block` the rate limit that a job has; nothing for one that has none."""
    found = selectors.jobs([job_id], using=using).get(job_id)
    policy = None if found is None else policies.own(found.extra, found.queue)
    if policy is not None:
        block(policy.key, until, reason=reason, using=using)


def no_rate_limit(key: str) -> NotFound:
    """The error for a key that was never used."""
    return NotFound(f"no job has had the rate limit {key!r}", key=key)


def _changed(key: str, now: datetime, using: str) -> None:
    admission.changed({key: None}, now=now, using=using)
