"""Find the jobs that a test has enqueued."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_ojs import clock, conf
from django_ojs.domain.arguments import split
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.job import JobRow
from django_ojs.domain.job_record import JobRecord, shown
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.states import State
from django_ojs.domain.suggestions import did_you_mean
from django_ojs.handlers import registry
from django_ojs.models import Job
from django_ojs.store import selectors
from django_ojs.testing import recorded
from django_ojs.testing.job_types import type_of
from django_ojs.testing.reach import databases_of

Predicate = Callable[[Any], object]
_CLOSE = timedelta(seconds=1)
_FIELDS = (
    *("args", "kwargs", "queue", "priority", "meta", "tags", "scheduled_at", "scheduled_in", "state"),
)


class Difference(NamedTuple):
    """A field of a job that is not as expected."""

    field: str
    wanted: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a job is compared with; ``None`` compares nothing."""

    type: str | None = None
    args: Sequence[Any] | Predicate | None = None
    kwargs: Mapping[str, Any] | Predicate | None = None
    queue: str | None = None
    priority: int | None = None
    meta: Mapping[str, Any] | None = None
    tags: Iterable[str] | None = None
    scheduled_at: datetime | None = None
    state: str | None = None

    def differences(self, job: JobRow) -> list[Difference]:
        """What is not as expected; empty for a match."""
        return list(self._differences(job))

    def _differences(self, job: JobRow) -> Iterator[Difference]:
        for name in ("type", "queue", "priority", "state"):
            wanted = getattr(self, name)
            if wanted is not None and wanted != getattr(job, name):
                yield Difference(name, wanted, getattr(job, name))
        args, _ = split(job.json("args"), job.json("meta"))
        if self.args is not None and not _fits(self.args, args):
            yield Difference("args", self.args, args)
        if self.kwargs is not None:
            yield from self._named(by_name(job))
        if self.meta is not None:
            meta = job.json("meta")
            wanted = _plain(self.meta)
            if any(key not in meta or meta[key] != value for key, value in wanted.items()):
                yield Difference("meta", dict(self.meta), meta)
        if self.tags is not None:
            tags = job.json("tags")
            if not set(self.tags) <= set(tags):
                yield Difference("tags", list(self.tags), tags)
        if self.scheduled_at is not None and not _about(self.scheduled_at, job.scheduled_at):
            yield Difference("scheduled_at", self.scheduled_at, job.scheduled_at)

    def _named(self, found: Mapping[str, Any]) -> Iterator[Difference]:
        if callable(self.kwargs):
            if not self.kwargs(found):
                yield Difference("kwargs", self.kwargs, found)
            return
        for name, value in _plain(self.kwargs).items():
            if name not in found or found[name] != value:
                yield Difference("kwargs", self.kwargs, found)
                return

    def __str__(self) -> str:
        """As in the message of an assertion."""
        fields = ("args", "kwargs", "queue", "priority", "meta", "tags", "scheduled_at", "state")
        given = [(name, getattr(self, name)) for name in fields]
        shown = ", ".join(f"{name}={show(value)}" for name, value in given if value is not None)
        return " with ".join(part for part in (self.type or "any type", shown) if part)


def pattern(
    job: Any = None,
    *,
    scheduled_in: int | str | timedelta | None = None,
    tags: Iterable[str] | None = None,
    **fields: Any,
) -> Pattern:
    """Read what an assertion was given. Raises ``TypeError`` for an unknown field, ``ValueError`` for a
    state that there is not, :class:`InvalidRequest` for what is no name of a queue.
    """
    if scheduled_in is not None:
        if fields.get("scheduled_at") is not None:
            raise TypeError("scheduled_at excludes scheduled_in")
        ms = parse_seconds_ms(scheduled_in, "scheduled_in", allow_zero=True)
        fields["scheduled_at"] = _now() + timedelta(milliseconds=ms)
    if isinstance(tags, str):
        tags = [tags]
    for name in fields:
        if name not in _FIELDS:
            raise TypeError(f"unknown field {name!r}: {did_you_mean(name, _FIELDS, 'fields')}")
    if fields.get("queue") is not None:
        check_queue_name(fields["queue"], "queue")
    state = fields.get("state")
    states = [str(one) for one in State]
    if state is not None and state not in states:
        raise ValueError(f"state: {did_you_mean(str(state), states, 'states')}")
    return Pattern(None if job is None else type_of(job), tags=tags, **fields)


def _now() -> datetime:
    recording = recorded.jobs() is not None
    return clock.now(conf.current().database if recording else databases_of("scheduled_in")[0])


def enqueued(job: Any = None, *, using: str | None = None, **fields: Any) -> list[JobRecord]:
    """The jobs that are stored and match, in the order in which they were enqueued.

    A job counts whatever has become of it; ``state`` says which ones. Fields that are left out are
    not compared. ``job`` is a handler, a task or a job type; ``args`` the list of arguments as stored
    (those by keyword are stored by position where that is possible), or a function that gets it;
    ``kwargs`` arguments by name, however they were given, as far as they are named, or a function;
    ``queue`` and ``priority``; ``meta`` and ``tags`` are parts of what the job has; ``scheduled_at``
    or ``scheduled_in`` (seconds, ``timedelta``, ``"1h"``) within a second. Where queues are on several
    databases all of them are looked at that the test may use, or ``using`` alone. Raises ``TypeError``
    for another field, ``ValueError`` for another state, and ``RuntimeError`` for a database, or the
    queue of one, that the test may not use.
    """
    wanted = pattern(job, **fields)
    jobs = all_jobs("enqueued()", using, wanted)
    return shown(one for one in jobs if not wanted.differences(one))


def all_jobs(what: str, using: str | None, wanted: Pattern) -> list[JobRow]:
    """Every job, in the order in which they were enqueued."""
    if (jobs := recorded.jobs()) is not None:
        return jobs
    if using is None and wanted.queue is not None:
        databases_of(what, queues=[wanted.queue])
    found = [job for alias in databases_of(what, using=using) for job in _stored(alias)]
    return sorted(found, key=lambda job: (job.created_at, job.id))


def _stored(using: str) -> Iterable[JobRow]:
    ids = list(Job.objects.using(using).values_list("id", flat=True))
    return selectors.jobs(ids, using=using).values()


def by_name(job: JobRow) -> dict[str, Any]:
    """The arguments of a job by the names that its handler has for them."""
    args, kwargs = split(job.json("args"), job.json("meta"))
    handler = registry.handler_of(job.type)
    if handler is None:
        return kwargs
    try:
        bound = handler._signature.bind_partial(*args, **kwargs)
    except TypeError:
        return kwargs
    found = dict(bound.arguments)
    for parameter in handler._signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name, {})
    return found


def show(value: Any) -> str:
    """A value as in the message of an assertion."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return getattr(value, "__name__", "a function") if callable(value) else repr(value)


def _fits(wanted: Sequence[Any] | Predicate, found: list[Any]) -> bool:
    if callable(wanted):
        return bool(wanted(found))
    return bool(_plain(list(wanted)) == found)


def _plain(value: Any) -> Any:
    """A value as it is read from JSON, where it can be written: tuples are lists then."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return value


def _about(wanted: datetime, found: datetime | None) -> bool:
    return found is not None and abs(found - wanted) <= _CLOSE
