"""Saved views: what a user has filtered and searched the job list by, under a name of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.urls import reverse
from django.utils.translation import gettext as _

from django_ojs import conf
from django_ojs.admin import sorting
from django_ojs.services import reading, saved_views

PARAMETERS = ("state", "lens", "queue", "q", sorting.PARAMETER)
"""Those of the list that select and order jobs; no others are kept."""
MOST_NAME = 60
MOST_VALUE = 500


def asked(parameters: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a list that select and order jobs."""
    return {name: str(parameters[name]) for name in PARAMETERS if parameters.get(name)}


def context(page: admin.ModelAdmin[Any], request: HttpRequest) -> dict[str, Any]:
    """The views of the user for the list, and the one that it shows, if any."""
    now = asked(request.GET)
    name = f"admin:{page.opts.app_label}_{page.opts.model_name}_views"
    action = reverse(name, current_app=page.admin_site.name)
    found = [
        {"name": view.name, "url": f"?{urlencode(asked(view.query))}", "on": view.query == now}
        for view in saved_views.of_user(str(request.user.pk), using=reading.database())
    ]
    return {
        "all": found,
        "on": next((view["name"] for view in found if view["on"]), ""),
        "asked": urlencode(now),
        "action": "" if conf.current().admin.read_only else action,
        "most_name": MOST_NAME,
    }


def answer(page: admin.ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Save the filter that was posted, or delete a view; then the list again."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not page.has_view_permission(request) or conf.current().admin.read_only:
        raise PermissionDenied
    query = asked(QueryDict(request.POST.get("asked", "")))
    using, user = conf.current().database, str(request.user.pk)
    if "delete" in request.POST:
        name = request.POST["delete"]
        if _fits(name, MOST_NAME) and saved_views.forget(user, name, using=using):
            page.message_user(request, _("The view “%s” was deleted.") % name, messages.SUCCESS)
    else:
        name = request.POST.get("name", "").strip()
        level, said = _save(user, name, query, using)
        page.message_user(request, said, level)
    url = reverse(
        f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist",
        current_app=page.admin_site.name,
    )
    return HttpResponseRedirect(f"{url}?{urlencode(query)}" if query else url)


def _save(user: str, name: str, query: Mapping[str, str], using: str) -> tuple[int, str]:
    if not _fits(name, MOST_NAME):
        return messages.ERROR, _("A view needs a name of at most %d characters.") % MOST_NAME
    if not query or not all(_fits(value, MOST_VALUE) for value in query.values()):
        return messages.ERROR, _("There is no filter here that could be saved.")
    if not saved_views.save(user, name, query, using=using):
        said = _("You have %d views already: delete one first.")
        return messages.ERROR, said % saved_views.MOST
    return messages.SUCCESS, _("The view “%s” was saved.") % name


def _fits(text: str, most: int) -> bool:
    """Whether every database stores it as it is."""
    return 0 < len(text) <= most and text.isprintable()
