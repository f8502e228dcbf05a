"""Cells of lists: columns with labels for narrow screens, badges, and spans of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, NamedTuple

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.domain.retry import UNLIMITED
from django_ojs.services.phrases import full_moment, humanize_duration

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


class Column(NamedTuple):
    """A column of a list whose rows are not written by Django, by its class in the style sheet.

    ``cell`` is given the row, and what the rows of a page share; ``value`` has what the rows of a board
    are sorted by, if they can be.
    """

    name: str
    label: Any
    cell: Callable[[Any, Any], Any]
    value: Callable[[Any], Any] | None = None


def translated(columns: Iterable[Column]) -> list[Column]:
    """The columns with labels in the language of the reader: each is in every row."""
    return [column._replace(label=str(column.label)) for column in columns]


class Heading(NamedTuple):
    """The heading of a column, with the address of the list in its order, if it has one.

    ``sorted`` is how the list is sorted by it: ``ascending``, ``descending`` or not at all.
    """

    column: Column
    url: str = ""
    sorted: str = ""


def written(columns: Iterable[Column], row: Any, shared: Any) -> SafeString:
    """The cells of a row, with labels for screens that are too narrow for headings."""
    found = ((column, column.cell(row, shared)) for column in columns)
    return format_html_join(
        "",
        '<td class="field-{}">{}</td>',
        (
            (
                column.name,
                format_html('<span data-label="{}">{}</span>', column.label, value) if value else "",
            )
            for column, value in found
        ),
    )


def select_box(key: object, name: object) -> SafeString:
    """The box that selects a row for an action of its list."""
    return format_html(
        '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="{}">',
        ACTION_CHECKBOX_NAME,
        key,
        _("Select %s") % name,
    )


def badge(tone: str, word: Any) -> SafeString:
    """A coloured word: ``good``, ``run``, ``warn``, ``bad`` or ``quiet``."""
    return format_html('<span class="ojs-badge ojs-{}">{}</span>', tone, word)


def grey(text: Any) -> SafeString:
    """Text that needs no attention."""
    return format_html('<span class="ojs-quiet">{}</span>', text)


def shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


def time_of(moment: datetime, words: str) -> SafeString:
    """A moment in words, with the whole of it in the title."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(), full_moment(moment), words
    )


def span_of(span: timedelta, moment: datetime) -> SafeString:
    """A span of time, with the moment that it reaches to in its title."""
    return time_of(moment, humanize_duration(span))


def since(moment: datetime | None, now: datetime) -> SafeString:
    """How long ago a moment was, a dash for none."""
    if moment is None:
        return grey("—")
    return span_of(max(now - moment, timedelta(0)), moment)


def attempt_of(row: Any) -> str:
    """The number of the attempt, and how many there may be unless there is no limit."""
    return str(row.attempt) if row.max_attempts == UNLIMITED else f"{row.attempt}/{row.max_attempts}"
