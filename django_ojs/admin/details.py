"""Screens whose page is rendered from details instead of form fields."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from django_ojs.admin.base import OJSModelAdmin


class DetailsAdmin(OJSModelAdmin):
    """Rows with a page of their own, made from :meth:`details`."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """No form fields: the page is rendered from its context."""
        return ()

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The details as ``page``; nothing for a row that does not exist."""
        return {} if row is None else {"page": self.details(row)}

    def details(self, row: Any) -> dict[str, Any]:
        """The template variables of the page of a row."""
        raise NotImplementedError
