"""Lists in pages by the key: no OFFSET, and no count beyond a cap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import unquote, urlencode

from django.contrib import messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import OperationalError
from django.db.models import Field, QuerySet
from django.http import HttpRequest

from django_ojs import clock
from django_ojs.admin import refresh, themes
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.limits import SLOW, TIME_LIMIT_MS
from django_ojs.services import reading
from django_ojs.store import keyset
from django_ojs.store.keyset import Keys
from django_ojs.store.selectors import COUNT_CAP
from django_ojs.store.sessions import statement_timeout


class LimitedChangeList(ChangeList):
    """A list within a time limit; when it is exceeded, an empty list and a message."""

    by_index: ClassVar[bool] = False
    """Whether PostgreSQL must use an index: for tables that can be large."""

    def get_filters(self, request: HttpRequest) -> Any:
        """Those of Django; as links where a theme would have elements for its own scripts."""
        found = super().get_filters(request)
        if themes.replaces_templates():
            for spec in found[0]:
                spec.template = themes.FILTER
        return found

    def get_results(self, request: HttpRequest) -> None:
        """Read one page within the time limit."""
        using = reading.database()
        try:
            with statement_timeout(TIME_LIMIT_MS, using=using, by_index=self.by_index):
                self.read(request)
        except OperationalError as error:
            if reading.is_repeated(error):
                raise
            messages.error(request, SLOW)
            self.queryset = self.queryset.none()
            self.read(request)

    def read(self, request: HttpRequest) -> None:
        """Read the page at once, so that the time limit applies."""
        super().get_results(request)
        self.result_list = list(self.result_list)


class KeysetChangeList(LimitedChangeList):
    """Keyset pagination instead of OFFSET, and a count up to ``count_cap``."""

    keyset: ClassVar[frozenset[str]] = frozenset({"after", "before"})
    model_admin: Any
    count_cap: int = COUNT_CAP
    page_parameters: Mapping[str, str] = {}
    """Further parameters of the addresses of other pages."""
    other_keys: ClassVar[Mapping[str, Field[Any, Any]]] = {}
    """The fields of keys that are no columns."""
    newest_first: bool = True
    """Whether the next page has what is older."""
    next_after: Any = None
    prev_before: Any = None

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Django's parameters without those of this package, which are no lookups."""
        found: dict[str, Any] = super().get_filters_params(params)
        for name in (*self.keyset, refresh.PARAMETER, *self.model_admin.own_parameters):
            found.pop(name, None)
        return found

    def keys(self) -> Keys:
        """The columns of the index that orders the list, and whether each is descending; the last
        one is the primary key.
        """
        keys: Keys = self.model_admin.keys
        return keys

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return keyset.order(self.keys())

    def get_results(self, request: HttpRequest) -> None:
        """One page. Where it begins is no part of the links to other filters, nor of a search."""
        for name in self.keyset:
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        super().get_results(request)

    def read(self, request: HttpRequest) -> None:
        """One page, relative to the last row of its neighbour."""
        before, after = self._cursor(request, "before"), self._cursor(request, "after")
        size = self.list_per_page
        rows = self.queryset
        if before is not None:
            rows = rows.filter(keyset.beyond(self.keys(), before, back=True))
            found = list(rows.order_by(*keyset.order(self.keys(), back=True))[: size + 1])
        elif after is not None:
            found = list(rows.filter(keyset.beyond(self.keys(), after))[: size + 1])
        else:
            found = list(rows[: size + 1])
        more, found = len(found) > size, found[:size]
        if before is not None:
            found.reverse()
        self.result_list = found
        self.next_after = self._name(found[-1]) if found and (more or before is not None) else None
        self.prev_before = (
            self._name(found[0])
            if found and (after is not None or (before is not None and more))
            else None
        )
        # Read once, so that the ages on a page are consistent.
        now = clock.now(reading.database()) if found else None
        for row in found:
            row.ojs_now = now
        alone = not more and before is None and after is None
        self.result_count = len(found) if alone else self.count(request)
        # The search form shows a number of results only when the two counts differ.
        self.full_result_count = None if self.query else self.result_count
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.show_all = False
        self.multi_page = False
        self.paginator = Paginator(found, size)

    def count(self, request: HttpRequest) -> int:
        """The number of rows, up to one more than the cap. The order is kept, so that planners use
        the index.
        """
        return int(self.queryset.values("pk")[: self.count_cap + 1].count())

    def _name(self, row: Any) -> str:
        parts = keyset.encode([getattr(row, name) for name, _down in self.keys()])
        # The values may contain the separator.
        return "~".join(part.replace("%", "%25").replace("~", "%7E") for part in parts)

    def _cursor(self, request: HttpRequest, name: str) -> list[Any] | None:
        text = request.GET.get(name)
        if not text:
            return None
        try:
            parts = [unquote(part) for part in text.split("~")]
            return keyset.decode(self.model, self.keys(), parts, self.other_keys)
        except (ValueError, OverflowError, ValidationError):
            # An invalid cursor shows the first page.
            return None

    @property
    def shown_count(self) -> str:
        """The number of rows, or a lower bound beyond the cap."""
        over = self.result_count > self.count_cap
        return at_least(self.count_cap) if over else plain(self.result_count)

    @property
    def shown_unit(self) -> str:
        """The name of the rows, in the singular for one."""
        name = self.opts.verbose_name if self.shown_count == "1" else self.opts.verbose_name_plural
        return str(name)

    @property
    def next_url(self) -> str | None:
        """The address of the next page, ``None`` on the last one."""
        return self._page("after", self.next_after)

    @property
    def previous_url(self) -> str | None:
        """The address of the previous page, ``None`` on the first one."""
        return self._page("before", self.prev_before)

    def _page(self, name: str, value: Any) -> str | None:
        if value is None:
            return None
        parameters = {**self.params, **self.page_parameters, name: str(value)}
        return "?" + urlencode(parameters, doseq=True)
