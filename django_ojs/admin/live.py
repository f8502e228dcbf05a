"""Pages that are kept up to date: a script asks for the page again and takes over the parts that have
changed, so that nothing that is open closes.

A part has an id and the attribute ``data-live``. Where that has a value, it is a version: the script
sends what it has, and a part that would be the same need not be made.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest

HEADER = "X-OJS-Live"
_MOST = 1000


def is_asked(request: HttpRequest) -> bool:
    """Whether the script asks, which has all that is around the parts."""
    return HEADER in request.headers


def knows(request: HttpRequest, part: str, version: str) -> bool:
    """Whether the reader has a part in this version."""
    known = request.headers.get(HEADER, "")[:_MOST].split()
    return f"{part}={version}" in known


def around(request: HttpRequest) -> dict[str, Any]:
    """Variables of Django's lists and pages that leave out the navigation, for the script."""
    return {"is_nav_sidebar_enabled": False, "available_apps": []} if is_asked(request) else {}


def around_rows(request: HttpRequest) -> dict[str, Any]:
    """Variables of a list that writes its rows itself, which leave out all but the parts, for the
    script.
    """
    if not is_asked(request):
        return {}
    return {"list_base": "admin/django_ojs/live_list.html", "actions_on_top": False}


def base(request: HttpRequest, site: AdminSite) -> dict[str, Any]:
    """The template variables for what is around a page, which the script does not want."""
    if is_asked(request):
        return {"page_base": "admin/django_ojs/live.html"}
    return site.each_context(request)
