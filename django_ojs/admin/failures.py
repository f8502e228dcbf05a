"""Failures: as incidents with their jobs, and by job type and error over several periods."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import incidents
from django_ojs.admin.charts import plain
from django_ojs.admin.dashboard import FiguresAdmin
from django_ojs.admin.links import choices
from django_ojs.models import FailureStat
from django_ojs.services import incident_board, stats_queries
from django_ojs.store.incident_jobs import SAMPLE

MOST = 50
WINDOWS: tuple[tuple[str, Any], ...] = (
    ("1h", gettext_lazy("1 hour")),
    ("3h", gettext_lazy("3 hours")),
    ("24h", gettext_lazy("24 hours")),
    ("3d", gettext_lazy("3 days")),
    ("7d", gettext_lazy("7 days")),
)
VIEWS: tuple[tuple[str, Any], ...] = (
    ("incidents", gettext_lazy("Incidents")),
    ("table", gettext_lazy("By type and error")),
)


@admin.register(FailureStat)
class FailureStatAdmin(FiguresAdmin):
    """The incidents of ``?window=1h|24h|7d``; with ``?view=table`` the matrix, ordered by the count
    within ``?window=1h|3h|24h|3d|7d``.
    """

    title = gettext_lazy("Failures")
    template = "admin/django_ojs/failures.html"

    def shown(self, request: HttpRequest) -> dict[str, Any]:
        """The cards, or the rows of the matrix."""
        asked = request.GET.get("view", "")
        view = asked if asked in dict(VIEWS) else "incidents"
        found = self._matrix(request) if view == "table" else self._board(request)
        return {**found, "view": view, "views": choices(request, "view", VIEWS, view)}

    def _board(self, request: HttpRequest) -> dict[str, Any]:
        now = clock.now(self.using)
        asked = request.GET.get("window", "")
        name = asked if asked in incidents.WINDOWS else incidents.USUAL
        label, window = incidents.WINDOWS[name]
        board = incident_board.board(window, now=now, using=self.using)
        labels = [(key, words) for key, (words, _window) in incidents.WINDOWS.items()]
        return {
            "cards": incidents.describe(board, request, self.admin_site, now=now),
            "no_key": incidents.NO_KEY,
            "window": label,
            "more": board.more,
            "most": incident_board.MOST,
            "sampled": SAMPLE,
            "windows": choices(request, "window", labels, name),
            "begin": board.begin,
            "until": board.until,
        }

    def _matrix(self, request: HttpRequest) -> dict[str, Any]:
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
                "counts": [plain(n) for n in row.counts],
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
