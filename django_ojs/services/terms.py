"""What a job gets from its type, its queue and the settings (decision T1)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

from django_ojs import conf, hooks
from django_ojs.conf import Defaults, Settings
from django_ojs.domain.admission import Terms
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.retry import RetryPolicy, parse_policy

_NOTHING = Defaults()
_cache: dict[tuple[str, str | None], tuple[Settings, Defaults | None, Terms]] = {}
_CACHED = 10_000


def terms_for(envelope: Envelope) -> Terms:
    """The terms of one request: request, then job type, then queue, then settings."""
    settings = conf.current()
    declared = hooks.job_type(envelope.type)
    key = (envelope.type, envelope.queue)
    known = _cache.get(key)
    if known is None or known[0] is not settings or known[1] is not declared:
        if len(_cache) >= _CACHED:
            _cache.clear()
        known = _cache[key] = (settings, declared, _resolve(envelope.queue, declared, settings))
    terms = known[2]
    if envelope.retry is None:
        return terms
    policy = parse_policy(envelope.retry, base=_stored_policy(terms.retry))
    return Terms(
        terms.queue,
        terms.priority,
        terms.explicit,
        terms.limits,
        policy.max_attempts,
        json.dumps(policy.to_wire()),
        terms.always_armed,
    )


@lru_cache(maxsize=1024)
def _stored_policy(text: str) -> RetryPolicy:
    return parse_policy(json.loads(text))


def _resolve(asked_queue: str | None, declared: Defaults | None, settings: Settings) -> Terms:
    by_type = declared or _NOTHING
    queue = asked_queue or by_type.queue or settings.queue
    by_queue = settings.queues.get(queue, _NOTHING)
    policy = settings.retry
    for layer in (by_queue, by_type):
        if layer.retry is not None:
            policy = parse_policy(layer.retry, base=policy)
    heartbeat_ms = (
        by_type.limits.heartbeat_timeout_ms
        or by_queue.limits.heartbeat_timeout_ms
        or settings.heartbeat_timeout_ms
    )
    priorities = (by_type.priority, by_queue.priority, settings.priority)
    return Terms(
        queue=queue,
        priority=next(priority for priority in priorities if priority is not None),
        explicit=replace(by_type.limits, heartbeat_timeout_ms=heartbeat_ms),
        limits=by_type.limits.over(by_queue.limits).over(settings.limits),
        max_attempts=policy.max_attempts,
        retry=json.dumps(policy.to_wire()),
        always_armed=settings.strict_timeouts,
    )
