"""Which database the admin shows where queues are on several: chosen in the head of a page, and kept in
the session.

Forms say which database they were shown for: what another window has switched to is not changed by
mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs import conf
from django_ojs.admin import links, themes
from django_ojs.store.batches import answers

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

PARAMETER = "database"
FIELD = "_database"
_KEY = "django_ojs_database"


def chosen(request: HttpRequest) -> str:
    """The database that the user has switched to, else ``OJS["DATABASE"]``."""
    databases = conf.current().databases
    alias = getattr(request, "session", {}).get(_KEY) if databases.are_several else None
    return alias if alias in databases.aliases else databases.default


def answer_first(page: ModelAdmin, request: HttpRequest) -> HttpResponse | None:
    """The answer to a switch, and to a form that was shown for another database; otherwise none."""
    databases = conf.current().databases
    user = getattr(request, "user", None)
    if not databases.are_several or user is None or not user.is_staff:
        return None
    asked = request.GET.get(PARAMETER)
    if asked in databases.aliases and request.method == "GET":
        request.session[_KEY] = asked
        return HttpResponseRedirect(request.path)
    if request.POST.get(FIELD, chosen(request)) != chosen(request):
        messages.error(request, _("The database was switched in another window: nothing was changed."))
        return HttpResponseRedirect(
            reverse("admin:app_list", args=[page.opts.app_label], current_app=page.admin_site.name)
        )
    return None


def context(page: ModelAdmin, request: HttpRequest) -> dict[str, Any]:
    """The links that switch, and the database that is shown; nothing where there is one only."""
    databases = conf.current().databases
    if len(databases.aliases) == 1:
        return {}
    site, model, now = page.admin_site, str(page.opts.model_name), conf.current().database
    choices = [
        {
            "label": alias,
            "url": links.list_of(site, model, **{PARAMETER: alias}),
            "chosen": alias == now,
        }
        for alias in databases.aliases
    ]
    return {"databases": choices, "database_field": field()}


def field() -> SafeString:
    """What a form has that acts on the database that is shown; empty where there is one only."""
    settings = conf.current()
    if len(settings.databases.aliases) == 1:
        return SafeString("")
    return format_html('<input type="hidden" name="{}" value="{}">', FIELD, settings.database)


def silent(page: ModelAdmin, request: HttpRequest) -> HttpResponse | None:
    """The answer while the database that is shown does not answer: one can switch to another."""
    settings = conf.current()
    if len(settings.databases.aliases) == 1 or connections[settings.database].in_atomic_block:
        return None
    if answers(settings.database):
        return None
    said = {
        **page.admin_site.each_context(request),
        **context(page, request),
        **themes.context(),
        "title": page.opts.verbose_name_plural,
        "opts": page.opts,
        "troubles": [_("The database %s does not answer.") % settings.database],
    }
    return TemplateResponse(request, "admin/django_ojs/page.html", said, status=503)
