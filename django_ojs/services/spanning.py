"""Keys that would span databases, by what the code and the settings declare (check ``ojs.E019``)."""

from __future__ import annotations

from collections.abc import Iterator

from django_ojs import conf, hooks
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.rate_limit import QUEUE_PREFIX, parse_rate_limit
from django_ojs.services.databases import refuse_shared_keys
from django_ojs.services.job_defaults import queue_of
from django_ojs.services.schedules.declared import declared


def problems() -> Iterator[str]:
    """What is wrong, a sentence each; nothing where there is one database."""
    known = conf.current().databases
    if not known.are_several:
        return
    users: dict[str, dict[str, str]] = {}
    for name, layer in sorted(hooks.job_types().items()):
        if layer.rate_limit is not None:
            key = parse_rate_limit(layer.rate_limit).key
            if not key.startswith(QUEUE_PREFIX):
                users.setdefault(key, {}).setdefault(known.of(queue_of(Envelope(name, "[]"))), name)
    for key, by_alias in users.items():
        if len(by_alias) > 1:
            where = ", ".join(f"{name!r} in {alias!r}" for alias, name in by_alias.items())
            yield f"the rate limit {key!r} has jobs in several databases: those of {where}"
    for spec, _ in declared():
        try:
            refuse_shared_keys(spec.envelope, known.of(queue_of(spec.envelope)))
        except InvalidRequest as error:
            yield f"the schedule {spec.name!r}: {error}"
