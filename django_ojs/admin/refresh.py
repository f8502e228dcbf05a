"""Automatic refresh of pages; the interval is kept in the session."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_ojs.admin import live, replica
from django_ojs.admin.links import choices

PARAMETER = "refresh"
SECONDS = ("5", "10", "30", "60", "off")
_KEY = "django_ojs_refresh"


def context(request: HttpRequest) -> dict[str, Any]:
    """The interval in seconds, if any, the links that change it, and where the page is read.

    The script of the page (:mod:`django_ojs.admin.live`) pauses while rows are selected, text is typed
    or the tab is hidden; without scripts the page reloads regardless.
    """
    session = getattr(request, "session", {})
    chosen = request.GET.get(PARAMETER)
    if chosen in SECONDS and chosen != session.get(_KEY, "off"):
        session[_KEY] = chosen
    now = session.get(_KEY, "off")
    labels = {value: _("%s s") % value for value in SECONDS} | {"off": _("off")}
    return {
        **live.around(request),
        "replica": replica.note(),
        "refresh": None if now == "off" else now,
        "refreshes": choices(request, PARAMETER, [(v, labels[v]) for v in SECONDS], now),
    }
