"""Whether the loggers let through what ``OJS["LOGS"]`` is to keep."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from django_ojs import conf

_OURS = ("django",)
"""Loggers of Django and of this package say nothing about those of the project."""


def check_levels(app_configs: object, **kwargs: Any) -> list[checks.CheckMessage]:
    """``ojs.W014``: ``OJS["LOGS"]`` names a level that the project's loggers do not let through."""
    try:
        level = conf.current().logs
    except ImproperlyConfigured:
        return []
    root = logging.getLogger()
    if level is None or not root.handlers or root.level <= getattr(logging, level) or _lower(level):
        return []
    return [
        checks.Warning(
            f"OJS['LOGS'] is {level!r}, but the root logger lets nothing below "
            f"{logging.getLevelName(root.level)} through",
            hint=f"Set LOGGING['root']['level'] = {level!r}, or the levels of your own loggers.",
            id="ojs.W014",
        )
    ]


def _lower(level: str) -> bool:
    """Whether a logger that the project configures lets it through."""
    names = (getattr(settings, "LOGGING", None) or {}).get("loggers", {})
    levels = [logging.getLogger(name).level for name in names if not name.startswith(_OURS)]
    return any(logging.NOTSET < one <= getattr(logging, level) for one in levels)
