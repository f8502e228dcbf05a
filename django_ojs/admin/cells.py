"""Cells of lists: labels for narrow screens, and spans of time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_ojs.admin.clocks import humanize_duration


def labelled(label: str, value: str) -> SafeString:
    """The value with its name, for screens that are too narrow for headings."""
    return format_html('<span data-label="{}">{}</span>', label, value)


def shortened(text: str) -> str:
    """The first 80 characters."""
    return text if len(text) <= 80 else f"{text[:80]}…"


def span_of(span: timedelta, moment: datetime) -> SafeString:
    """A span of time, with the moment that it reaches to in its title."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(), moment, humanize_duration(span)
    )


def since(moment: datetime | None, now: datetime) -> SafeString:
    """How long ago a moment was, a dash for none."""
    if moment is None:
        return format_html('<span class="ojs-quiet">{}</span>', "—")
    return span_of(max(now - moment, timedelta(0)), moment)
