"""Time limits of the statements of a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db import OperationalError, connections
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import conf
from django_ojs.admin import themes
from django_ojs.engines import EngineFamily, family_of
from django_ojs.services import reading
from django_ojs.store.sessions import statement_timeout

TIME_LIMIT_MS = 5000
"""For each statement of a list or page."""
COUNT_LIMIT_MS = 3000
"""For the count that a confirmation shows, in total."""
WINDOW, SMALL_WINDOW = 100_000, 25_000
SLOW = gettext_lazy("This took too long. Narrow the search or the tab.")


def window_size(using: str, *, slow: bool = False) -> int:
    """How many rows are searched, or sorted without an index, before the reader is asked to go on:
    ``OJS["ADMIN"]["SEARCH_WINDOW"]``, otherwise as many as take about a tenth of a second: fewer where
    rows are ``slow`` to read, and on SQLite, which reads within the web process.
    """
    size = conf.current().admin.search_window
    if size is not None:
        return size
    slow = slow or family_of(connections[using]) is EngineFamily.SQLITE
    return SMALL_WINDOW if slow else WINDOW


def limited(
    page: admin.ModelAdmin[Any],
    request: HttpRequest,
    title: str,
    context: Callable[[], dict[str, Any]],
) -> dict[str, Any] | HttpResponse:
    """The context of a page, read within the time limit; a 503 page if that is exceeded."""
    try:
        with statement_timeout(TIME_LIMIT_MS, using=reading.database()):
            return context()
    except OperationalError as error:
        if reading.is_repeated(error):
            raise
        said = {
            **page.admin_site.each_context(request),
            **themes.context(),
            "title": title,
            "opts": page.opts,
            "troubles": [_("This took too long.")],
        }
        return TemplateResponse(request, "admin/django_ojs/page.html", said, status=503)
