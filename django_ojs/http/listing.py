"""Lists: filters on an allow-list, keyset cursors, pages and offsets, counts up to a cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import django_filters
from django.core import signing
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet, TextField
from django.db.models.functions import Cast, Length
from django.http import QueryDict
from rest_framework.request import Request

from django_ojs import clock
from django_ojs.domain.durations import parse_past
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.ids import uuid7
from django_ojs.domain.names import check_job_type
from django_ojs.domain.states import State
from django_ojs.http import responses
from django_ojs.http.principal import Principal
from django_ojs.models import Job
from django_ojs.services import databases
from django_ojs.services.stream import any_of
from django_ojs.store import keyset, selectors
from django_ojs.store.batches import parts_that_fit
from django_ojs.store.sessions import statement_timeout

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_OFFSET = 10_000
COUNT_CAP = selectors.COUNT_CAP
TIME_LIMIT_MS = 2000
WINDOW = 5_000
"""How many rows are looked through for a page of those that the caller may see."""
MAX_BYTES = 8 << 20
"""Of arguments, results and the like on one page: a page may end before its limit."""

PAGING = frozenset({"limit", "offset", "page", "per_page", "cursor"})
_SALT = "django_ojs.cursor"


Only = tuple[str, Callable[[Any], bool]]


class _WordsFilter(django_filters.BaseInFilter, django_filters.CharFilter):
    """Comma-separated words."""


class JobFilter(django_filters.FilterSet):
    """The filters of the list of jobs.

    Those with a ``method`` check the value: an invalid one is 422, never an unfiltered list.
    """

    state = _WordsFilter(method="by_state")
    queue = _WordsFilter(field_name="queue", lookup_expr="in")
    type = _WordsFilter(method="by_type")
    worker_id = django_filters.CharFilter(field_name="worker_id")
    dead_letter = django_filters.CharFilter(method="by_dead_letter")
    error_type = django_filters.CharFilter(field_name="error__type")
    since = django_filters.CharFilter(method="by_since")
    until = django_filters.CharFilter(method="by_until")

    class Meta:
        model = Job
        fields: Sequence[str] = ()

    def by_state(self, rows: QuerySet[Job], name: str, value: list[str]) -> QuerySet[Job]:
        """Jobs in one or more states."""
        allowed = {str(state) for state in State}
        if not set(value) <= allowed:
            raise InvalidRequest(name, f"must be out of {', '.join(sorted(allowed))}")
        return rows.filter(state__in=value)

    def by_type(self, rows: QuerySet[Job], name: str, value: list[str]) -> QuerySet[Job]:
        """Jobs of these types; a type may be a prefix that ends in ``.*``."""
        for item in value:
            check_job_type(item.removesuffix(".*"), name)
        patterns = [item[:-1] + "*" if item.endswith(".*") else item for item in value]
        return rows.filter(any_of("type", patterns))

    def by_dead_letter(self, rows: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        """Jobs that are in the dead letter, or that are not."""
        if value not in ("true", "false"):
            raise InvalidRequest(name, "must be true or false")
        return rows.filter(dead_letter=value == "true")

    def by_since(self, rows: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        """Jobs created at or after a time, by the time in their id: the primary key is the index."""
        return rows.filter(id__gte=_first_id(value, name, rows.db))

    def by_until(self, rows: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        """Jobs created before a time."""
        return rows.filter(id__lt=_first_id(value, name, rows.db))


def _first_id(value: str, name: str, using: str) -> UUID:
    moment = parse_past(value, name, clock.now(using))
    return uuid7(int(moment.timestamp() * 1000), 0)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The part of a list that a request asks for."""

    limit: int
    offset: int
    cursor: str | None


def page_request(request: Request) -> PageRequest:
    """The part that ``limit`` and ``offset``, ``page`` and ``per_page``, or ``cursor`` ask for.

    Limits beyond 200 are lowered to it. Raises :class:`InvalidRequest`.
    """
    query = request.query_params
    name = "per_page" if "per_page" in query else "limit"
    limit = min(_number(query, name, 1) or DEFAULT_LIMIT, MAX_LIMIT)
    page = _number(query, "page", 1) or 1
    offset = _number(query, "offset", 0) or (page - 1) * limit
    if offset > MAX_OFFSET:
        raise InvalidRequest("offset", f"must not be beyond {MAX_OFFSET}: use next_cursor")
    return PageRequest(limit, offset, query.get("cursor") or None)


