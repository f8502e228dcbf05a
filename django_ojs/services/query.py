"""Find jobs by what operators ask for: a page of them, how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self, TypedDict
from uuid import UUID

from django.db.models import QuerySet

from django_ojs import clock, conf
from django_ojs.domain.durations import parse_past
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.ids import parse_uuid7, uuid7
from django_ojs.domain.job import JobRow
from django_ojs.domain.jsonvalue import check_text
from django_ojs.domain.names import check_job_type, check_queue_name
from django_ojs.domain.states import State
from django_ojs.domain.suggestions import did_you_mean
from django_ojs.models import Job
from django_ojs.services.stream import any_of
from django_ojs.store import selectors

MOST = 1000
"""The jobs of one page."""
Moment = datetime | timedelta | str


class JobFilters(TypedDict, total=False):
    """The filters of :class:`JobQuery` as a caller writes them; ``None`` is left out, and an empty list
    matches no job.
    """

    state: str | Sequence[str] | None
    queue: str | Sequence[str] | None
    type: str | Sequence[str] | None
    worker_id: str | None
    error_type: str | None
    dead_letter: bool | None
    workflow_id: UUID | str | None
    since: Moment | None
    until: Moment | None


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs: all conditions that are not ``None`` hold. Made by :meth:`of`, which checks them."""

    state: Sequence[str] | None = None
    queue: Sequence[str] | None = None
    type: Sequence[str] | None = None
    worker_id: str | None = None
    error_type: str | None = None
    dead_letter: bool | None = None
    workflow_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, *, using: str, **given: Any) -> Self:
        """The query for these filters; those that are ``None`` are left out.

        Raises :class:`InvalidRequest` naming a filter with a wrong value, ``TypeError`` for an unknown
        one.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"unknown filter {name!r}: {did_you_mean(name, known, 'filters')}")
        read: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        for name in ("state", "queue", "type"):
            if name in read:
                read[name] = tuple(_words(name, read[name]))
        for name in ("worker_id", "error_type"):
            check_text(read.get(name, ""), name)
        if not isinstance(read.get("dead_letter", True), bool):
            raise InvalidRequest("dead_letter", "must be true or false")
        if "workflow_id" in read:
            read["workflow_id"] = parse_uuid7(read["workflow_id"], "workflow_id")
        for name in ("since", "until"):
            if name in read:
                read[name] = parse_past(read[name], name, clock.now(using))
        return cls(**read)

    def rows(self, using: str) -> QuerySet[Job]:
        """Their rows, without an order."""
        rows = Job.objects.using(using)
        if self.state is not None:
            rows = rows.filter(state__in=self.state)
        if self.queue is not None:
            rows = rows.filter(any_of("queue", self.queue))
        if self.type is not None:
            rows = rows.filter(any_of("type", self.type))
        plain = {
            "worker_id": self.worker_id,
            "error__type": self.error_type,
            "dead_letter": self.dead_letter,
            "workflow_id": self.workflow_id,
            "pk__gte": _first_id(self.since),
            "pk__lt": _first_id(self.until),
        }
        return rows.filter(**{name: value for name, value in plain.items() if value is not None})


def page(
    query: JobQuery,
    *,
    limit: int = 100,
    after: UUID | None = None,
    oldest_first: bool = False,
    using: str | None = None,
) -> list[JobRow]:
    """Up to ``limit`` jobs, the newest first: those made before the job ``after``, in a stable order.

    ``oldest_first`` turns the order round. Raises :class:`InvalidRequest` for a limit that is not
    from 1 to 1,000.
    """
    using = using or conf.current().database
    if not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise InvalidRequest("limit", f"must be an integer from 1 to {MOST}")
    rows = query.rows(using)
    if after is not None:
        rows = rows.filter(pk__gt=after) if oldest_first else rows.filter(pk__lt=after)
    ids = list(rows.order_by("pk" if oldest_first else "-pk").values_list("pk", flat=True)[:limit])
    found = selectors.jobs(ids, using=using)
    return [found[job_id] for job_id in ids if job_id in found]


def count(query: JobQuery, *, using: str | None = None) -> int:
    """How many there are, counted up to 10,000 and no further."""
    return selectors.capped(query.rows(using or conf.current().database))


def _words(name: str, value: Any) -> Iterator[str]:
    """One word or several; queues and types may be prefixes that end in ``*``."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InvalidRequest(name, "must be text, or a list of texts")
    for word in words:
        if name == "state":
            if word not in {str(state) for state in State}:
                raise InvalidRequest(name, f"must be out of {', '.join(State)}, not {word!r}")
        elif word != "*":
            check = check_queue_name if name == "queue" else check_job_type
            check(word.removesuffix("*").rstrip(".-_") if word.endswith("*") else word, name)
        yield str(word)


def _first_id(moment: datetime | None) -> UUID | None:
    return None if moment is None else uuid7(int(moment.timestamp() * 1000), 0)
