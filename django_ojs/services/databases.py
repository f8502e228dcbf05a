"""Queues on several databases: where the jobs of a call go, and which database has a job (ADR 44).

With one database, which is the rule, nothing here costs a statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections

from django_ojs import clock, conf, hooks
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.names import queue_name
from django_ojs.domain.rate_limit import QUEUE_PREFIX, parse_rate_limit, queue_key
from django_ojs.domain.unique import parse_unique
from django_ojs.models import Job, RateLimit, Schedule, Workflow
from django_ojs.services.job_defaults import queue_of, resolve_defaults

_REST_S = 10
"""A database that did not answer is asked last for so long: each attempt may take its timeout."""
_silent_since: dict[str, float] = {}


def of_call(job_type: object, queue: object = None) -> str:
    """The database of the job that a call asks for; the default one where the call is not valid, which
    is found out later.
    """
    known = conf.current().databases
    if not known.are_several or not isinstance(job_type, str) or not isinstance(queue, str | None):
        return known.default
    return known.of(queue_of(Envelope(job_type, "[]", queue=queue)))


def of_envelopes(envelopes: Sequence[Envelope]) -> str:
    """The database of the jobs. Raises :class:`InvalidRequest` where there are several: all of the jobs
    or none can be stored in one only; and as :func:`refuse_shared_keys`.
    """
    known = conf.current().databases
    if not known.are_several or not envelopes:
        return known.default
    found = [known.of(queue_of(envelope)) for envelope in envelopes]
    for index, alias in enumerate(found):
        if alias != found[0]:
            raise InvalidRequest(
                f"jobs[{index}].queue",
                f"is in the database {alias!r}, that of jobs[0] in {found[0]!r}: jobs that are "
                "enqueued together must be in one database",
            )
        refuse_shared_keys(envelopes[index], alias)
    return found[0]


def refuse_shared_keys(envelope: Envelope, using: str, *, step: bool = False) -> None:
    """Raise :class:`InvalidRequest` for a unique key or rate limit that jobs in another database have.

    A key holds in one database. That of a job type is the one of the queue which its jobs get when none
    is named; elsewhere the key has to be that of the queue. The key of a rate limit that job types
    declare is in their databases, whichever job names it. What a type declares as unique does not
    hold for a ``step`` of a workflow.
    """
    known = conf.current().databases
    if not known.are_several:
        return
    extra = envelope.extra or {}
    if (asked := extra.get("rate_limit")) is not None:
        _refuse_declared_elsewhere(parse_rate_limit(asked).key, using)
    if (home := known.of(queue_of(envelope._replace(queue=None)))) == using:
        return
    defaults = resolve_defaults(envelope)
    why = (
        f"the queue {defaults.queue!r} is in the database {using!r}, other jobs of the type "
        f"{envelope.type!r} in {home!r}, and a key cannot span databases"
    )
    given: Any = extra.get("unique")
    if given is None:
        unique = None if step else defaults.unique
    else:
        unique = None if given is False else parse_unique(given)
    if unique is not None and (unique.key is not None or "queue" not in unique.keys):
        raise InvalidRequest("unique", f"must have 'queue' among its keys: {why}")
    limit = extra.get("rate_limit") or defaults.rate_limit
    if limit is not None:
        key = parse_rate_limit(limit, queue=defaults.queue).key
        if key != queue_key(defaults.queue):
            raise InvalidRequest("rate_limit.key", f"must be left out: {why}")


def _refuse_declared_elsewhere(key: str, using: str) -> None:
    """Raise :class:`InvalidRequest` for the key of a rate limit that job types declare, none of which
    is in ``using``.
    """
    if key.startswith(QUEUE_PREFIX):
        return
    declaring = declaring_types(key)
    if declaring and using not in declaring:
        home, name = next(iter(declaring.items()))
        raise InvalidRequest(
            "rate_limit.key",
            f"{key!r} is that of the job type {name!r} in the database {home!r}, this job is in "
            f"{using!r}, and a key cannot span databases",
        )


def declaring_types(key: str) -> dict[str, str]:
    """The databases in which job types declare the key of a rate limit, with one such type each."""
    known, found = conf.current().databases, dict[str, str]()
    for name, layer in hooks.job_types().items():
        if layer.rate_limit is not None and layer.rate_limit.get("key") == key:
            found.setdefault(known.of(queue_of(Envelope(name, "[]"))), name)
    return found


def refuse_elsewhere(queue: str, using: str, what: str, field: str = "queue") -> None:
    """Raise :class:`InvalidRequest` for a queue that is in another database than ``what``."""
    known = conf.current().databases
    if known.are_several and (alias := known.of(queue)) != using:
        raise InvalidRequest(
            field, f"{queue!r} is in the database {alias!r}, {what} in {using!r}: it cannot span both"
        )


def by_database(queues: Iterable[str]) -> dict[str, list[str]]:
    """The queues of each database. Raises :class:`InvalidRequest` for one that is no list of names."""
    known, found = conf.current().databases, dict[str, list[str]]()
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise InvalidRequest("names", "must be a list of names of queues")
    for queue in queues:
        queue_name(queue, "queue")
        found.setdefault(known.of(queue), []).append(queue)
    return found


def of_filter(queues: str | Sequence[str] | None, alias: str | None = None) -> str:
    """The database that a list of jobs is read from: ``alias``, or that of its queues, which may end in
    ``*``; of no queues the current one. Raises :class:`InvalidRequest` where there are several, and for
    an alias that is none.
    """
    if alias is not None:
        if not isinstance(alias, str) or alias not in connections:
            raise InvalidRequest("database", f"there is no database {alias!r} in DATABASES")
        return alias
    settings = conf.current()
    names = [queues] if isinstance(queues, str) else queues or []
    if not settings.databases.are_several:
        return settings.database
    found = sorted({alias for name in names for alias in settings.databases.matching(str(name))})
    if len(found) > 1:
        raise InvalidRequest("queue", f"names queues in several databases: {', '.join(found)}")
    return found[0] if found else settings.database


def of_job(job_id: UUID) -> str:
    """The database that has the job, asked in turn; the current one if none has. A database that does
    not answer hides no job of another: its error is raised only if no other has the job.
    """
    return _holding(Job, job_id)


def of_workflow(workflow_id: UUID) -> str:
    """As :func:`of_job`, of a workflow."""
    return _holding(Workflow, workflow_id)


def of_schedule(name: str) -> str:
    """As :func:`of_job`, of a schedule."""
    return _holding(Schedule, name)


def of_rate_limit(key: str) -> str:
    """The database in which a rate limit counts: that of its queue, or of the job types that declare
    its key, else as :func:`of_job`.
    """
    known = conf.current().databases
    if not known.are_several:
        return conf.current().database
    if key.startswith(QUEUE_PREFIX):
        return known.of(key.removeprefix(QUEUE_PREFIX))
    declaring = declaring_types(key)
    return next(iter(declaring)) if len(declaring) == 1 else _holding(RateLimit, key)


def _holding(model: type[Job | Workflow | Schedule | RateLimit], key: UUID | str) -> str:
    settings = conf.current()
    aliases = settings.databases.aliases
    if len(aliases) == 1:
        return settings.database
    failed: Exception | None = None
    for alias in sorted(dict.fromkeys((settings.database, *aliases)), key=_is_silent):
        try:
            if model.objects.using(alias).filter(pk=key).exists():
                return alias
        except (OperationalError, InterfaceError) as error:
            _silent_since[alias] = clock.boottime()
            error.add_note(f"the database {alias!r} was asked")
            failed = failed or error
    if failed is not None:
        raise failed
    return settings.database


def _is_silent(alias: str) -> bool:
    since = _silent_since.get(alias)
    return since is not None and 0 <= clock.boottime() - since < _REST_S
