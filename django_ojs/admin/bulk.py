"""Bulk work, page by page: what the job ``ojs.admin.bulk`` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from django_ojs import conf
from django_ojs.admin import search
from django_ojs.admin.operations import CHUNK, runner
from django_ojs.admin.tabs import Tab
from django_ojs.domain.job import Actor
from django_ojs.models import Job
from django_ojs.services import bulk
from django_ojs.services.bulk import MOST, Filter


def matching(narrowed: Filter, using: str) -> QuerySet[Job]:
    """The jobs that a list shows under this filter. The work itself is never among them."""
    tab = Tab(narrowed.state, narrowed.lens, narrowed.dead_letter)
    jobs: QuerySet[Job] = Job.objects.using(using).exclude(queue=bulk.QUEUE)
    rows: QuerySet[Job] = tab.rows(jobs, using)
    reading = tab.condition
    if narrowed.queue:
        reading &= Q(queue=narrowed.queue)
    if narrowed.search:
        asked = search.parse(narrowed.search)
        if asked.unknown:
            return rows.none()
        rows = rows.alias(**asked.places)
        reading &= asked.windowed
        if asked.ids:
            return rows.filter(asked.ids, reading)
    if not reading:
        return rows
    return rows.filter(tab.window(using), reading)


def size(narrowed: Mapping[str, Any], *, before: str) -> int:
    """How many jobs made before the id ``before`` match, up to ``MOST``."""
    rows = matching(Filter(**narrowed), conf.current().database).filter(pk__lt=UUID(before))
    return rows.order_by("-pk").values("pk")[:MOST].count()


def work(
    operation: str,
    narrowed: Mapping[str, Any],
    cleaned: Mapping[str, Any],
    actor: Mapping[str, str],
    *,
    before: str,
    after: str | None,
) -> Iterator[tuple[str, int, int]]:
    """Do the operation to every matching job made before the id ``before``, the newest first.

    Yields after each page: the last id, how many were changed, how many left as they are. ``after``
    is the last id of an earlier attempt.
    """
    using = conf.current().database
    if not bulk.possible(operation):
        raise ValueError(f"{operation} is not for bulk work")
    run = runner(operation)
    who = Actor(**actor)
    last = UUID(after or before)
    seen = 0
    while seen < MOST:
        rows = matching(Filter(**narrowed), using).filter(pk__lt=last).order_by("-pk")
        keys: list[UUID] = list(rows.values_list("pk", flat=True)[:CHUNK])
        if not keys:
            return
        report = run(keys, cleaned, who)
        last = keys[-1]
        seen += len(keys)
        yield str(last), report.done, len(report.skipped)
