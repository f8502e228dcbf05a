"""Bulk work, page by page: what the job ``ojs.admin.bulk`` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from django_ojs import conf
from django_ojs.admin import paging, search
from django_ojs.admin.operations import CHUNK, JOB_OPERATIONS, runner
from django_ojs.admin.tabs import Tab
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.services import audit, bulk
from django_ojs.services.bulk import MOST, Filter, Order
from django_ojs.store import selectors
from django_ojs.store.bounded import time_limit

CHUNK_LIMIT_MS = 60_000
_ENTERED: Mapping[str | None, str] = {State.AVAILABLE: "enqueued_at", State.ACTIVE: "started_at"}
"""When a job came into its state, where a column tells; of what has ended it is ``finished_at``."""


class Denied(Exception):
    """Whoever gave the order may not do this any more."""


@dataclass(frozen=True, slots=True)
class Page:
    """What was done to one page: the place of its last row, and how many were changed or left."""

    last: Sequence[str]
    changed: int
    left: int


def tab_of(narrowed: Filter) -> Tab:
    """The tab that the filter is of."""
    return Tab(narrowed.state, narrowed.lens, narrowed.dead_letter)


def edge_of(narrowed: Filter, using: str) -> str | None:
    """How far a search through this list looks; ``None`` where all rows are meant."""
    tab = tab_of(narrowed)
    if tab.unknown or not (tab.condition or narrowed.queue or narrowed.search):
        return None
    last = tab.edge(using)
    return None if last is None else paging.written([last])[0]


def matching(order: Order, using: str, *, shows_args: bool = True) -> QuerySet[Job]:
    """The jobs that were in the list when the order was given, in the order of its index.

    Those that came into its state later are left alone where a column tells, and the bulk work
    itself is never among them.
    """
    narrowed = order.narrowed
    tab = tab_of(narrowed)
    if tab.unknown:
        return Job.objects.using(using).none()
    jobs: QuerySet[Job] = Job.objects.using(using).exclude(queue=bulk.QUEUE)
    rows: QuerySet[Job] = tab.rows(jobs, using).filter(pk__lt=UUID(order.job))
    state = (
        State.DISCARDED if narrowed.dead_letter else State(narrowed.state) if narrowed.state else None
    )
    entered = "finished_at" if state in TERMINAL else _ENTERED.get(state) if state else None
    if entered is not None:
        rows = rows.filter(**{f"{entered}__lte": datetime.fromisoformat(order.given_at)})
    reading = tab.condition
    if narrowed.queue:
        reading &= Q(queue=narrowed.queue)
    ids = Q()
    if narrowed.search:
        asked = search.parse(narrowed.search, shows_args=shows_args)
        if asked.unknown:
            return rows.none()
        rows = rows.alias(**asked.places)
        reading &= asked.windowed
        ids = asked.ids
    if narrowed.edge is not None and not ids:
        reading &= tab.up_to(paging.read(Job, tab.keys[:1], [narrowed.edge])[0])
    if tab.index is not None and not ids:
        rows = selectors.by_index(rows, tab.index, using=using)
    return rows.filter(ids, reading).order_by(*paging.order(tab.keys))


def check(order: Order, using: str) -> bool:
    """Whether the user may still do it; returns whether arguments may be searched.

    Raises :class:`Denied`, and notes that in the audit.
    """
    user = get_user_model()._default_manager.filter(pk=order.user, is_active=True).first()
    operation = next(item for item in JOB_OPERATIONS if item.name == order.operation)
    needed = [f"django_ojs.{name}" for name in (operation.permission, *operation.also)]
    if conf.current().admin.read_only or user is None or not user.has_perms(needed):
        target = ("job", order.job)
        audit.note(f"job.{order.operation}", order.actor, target=target, result="denied", using=using)
        raise Denied(f"{order.actor.name} may not do this any more")
    return bool(user.has_perm("django_ojs.view_args"))


def size(order: Order) -> int:
    """How many jobs match, up to ``MOST``."""
    using = conf.current().database
    rows = matching(order, using, shows_args=check(order, using))
    with time_limit(CHUNK_LIMIT_MS, using=using, by_index=True):
        return rows.values("pk")[:MOST].count()


def work(order: Order, *, after: Sequence[str] | None, seen: int = 0) -> Iterator[Page]:
    """Do the operation to every matching job, in the order of the list; ``MOST`` at the most.

    ``after`` is the place of the last row of an earlier attempt, which has ``seen`` so many. Before
    each page it is checked that the user may still do this. Raises :class:`Denied`.
    """
    using = conf.current().database
    if not bulk.possible(order.operation):
        raise Denied(f"{order.operation} is not for bulk work")
    run = runner(order.operation)
    tab = tab_of(order.narrowed)
    names = [name for name, _down in tab.keys]
    while seen < MOST:
        rows = matching(order, using, shows_args=check(order, using))
        if after is not None:
            rows = rows.filter(paging.beyond(tab.keys, paging.read(Job, tab.keys, after)))
        with time_limit(CHUNK_LIMIT_MS, using=using, by_index=True):
            found = list(rows.values_list(*names)[: min(CHUNK, MOST - seen)])
        if not found:
            return
        report = run([row[-1] for row in found], order.cleaned, order.actor)
        after = paging.written(found[-1])
        seen += len(found)
        yield Page(after, report.done, len(report.skipped))
