"""Links between screens, only to models that this admin site has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote as percent_encoded
from urllib.parse import urlencode

from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html

_SOME_KEY = "ojs0key"
_PLAIN = "!$&'()*+,;=/~:@"
"""What Django does not escape in an address."""


def page_of(site: AdminSite, model: str, key: object) -> str:
    """The address of the page of a row, empty if the model is not registered."""
    return _reverse(site, f"django_ojs_{model}_change", [quote(str(key))])


def of_rows(url: Callable[[str], str]) -> Callable[[object], str]:
    """The addresses of many rows, given how to find that of one: it is found once, as a page has
    hundreds. The key must stand before all that a request can contribute.
    """
    before, there, after = url(_SOME_KEY).partition(_SOME_KEY)
    if not there:
        return lambda key: ""
    return lambda key: f"{before}{percent_encoded(quote(str(key)), safe=_PLAIN)}{after}"


class SiteLinks:
    """The addresses of a site's screens, for a page that has hundreds of them."""

    def __init__(self, site: AdminSite) -> None:
        self._site = site
        self._pages: dict[str, Callable[[object], str]] = {}
        self._lists: dict[str, str] = {}

    def page_of(self, model: str, key: object) -> str:
        """The address of the page of a row, empty if the model is not registered."""
        if model not in self._pages:
            self._pages[model] = of_rows(partial(page_of, self._site, model))
        return self._pages[model](key)

    def list_of(self, model: str, **query: str) -> str:
        """The address of a list, empty if the model is not registered."""
        if model not in self._lists:
            self._lists[model] = list_of(self._site, model)
        url = self._lists[model]
        return f"{url}?{urlencode(query)}" if url and query else url


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