def _number(query: Mapping[str, str], name: str, least: int) -> int | None:
    value = query.get(name)
    if value is None or value == "":
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) < least:
        raise InvalidRequest(name, f"must be an integer of at least {least}")
    return int(value)


def allow(
    request: Request, names: frozenset[str] = frozenset(), paging: frozenset[str] = PAGING
) -> None:
    """Raise :class:`InvalidRequest` for unknown query parameters, and for NUL in a value, which not
    every database accepts. ``paging`` are the paging parameters of the list.
    """
    unknown = sorted(set(request.query_params) - names - paging)
    if unknown:
        known = ", ".join(sorted(names | paging))
        raise InvalidRequest(unknown[0][:80], f"is not a parameter here; known are {known}")
    for name, value in request.query_params.items():
        if "\x00" in value:
            raise InvalidRequest(name, "must not contain NUL")


def database_of(request: Request) -> str:
    """The database of the queues that a list is of. Raises :class:`InvalidRequest` for several."""
    return databases.of_filter([name for name in request.GET.get("queue", "").split(",") if name])


def jobs(request: Request, principal: Principal, *, using: str) -> Any:
    """The page of jobs that the request asks for, newest first (or ``order=asc``)."""
    allow(request, frozenset({*JobFilter.base_filters, "order", "sort"}))
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order", "must be asc or desc")
    if request.query_params.get("sort", "created_at") != "created_at":
        raise InvalidRequest("sort", "must be created_at: nothing else has an index")
    rows = _visible(Job.objects.using(using), principal)
    found = _narrowed(request.query_params, rows)
    return _jobs_page(found, [("id", order == "desc")], page_request(request), using)


def dead_letter(request: Request, principal: Principal, *, using: str) -> Any:
    """The page of the dead letter that the request asks for, newest first."""
    allow(request, frozenset({"queue", "type", "error_type"}))
    rows = _visible(Job.objects.using(using), principal)
    rows = rows.filter(state=State.DISCARDED, dead_letter=True)
    found = _narrowed(request.query_params, rows)
    return _jobs_page(found, [("finished_at", True), ("id", True)], page_request(request), using)


def _narrowed(query: QueryDict, rows: QuerySet[Job]) -> QuerySet[Job]:
    narrow = JobFilter(query, rows)
    # django-filter ignores a filter whose value is invalid, which would list everything.
    for name in narrow.form.errors:
        raise InvalidRequest(name, "is not valid")
    return narrow.qs


def _visible(rows: QuerySet[Job], principal: Principal) -> QuerySet[Job]:
    return rows if principal.unrestricted else rows.filter(any_of("queue", principal.queues))


def paging(part: PageRequest, total: int, has_more: bool) -> dict[str, Any]:
    """The ``pagination`` object; ``total_is_capped`` marks a total beyond the cap."""
    return {
        "total": min(total, COUNT_CAP),
        "total_is_capped": total > COUNT_CAP,
        "limit": part.limit,
        "offset": part.offset,
        "has_more": has_more,
        "page": part.offset // part.limit + 1,
        "per_page": part.limit,
    }


