"""Which rate limits a job has: its own, and that of its queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from django_ojs import clock, conf
from django_ojs.domain.job import JobRow
from django_ojs.domain.lru import LRU
from django_ojs.domain.rate_limit import RateLimitPolicy, parse_rate_limit, queue_key

LIMITED = 2
"""The bit of jobs with a rate limit in their ``hooks``."""
BY_QUEUE = 4
"""The bit of those of them that have a place under the limit of their queue."""
BITS = LIMITED | BY_QUEUE
_KNOWN_FOR = 60.0
"""Seconds for which this process takes a queue to be limited that was; a claim takes in the rest."""

_limited_queues: LRU[tuple[str, str], float] = LRU(10_000)


def know_limited(names: Iterable[str], *, using: str) -> None:
    """Remember that there are rate limits for these queues."""
    for name in names:
        _limited_queues.put((using, name), clock.boottime())


def forget_limited() -> None:
    """Forget of every queue that it is limited."""
    _limited_queues.clear()


def of_queue(queue: str) -> RateLimitPolicy | None:
    """The limit that the settings have for a queue."""
    layer = conf.current().queues.get(queue)
    if layer is None or layer.rate_limit is None:
        return None
    return parse_rate_limit(layer.rate_limit, queue=queue)._replace(key=queue_key(queue))


def own(extra: str, queue: str) -> RateLimitPolicy | None:
    """The limit of a job by its stored fields."""
    if '"rate_limit"' not in extra:
        return None
    asked = json.loads(extra).get("rate_limit")
    return None if asked is None else parse_rate_limit(asked, queue=queue)


def keys_of(extra: str, queue: str, *, by_queue: bool) -> list[str]:
    """The keys of a job, in the order in which it needs a place under them."""
    policy = own(extra, queue)
    keys = [] if policy is None else [policy.key]
    if by_queue and queue_key(queue) not in keys:
        keys.append(queue_key(queue))
    return keys


def marked(records: list[JobRow], *, using: str) -> list[JobRow]:
    """New records, with those that a rate limit holds marked as such.

    Raises :class:`InvalidRequest` for the key of another queue's limit.
    """
    limited = {queue for queue in {record.queue for record in records} if is_limited(queue, using)}
    if not limited and not any('"rate_limit"' in record.extra for record in records):
        return records
    return [_marked(record, record.queue in limited) for record in records]


def is_limited(queue: str, using: str) -> bool:
    """Whether there is a rate limit for the queue, as far as this process knows."""
    if of_queue(queue) is not None:
        return True
    since = _limited_queues.get((using, queue))
    return since is not None and clock.boottime() - since < _KNOWN_FOR


def _marked(record: JobRow, by_queue: bool) -> JobRow:
    policy = own(record.extra, record.queue)
    by_queue = by_queue or (policy is not None and policy.key == queue_key(record.queue))
    if policy is None and not by_queue:
        return record
    bits = LIMITED | (BY_QUEUE if by_queue else 0)
    return record._replace(hooks=record.hooks | bits, held=True)


def asked(records: Sequence[JobRow]) -> dict[str, RateLimitPolicy | None]:
    """The keys of new records, each with the policy that came last, if one came with them."""
    found: dict[str, RateLimitPolicy | None] = {}
    for record in records:
        policy = own(record.extra, record.queue)
        if policy is not None:
            found[policy.key] = policy
        if record.hooks & BY_QUEUE:
            key = queue_key(record.queue)
            if found.get(key) is None:
                found[key] = of_queue(record.queue)
    return found
