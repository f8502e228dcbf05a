"""Whether the loggers let through what ``OJS["LOGS"]`` is to keep."""

from __future__ import annotations

import logging
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from django_ojs import conf

_OTHERS = ("django", "django_ojs", "asyncio", "concurrent")
"""Whose loggers say nothing about those of the project."""


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
    """Whether any logger of the project has a level of its own that lets it through."""
    return any(
        isinstance(one, logging.Logger)
        and logging.NOTSET < one.level <= getattr(logging, level)
        and name.partition(".")[0] not in _OTHERS
        for name, one in list(logging.root.manager.loggerDict.items())
    )
