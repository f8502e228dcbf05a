"""Bulk operations in pages: the work of the job ``ojs.admin.bulk``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core import signing
from django.db import OperationalError
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from django_ojs import clock, conf
from django_ojs.admin import search
from django_ojs.admin.actions import Chosen
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.operations import CHUNK, JOB_OPERATIONS, runner
from django_ojs.admin.tabs import Tab
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Job
from django_ojs.services import audit, bulk
from django_ojs.services.bulk import MOST, Filter, Order
from django_ojs.store import keyset, selectors
from django_ojs.store.sessions import statement_timeout

CHUNK_LIMIT_MS = 60_000
_ENTERED: Mapping[str | None, str] = {State.AVAILABLE: "enqueued_at", State.ACTIVE: "started_at"}
"""The column with the time at which a job entered its state; ``finished_at`` for ended jobs."""


class Denied(Exception):
    """The user who ordered the operation is no longer allowed to perform it."""


@dataclass(frozen=True, slots=True)
class BulkPage:
    """The outcome of one page: the position of its last row, and how many were changed or skipped."""

    last: Sequence[str]
    changed: int
    left: int


def tab_of(narrowed: Filter) -> Tab:
    """The tab of a filter."""
    return Tab(narrowed.state, narrowed.lens, narrowed.dead_letter)


def describe_filter(narrowed: Filter, *, shows_args: bool = True) -> list[str]:
    """A filter in words; the search is hidden from users who may not see arguments."""
    found = [_("dead letter")] if narrowed.dead_letter else []
    search_for = narrowed.search if shows_args or not narrowed.search else "…"
    parts = (
        (_("state"), narrowed.state),
        (_("list"), narrowed.lens),
        (_("queue"), narrowed.queue),
        (_("search"), search_for),
    )
    found += [f"{name}: {value}" for name, value in parts if value]
    return found or [_("every job")]


def describe_order(job_id: object, args: Any, *, shows_args: bool) -> str:
    """The order of a bulk job in words: operation, filter, user and reason."""
    try:
        order = bulk.read(args[0], job_id)
    except (signing.BadSignature, LookupError, TypeError):
        return _("not an order of the admin")
    label = next(item.label for item in JOB_OPERATIONS if item.name == order.operation)
    said = _("%(operation)s · %(jobs)s · by %(actor)s · %(reason)s")
    return said % {
        "operation": label,
        "jobs": ", ".join(describe_filter(order.narrowed, shows_args=shows_args)),
        "actor": order.actor.name,
        "reason": order.actor.reason or "—",
    }


def matching(narrowed: Filter, using: str, *, shows_args: bool = True) -> QuerySet[Job]:
    """All matching jobs, in the order of the list; :func:`is_read` tells whether to read them in
    windows.
    """
    tab = tab_of(narrowed)
    if tab.unknown or "\0" in f"{narrowed.queue}{narrowed.search}":
        return Job.objects.using(using).none()
    rows: QuerySet[Job] = tab.rows(Job.objects.using(using), using)
    reading, ids = tab.condition, Q()
    if narrowed.queue:
        reading &= Q(queue=narrowed.queue)
    if narrowed.search:
        parsed = search.parse(narrowed.search, shows_args=shows_args)
        if parsed.unknown:
            return rows.none()
        rows = rows.alias(**parsed.places)
        reading &= parsed.windowed
        ids = parsed.ids
    if tab.index is not None and not ids:
        rows = selectors.by_index(rows, tab.index, using=using)
    return rows.filter(ids, reading).order_by(*keyset.order(tab.keys))


def is_read(narrowed: Filter) -> bool:
    """Whether no index serves the filter, so that each statement should read one window only."""
    if narrowed.search and search.parse(narrowed.search).ids:
        return False
    return bool(tab_of(narrowed).condition or narrowed.queue or narrowed.search)


def _others(rows: QuerySet[Job]) -> QuerySet[Job]:
    """Without the bulk jobs themselves."""
    return rows.exclude(queue=bulk.QUEUE)


class JobCount(NamedTuple):
    """The number of matching jobs; a lower bound unless ``exact``."""

    number: int
    exact: bool

    def __str__(self) -> str:
        """The number as text, marked if it is a lower bound."""
        return plain(self.number) if self.exact else at_least(self.number)


def count(narrowed: Filter, using: str, *, shows_args: bool = True, limit_ms: int) -> JobCount:
    """The number of jobs of a bulk order, up to ``MOST``, counted within the time limit."""
    rows, number = _others(matching(narrowed, using, shows_args=shows_args)), 0

    def take(part: QuerySet[Job]) -> bool:
        nonlocal number
        number += part.values("pk")[: MOST - number + 1].count()
        return number <= MOST

    exact = _read(narrowed, rows, take, using, limit_ms, windows=True)
    return JobCount(min(number, MOST), exact)


def first(narrowed: Filter, most: int, using: str, *, shows_args: bool = True, limit_ms: int) -> Chosen:
    """The keys of the first ``most`` matching jobs, found within the time limit."""
    rows = matching(narrowed, using, shows_args=shows_args)
    keys: list[Any] = []

    def take(part: QuerySet[Job]) -> bool:
        keys.extend(part.values_list("pk", flat=True)[: most - len(keys) + 1])
        return len(keys) <= most

    whole = _read(narrowed, rows, take, using, limit_ms, windows=is_read(narrowed))
    return Chosen(keys[:most], whole)


def _read(
    narrowed: Filter,
    rows: QuerySet[Job],
    take: Callable[[QuerySet[Job]], bool],
    using: str,
    limit_ms: int,
    *,
    windows: bool,
) -> bool:
    """Pass the rows to ``take``, in windows or in one part, until it returns ``False`` or the time is
    over; returns whether it got all of them.
    """
    until = clock.boottime() + limit_ms / 1000
    by_id = bool(narrowed.search and search.parse(narrowed.search).ids)
    parts = tab_of(narrowed).windows(rows, using) if windows and not by_id else iter([rows])
    try:
        while (left := int((until - clock.boottime()) * 1000)) > 0:
            with statement_timeout(left, using=using, by_index=True):
                part = next(parts, None)
                if part is None:
                    return True
                if not take(part):
                    return False
    except OperationalError:
        pass
    return False


def ordered(order: Order, using: str, *, shows_args: bool = True) -> QuerySet[Job]:
    """The jobs that were in the list when the order was given, in the order of its index.

    Jobs that entered its state later are left out where a column records that time, and bulk jobs
    always.
    """
    narrowed = order.narrowed
    rows = _others(matching(narrowed, using, shows_args=shows_args)).filter(pk__lt=UUID(order.job))
    state = State.DISCARDED if narrowed.dead_letter else narrowed.state
    if not state or tab_of(narrowed).unknown:
        return rows
    entered = "finished_at" if state in TERMINAL else _ENTERED.get(State(state))
    if entered is None:
        return rows
    return rows.filter(**{f"{entered}__lte": datetime.fromisoformat(order.given_at)})


def check(order: Order, using: str) -> bool:
    """Check that the user may still perform the order; returns whether arguments may be searched.

    Raises :class:`Denied`, and records that in the audit.
    """
    user = get_user_model()._default_manager.filter(pk=order.user, is_active=True).first()
    operation = next(item for item in JOB_OPERATIONS if item.name == order.operation)
    needed = [f"django_ojs.{name}" for name in (operation.permission, *operation.also)]
    if conf.current().admin.read_only or user is None or not user.has_perms(needed):
        target = ("job", order.job)
        audit.note(f"job.{order.operation}", order.actor, target=target, result="denied", using=using)
        raise Denied(f"{order.actor.name} may not do this any more")
    return bool(user.has_perm("django_ojs.view_args"))


def size(order: Order) -> dict[str, Any]:
    """The number of matching jobs (``of``), up to ``MOST``, and whether it is ``exact``."""
    using = conf.current().database
    shows_args = check(order, using)
    found = count(order.narrowed, using, shows_args=shows_args, limit_ms=CHUNK_LIMIT_MS)
    return {"of": found.number, "exact": found.exact}


def work(order: Order, *, after: Sequence[str] | None, seen: int = 0) -> Iterator[BulkPage]:
    """Perform the operation on up to ``MOST`` matching jobs, in the order of the list.

    ``after`` is the position of the last row of an earlier attempt, and ``seen`` its number of jobs.
    The permission of the user is checked before each page. Raises :class:`Denied`.
    """
    using = conf.current().database
    if not bulk.possible(order.operation):
        raise Denied(f"{order.operation} is not for bulk work")
    run, actor = runner(order.operation), replace(order.actor, bulk=order.job)
    tab, reads = tab_of(order.narrowed), is_read(order.narrowed)
    names = [name for name, _down in tab.keys]
    edge = None
    while seen < MOST and not tab.unknown:
        rows = ordered(order, using, shows_args=check(order, using))
        if after is not None:
            # The end of a window is a prefix of the key, after all rows that share it.
            keys = tab.keys[: len(after)]
            rows = rows.filter(keyset.beyond(keys, keyset.decode(Job, keys, after)))
        with statement_timeout(CHUNK_LIMIT_MS, using=using, by_index=True):
            if reads and edge is None:
                edge = tab.edge(using, _begin(tab, after))
            if reads and edge is not None:
                rows = rows.filter(tab.up_to(edge))
            found = list(rows.values_list(*names)[: min(CHUNK, MOST - seen)])
        if found:
            report = run([row[-1] for row in found], order.cleaned, actor)
            after = keyset.encode(found[-1])
            seen += len(found)
            yield BulkPage(after, report.done, len(report.skipped))
            continue
        if edge is None:
            return
        with statement_timeout(CHUNK_LIMIT_MS, using=using, by_index=True):
            following = tab.edge(using, edge)
        if following is None:
            return
        after, edge = keyset.encode([edge]), following
        yield BulkPage(after, 0, 0)


def _begin(tab: Tab, after: Sequence[str] | None) -> Any:
    """The position that the next window begins after."""
    return None if after is None else keyset.decode(Job, tab.keys[:1], after[:1])[0]
