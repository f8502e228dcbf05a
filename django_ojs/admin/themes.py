"""Themes of Django's admin: packages that replace its templates, its scripts and its style sheets.

Each leaves out other blocks, and its scripts look for elements of its own. The screens rely on what all
of them keep: the blocks of the head, and ``content``. What Django has in other blocks (titles, buttons,
filters, links to other pages) is then in ``content``, and ``themes.css`` has what Django's style sheets
would give.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from django.contrib import admin
from django.template.loader import get_template

LIST = "admin/django_ojs/themed_list.html"
FILTER = "admin/django_ojs/filter.html"


@cache
def replaces_templates() -> bool:
    """Whether the base template of the admin is not Django's."""
    origin: Any = getattr(get_template("admin/base.html"), "origin", None)
    return origin is None or Path(admin.__file__).parent not in Path(str(origin.name)).parents


def context() -> dict[str, Any]:
    """The template variables of a page."""
    return {"themed": True, "list_base": LIST} if replaces_templates() else {}
