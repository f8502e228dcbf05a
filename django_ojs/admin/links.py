"""Links between screens, only to models that this admin site has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html


def page_of(site: AdminSite, model: str, key: object) -> str:
    """The address of the page of a row, empty if the model is not registered."""
    return _reverse(site, f"django_ojs_{model}_change", [quote(str(key))])


def list_of(site: AdminSite, model: str, **query: str) -> str:
    """The address of a list, empty if the model is not registered."""
    url = _reverse(site, f"django_ojs_{model}_changelist", [])
    return f"{url}?{urlencode(query)}" if url and query else url


def list_for(request: HttpRequest, site: AdminSite, model: str, **query: str) -> str:
    """The address of a list, empty also if the user may not view it."""
    if not request.user.has_perm(f"django_ojs.view_{model}"):
        return ""
    return list_of(site, model, **query)


def link(url: str, text: Any) -> str:
    """A link, or the text alone without an address."""
    return format_html('<a href="{}">{}</a>', url, text) if url else format_html("{}", text)


def choices(request: HttpRequest, name: str, values: Sequence[tuple[str, Any]], now: str) -> list[Any]:
    """Links that change one parameter of the page and keep the others."""
    return [
        {
            "label": label,
            "url": "?" + urlencode({**request.GET.dict(), name: value}),
            "chosen": value == now,
        }
        for value, label in values
    ]


def _reverse(site: AdminSite, name: str, args: list[str]) -> str:
    try:
        return reverse(f"admin:{name}", args=args, current_app=site.name)
    except NoReverseMatch:
        return ""