def listed(
    request: Request,
    rows: QuerySet[Any],
    shape: Callable[[Sequence[Any]], list[Any]],
    name: str,
    *,
    keys: Sequence[str],
    down: bool = False,
    large: str | None = None,
    only: Only | None = None,
) -> dict[str, Any]:
    """A page of a table, in the order of ``keys``, which together are unique; ``down`` is descending.

    ``shape`` gets all rows of the page at once, so that it may read more about them. ``large`` is a
    column whose text is bounded: rows beyond ``MAX_BYTES`` of it are left for the next page. ``only``
    has a column and what its value must be, where no condition of SQL says so: ``WINDOW`` rows are
    looked through, and a page may be shorter than its limit and have more.
    """

    def sizes(some: Sequence[Any]) -> dict[Any, int | None]:
        sized = rows.filter(pk__in=some).annotate(text_size=Length(Cast(large or "pk", TextField())))
        return dict(sized.values_list("pk", "text_size"))

    def fetch(wanted: Sequence[Any]) -> tuple[int, list[Any]]:
        if large is not None:
            wanted = next(parts_that_fit(wanted, sizes, MAX_BYTES), [])
        order = keyset.order([(key, down) for key in keys])
        found = list(rows.filter(pk__in=wanted).order_by(*order)) if wanted else []
        return len(wanted), shape(found)

    return _page(rows, [(key, down) for key in keys], page_request(request), name, fetch, only)


def _jobs_page(rows: QuerySet[Job], keys: keyset.Keys, part: PageRequest, using: str) -> dict[str, Any]:
    def fetch(wanted: Sequence[UUID]) -> tuple[int, list[Any]]:
        fitting = next(selectors.parts_that_fit(wanted, MAX_BYTES, using=using), [])
        records = selectors.jobs(fitting, using=using)
        return len(fitting), [responses.job(records[job_id]) for job_id in fitting if job_id in records]

    return _page(rows, keys, part, "jobs", fetch)


def _page(
    rows: QuerySet[Any],
    keys: keyset.Keys,
    part: PageRequest,
    name: str,
    fetch: Callable[[Sequence[Any]], tuple[int, list[Any]]],
    only: Only | None = None,
) -> dict[str, Any]:
    """A page under ``name`` and ``items``.

    ``fetch`` gets the primary keys of the page, and returns how many of them fit and their items.
    """
    ordered, start = rows.order_by(*keyset.order(keys)), part.offset
    salt = f"{_SALT}.{name}"
    if part.cursor is not None:
        last = _decoded(part.cursor, rows.model, keys, salt)
        ordered, start = ordered.filter(keyset.beyond(keys, last)), 0
    with statement_timeout(TIME_LIMIT_MS, using=rows.db):
        columns = [*(key for key, _down in keys), "pk"]
        seen: Any = None
        if only is None:
            found: list[Any] = list(ordered.values_list(*columns)[start : start + part.limit + 1])
        else:
            found, seen = _window(
                ordered.values_list(*columns, only[0]), only[1], start, part.limit + 1
            )
        shown = found[: part.limit]
        exact = len(found) == len(shown) and part.cursor is None and (found or not start)
        if exact or only is not None:
            total = start + len(found) + (COUNT_CAP if seen else 0)
        else:
            total = rows.order_by().values("pk")[: COUNT_CAP + 1].count()
        fitting, items = fetch([row[-1] for row in shown])
    more = fitting < len(found) or seen is not None
    pagination = paging(part, total, more)
    if more and only is not None:
        # There are so many at least: the others were not looked at.
        pagination["total_is_capped"] = True
    if more:
        end = seen if fitting == len(found) else shown[fitting - 1]
        pagination["next_cursor"] = signing.dumps(keyset.encode(end[:-1]), salt=salt)
    return {name: items, "items": items, "pagination": pagination}


def _window(
    rows: Any, holds: Callable[[Any], bool], start: int, count: int
) -> tuple[list[Any], Any | None]:
    """Up to ``count`` of the rows whose last column ``holds``, behind the first ``start`` of them; and
    the last row that was looked at, if there may be more behind it.
    """
    found: list[Any] = []
    row: Any = None
    seen = 0
    for row in rows[:WINDOW]:
        seen += 1
        if holds(row[-1]):
            found.append(row[:-1])
            if len(found) == start + count:
                return found[start:], None
    return found[start:], row[:-1] if seen == WINDOW else None


def _decoded(cursor: str, model: type[Model], keys: keyset.Keys, salt: str) -> list[Any]:
    try:
        return keyset.decode(model, keys, signing.loads(cursor, salt=salt))
    except (signing.BadSignature, ValueError, OverflowError, ValidationError):
        raise InvalidRequest("cursor", "must be the next_cursor of an earlier page") from None
