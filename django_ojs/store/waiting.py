"""How many jobs wait in queues and for how long, counted in ranges of the index of claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django_ojs.domain import histogram
from django_ojs.domain.states import State
from django_ojs.models import Job, RateLimitPlace
from django_ojs.store.columns import ColumnType
from django_ojs.store.dialect import cursor, dialect

_AT_ONCE = 200
"""Queues in one statement: SQLite puts at most 500 selections together."""
_JOBS = Job._meta.db_table
_PLACES = RateLimitPlace._meta.db_table
_WAITING = RateLimitPlace.Status.WAITING.value


@dataclass(slots=True)
class WaitingJobs:
    """The available jobs of a queue, those that a rate limit holds among them.

    ``ages`` is a histogram of how long they have waited. With ``capped`` there may be more.
    """

    count: int = 0
    capped: bool = False
    oldest: datetime | None = None
    ages: list[int] = field(default_factory=histogram.empty)

    def add(self, place: int, count: int, oldest: datetime) -> None:
        """Count jobs of one bucket."""
        self.count += count
        self.ages[place] += count
        self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)


def waiting(caps: Mapping[str, int], *, held: int, now: datetime, using: str) -> dict[str, WaitingJobs]:
    """Count the available jobs of queues, up to the cap of each in the order of claims, and those that
    rate limits hold up to ``held`` in all. Every queue is in the answer.
    """
    found = {queue: WaitingJobs() for queue in caps}
    jobs = f"{_JOBS}{dialect(using).by_index('ojs_job_claim')}"
    for part in _parts(caps):
        sources = [
            f"SELECT queue, enqueued_at FROM (SELECT queue, enqueued_at FROM {jobs}"
            f" WHERE state = '{State.AVAILABLE}' AND NOT held AND queue = %s"
            f" ORDER BY priority DESC, enqueued_at, id LIMIT %s) q{number}"
            for number in range(len(part))
        ]
        counted = _count(sources, [value for pair in part.items() for value in pair], now, using)
        for queue, place, count, oldest in counted:
            found[queue].add(place, count, oldest)
    for queue, cap in caps.items():
        found[queue].capped = found[queue].count >= cap
    places = (
        f"SELECT queue, enqueued_at FROM (SELECT queue, enqueued_at FROM {_PLACES}"
        f" WHERE status = {_WAITING} LIMIT %s) h"
    )
    for queue, place, count, oldest in _count([places], [held], now, using):
        if queue in found:
            found[queue].add(place, count, oldest)
    return found


def _parts(caps: Mapping[str, int]) -> Iterator[dict[str, int]]:
    rest = iter(caps.items())
    while part := dict(islice(rest, _AT_ONCE)):
        yield part


def _count(
    sources: list[str], parameters: list[Any], now: datetime, using: str
) -> Iterator[tuple[str, int, int, datetime]]:
    """The rows of the sources by queue and bucket of their age."""
    sql = dialect(using)
    # The oldest first: most of a long backlog is old.
    bounds = list(enumerate(histogram.BUCKETS))[::-1]
    cases = " ".join(f"WHEN enqueued_at < %s THEN {place + 1}" for place, _bound in bounds)
    moments = [sql.bind(ColumnType.TIME, now - timedelta(milliseconds=ms)) for _, ms in bounds]
    with cursor(using) as cur:
        cur.execute(
            f"SELECT queue, CASE {cases} ELSE 0 END AS place, COUNT(*), MIN(enqueued_at)"
            f" FROM ({' UNION ALL '.join(sources)}) w GROUP BY queue, place",
            [*moments, *parameters],
        )
        rows = cur.fetchall()
    for queue, place, count, oldest in rows:
        yield queue, int(place), int(count), sql.decode(ColumnType.TIME, oldest)
