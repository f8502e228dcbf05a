"""The defaults of a job from its type, its queue and the settings (decision T1)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from django_ojs import conf, hooks
from django_ojs.conf import DefaultsLayer, Settings
from django_ojs.domain.admission import JobDefaults
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.kept import NOT_BUILT
from django_ojs.domain.retry import RetryPolicy, parse_policy, to_stored
from django_ojs.domain.unique import UniquePolicy, parse_unique

_NOTHING = DefaultsLayer()


class _Resolved(NamedTuple):
    settings: Settings
    declared: DefaultsLayer | None
    policy: RetryPolicy
    """As configured, before the initial interval is capped by the longest one."""
    defaults: JobDefaults


_cache: dict[tuple[str, str | None], _Resolved] = {}
_CACHED = 10_000


def resolve_defaults(envelope: Envelope) -> JobDefaults:
    """The defaults for one request: from the request, then job type, then queue, then settings."""
    known = _known(envelope.type, envelope.queue)
    if envelope.retry is None:
        return known.defaults
    policy = _asked(envelope, known).capped()
    return replace(known.defaults, max_attempts=policy.max_attempts, retry=to_stored(policy))


def queue_of(envelope: Envelope) -> str:
    """The queue of the job that a request asks for."""
    return _known(envelope.type, envelope.queue).defaults.queue


def is_unique(envelope: Envelope) -> bool:
    """Whether the request, or its job type, has a policy that makes the job unique."""
    return unique_policy(envelope) is not None


def unique_policy(envelope: Envelope) -> UniquePolicy | None:
    """The policy of the request, or of its job type, that makes the job unique."""
    given = None if envelope.extra is None else envelope.extra.get("unique")
    if given is None:
        return _known(envelope.type, envelope.queue).defaults.unique
    return None if given is False else parse_unique(given)


def without_type_policy(envelope: Envelope) -> Envelope:
    """The request of a job that is unique only if the request itself says so, not by its job type."""
    given = None if envelope.extra is None else envelope.extra.get("unique")
    if given is not None or not is_unique(envelope):
        return envelope
    return envelope._replace(extra={**(envelope.extra or {}), "unique": False})


def warnings_about(envelope: Envelope) -> list[dict[str, str]]:
    """What the request asks for and does not get: field and message of each."""
    extra = envelope.extra or {}
    warnings = [
        {"field": name, "message": message}
        for name, message in NOT_BUILT.items()
        if extra.get(name) is not None
    ]
    if envelope.retry is not None:
        found = _asked(envelope, _known(envelope.type, envelope.queue)).contradiction()
        if found is not None:
            warnings.append({"field": "retry.initial_interval", "message": found})
    return warnings


def policy_of(job_type: str | None, queue: str | None = None) -> RetryPolicy:
    """The retry policy of a job type, or of a queue, without a request."""
    settings = conf.current()
    return _policy(None if job_type is None else hooks.job_type(job_type), queue, settings)


def stops_on_partition(job_type: str, queue: str) -> bool:
    """Whether a worker stops such jobs itself when no heartbeat arrives (``on_partition``)."""
    settings = conf.current()
    by_type = hooks.job_type(job_type) or _NOTHING
    by_queue = settings.queues.get(queue, _NOTHING)
    return (by_type.on_partition or by_queue.on_partition or settings.on_partition) == "stop"


def _asked(envelope: Envelope, known: _Resolved) -> RetryPolicy:
    return parse_policy(envelope.retry, base=known.policy)


def _known(job_type: str, queue: str | None) -> _Resolved:
    settings = conf.current()
    declared = hooks.job_type(job_type)
    known = _cache.get((job_type, queue))
    if known is None or known.settings is not settings or known.declared is not declared:
        if len(_cache) >= _CACHED:
            _cache.clear()
        policy = _policy(declared, queue, settings)
        defaults = _resolve(queue, declared, settings, policy.capped())
        known = _cache[job_type, queue] = _Resolved(settings, declared, policy, defaults)
    return known


def _queue(asked: str | None, declared: DefaultsLayer | None, settings: Settings) -> str:
    return asked or (declared or _NOTHING).queue or settings.queue


def _policy(declared: DefaultsLayer | None, asked_queue: str | None, settings: Settings) -> RetryPolicy:
    by_queue = settings.queues.get(_queue(asked_queue, declared, settings), _NOTHING)
    policy = settings.retry
    for layer in (by_queue, declared or _NOTHING):
        if layer.retry is not None:
            policy = parse_policy(layer.retry, base=policy)
    return policy


def _resolve(
    asked_queue: str | None, declared: DefaultsLayer | None, settings: Settings, policy: RetryPolicy
) -> JobDefaults:
    by_type = declared or _NOTHING
    queue = _queue(asked_queue, declared, settings)
    by_queue = settings.queues.get(queue, _NOTHING)
    heartbeat_ms = (
        by_type.limits.heartbeat_timeout_ms
        or by_queue.limits.heartbeat_timeout_ms
        or settings.heartbeat_timeout_ms
    )
    priorities = (by_type.priority, by_queue.priority, settings.priority)
    return JobDefaults(
        queue=queue,
        priority=next(priority for priority in priorities if priority is not None),
        explicit=replace(by_type.limits, heartbeat_timeout_ms=heartbeat_ms),
        limits=by_type.limits.over(by_queue.limits).over(settings.limits),
        max_attempts=policy.max_attempts,
        retry=to_stored(policy),
        always_armed=settings.strict_timeouts,
        rate_limit=by_type.rate_limit,
        unique=by_type.unique,
        parameters=by_type.parameters,
    )
