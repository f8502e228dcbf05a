"""Failures by job type and error over several periods, with links to the jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import links
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.dashboard import context_of
from django_ojs.admin.limits import limited
from django_ojs.admin.links import choices
from django_ojs.domain.states import State
from django_ojs.models import FailureStat
from django_ojs.services import stats_queries

MOST = 50
WINDOWS: tuple[tuple[str, Any], ...] = (
    ("1h", gettext_lazy("1 hour")),
    ("3h", gettext_lazy("3 hours")),
    ("24h", gettext_lazy("24 hours")),
    ("3d", gettext_lazy("3 days")),
    ("7d", gettext_lazy("7 days")),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the matrix, linked to its jobs if ``url`` is set."""

    type: str
    error: str
    counts: Any
    url: str


@admin.register(FailureStat)
class FailureStatAdmin(OJSModelAdmin):
    """The matrix in place of a list."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The matrix, ordered by the count within ``?window=1h|3h|24h|3d|7d``."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = limited(self, request, _("Failures"), lambda: self.shown(request))
        if isinstance(found, HttpResponse):
            return found
        context = {**context_of(self, request, _("Failures")), **found, **(extra_context or {})}
        return TemplateResponse(request, "admin/django_ojs/failures.html", context)

    def shown(self, request: HttpRequest) -> dict[str, Any]:
        """The rows of the matrix."""
        using = self.using
        now = clock.now(using)
        names = [name for name, _label in WINDOWS]
        window = request.GET.get("window", "")
        window = window if window in names else "24h"
        found = stats_queries.failures(by=names.index(window), limit=MOST, now=now, using=using)
        rows = [
            Row(
                _("all others") if row.is_rest else row.type,
                "" if row.is_rest else row.error,
                [(count, name == window) for count, name in zip(row.counts, names, strict=True)],
                self._filtered(request, row),
            )
            for row in found
        ]
        return {
            "rows": rows,
            "most": MOST,
            "full": len(rows) == MOST,
            "windows": choices(request, "window", WINDOWS, window),
            "until": stats_queries.watermark(now=now, using=using),
        }

    def _filtered(self, request: HttpRequest, row: stats_queries.FailureRow) -> str:
        """The search for the discarded jobs of a row; empty if it cannot be expressed."""
        if row.is_rest or '"' in row.type + row.error:
            return ""
        query = f"type:{_word(row.type)} error:{_word(row.error)}"
        return links.list_for(request, self.admin_site, "job", state=State.DISCARDED, q=query)


def _word(text: str) -> str:
    return f'"{text}"' if not text or any(letter.isspace() for letter in text) else text
