"""Keys that would span the databases of queues: by what the code and the settings declare (check
``ojs.E019``), and by what jobs have brought (``ojs status``, ``ojs check``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from django.db import Error

from django_ojs import clock, conf, hooks
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.rate_limit import QUEUE_PREFIX, parse_rate_limit
from django_ojs.models import RateLimit
from django_ojs.services.databases import refuse_shared_keys
from django_ojs.services.job_defaults import queue_of
from django_ojs.services.schedules.declared import declared
from django_ojs.store.sessions import connect_timeout

_USED_WITHIN = timedelta(hours=2)
"""A key that is in use has its time of use noted at least once an hour."""
_MOST = 1000
_AT_ONCE = 200


def problems() -> Iterator[str]:
    """What is wrong, a sentence each; nothing where there is one database."""
    known = conf.current().databases
    if not known.are_several:
        return
    users: dict[str, dict[str, str]] = {}
    for name, layer in sorted(hooks.job_types().items()):
        if layer.rate_limit is not None:
            key = parse_rate_limit(layer.rate_limit).key
            users.setdefault(key, {}).setdefault(known.of(queue_of(Envelope(name, "[]"))), repr(name))
    of_types, refused = set(users), []
    for spec, _ in declared():
        alias = known.of(queue_of(spec.envelope))
        try:
            refuse_shared_keys(spec.envelope, alias)
        except InvalidRequest as error:
            refused.append(f"the schedule {spec.name!r}: {error}")
            continue
        if (limit := (spec.envelope.extra or {}).get("rate_limit")) is not None:
            key = parse_rate_limit(limit).key
            if key not in of_types:
                users.setdefault(key, {}).setdefault(alias, f"the schedule {spec.name!r}")
    for key, by_alias in users.items():
        if len(by_alias) > 1 and not key.startswith(QUEUE_PREFIX):
            where = ", ".join(f"{name} in {alias!r}" for alias, name in by_alias.items())
            yield f"the rate limit {key!r} has jobs in several databases: those of {where}"
    yield from refused


def counted_twice(using: str) -> Mapping[str, Sequence[str]]:
    """The keys of rate limits under which jobs of ``using``, and of other databases, were counted in
    the last hour or two, each with these databases; those of the 1,000 last used are looked at.

    A database that does not answer within seconds, or does not have our tables, is left out. One
    statement in each, none where there is one database.
    """
    known = conf.current().databases
    if not known.are_several:
        return {}
    found = {key: [using] for key in _in_use(using)}
    for alias in known.aliases:
        if alias == using:
            continue
        with connect_timeout(alias), suppress(Error, OSError):
            for key in _in_use(alias, list(found)):
                found[key].append(alias)
    return {key: sorted(aliases) for key, aliases in sorted(found.items()) if len(aliases) > 1}


def _in_use(using: str, among: Sequence[str] | None = None) -> list[str]:
    """The keys, out of these, that jobs have brought and that were used lately; the last used first."""
    since = clock.now(using) - _USED_WITHIN
    rows = RateLimit.objects.using(using).filter(used_at__gt=since)
    if among is None:
        rows = rows.exclude(key__startswith=QUEUE_PREFIX).order_by("-used_at")
        parts = [rows[:_MOST]]
    else:
        starts = range(0, len(among), _AT_ONCE)
        parts = [rows.filter(pk__in=among[start : start + _AT_ONCE]) for start in starts]
    return [key for part in parts for key, policy in part.values_list("key", "policy") if policy]
