"""Cells of lists: columns with labels for narrow screens, badges, and spans of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_ojs.domain.retry import UNLIMITED
from django_ojs.services.phrases import humanize_duration

Cell = Callable[[Any, Any], str]


def column(label: Any) -> Callable[[Cell], Cell]:
    """A column whose cells repeat its label on screens that are too narrow for headings."""

    def decorate(cell: Cell) -> Cell:
        @admin.display(description=label)
        @wraps(cell)
        def labelled(self: Any, row: Any) -> str:
            value = cell(self, row)
            return format_html('<span data-label="{}">{}</span>', label, value) if value else ""

        return labelled

    return decorate


def badge(tone: str, word: Any) -> SafeString:
    """A coloured word: ``good``, ``run``, ``warn``, ``bad`` or ``quiet``."""
    return format_html('<span class="ojs-badge ojs-{}">{}</span>', tone, word)


def grey(text: Any) -> SafeString:
    """Text that needs no attention."""
    return format_html('<span class="ojs-quiet">{}</span>', text)


def shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


def span_of(span: timedelta, moment: datetime) -> SafeString:
    """A span of time, with the moment that it reaches to in its title."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(), moment, humanize_duration(span)
    )


def since(moment: datetime | None, now: datetime) -> SafeString:
    """How long ago a moment was, a dash for none."""
    if moment is None:
        return grey("—")
    return span_of(max(now - moment, timedelta(0)), moment)


def attempt_of(row: Any) -> str:
    """The number of the attempt, and how many there may be unless there is no limit."""
    return str(row.attempt) if row.max_attempts == UNLIMITED else f"{row.attempt}/{row.max_attempts}"
