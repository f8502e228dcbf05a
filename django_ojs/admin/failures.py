"""Failures by job type and error over several periods, with links to the jobs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import links
from django_ojs.admin.dashboard import FiguresAdmin
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


@admin.register(FailureStat)
class FailureStatAdmin(FiguresAdmin):
    """The matrix, ordered by the count within ``?window=1h|3h|24h|3d|7d``."""

    title = gettext_lazy("Failures")
    template = "admin/django_ojs/failures.html"

    def shown(self, request: HttpRequest) -> dict[str, Any]:
        """The rows of the matrix."""
        using = self.using
        now = clock.now(using)
        names = [name for name, _label in WINDOWS]
        asked = request.GET.get("window", "")
        window = asked if asked in names else "24h"
        found = stats_queries.failures(by=names.index(window), limit=MOST, now=now, using=using)
        rows = [
            {
                "type": _("all others") if row.is_rest else row.type,
                "error": "" if row.is_rest else row.error,
                "counts": [(n, name == window) for n, name in zip(row.counts, names, strict=True)],
                "url": self._filtered(request, row),
            }
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
