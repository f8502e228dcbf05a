"""The menu of each row of the job list: what the user may do with the job, its id and time to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.admin import links
from django_ojs.admin.actions import Operation


class _Item(NamedTuple):
    """An operation: on which rows, its classes, its name, and its addresses."""

    allowed: Callable[[Any], bool]
    kind: str
    label: str
    url: Callable[[object], str]


class JobMenu:
    """The menus of a page; ``url_to`` has the address of an operation on a row. What is in each of them
    is found and translated once.
    """

    def __init__(
        self, operations: Iterable[Operation], url_to: Callable[[Operation, object], str]
    ) -> None:
        self._items = [
            _Item(one.allowed, _kind(one), str(one.label), links.of_rows(partial(url_to, one)))
            for one in operations
        ]
        self._more, self._copied, self._copy = _("More"), _("Copied"), _("Copy")

    def of_row(self, row: Any, short: str, when: str) -> SafeString:
        """What the user may do with the job as it is now; its whole id and time, to be copied."""
        items = format_html_join(
            "",
            '<li><a class="{}" href="{}">{}</a></li>',
            ((one.kind, one.url(row.pk), one.label) for one in self._items if one.allowed(row)),
        )
        return format_html(
            '<td class="field-menu" rowspan="2"><details class="ojs-menu" name="ojs-menu">'
            '<summary title="{0}"><span class="visually-hidden">{0} {1}</span>'
            '<span aria-hidden="true">⋯</span></summary>'
            '<div><ul>{2}</ul><p><code id="ojs-id-{3}">{3}</code> <button type="button"'
            ' class="ojs-copy" data-copies="ojs-id-{3}" data-done="{4}">{5}</button></p>'
            "<p>{6}</p></div></details></td>",
            self._more,
            short,
            items,
            row.pk,
            self._copied,
            self._copy,
            when,
        )


def _kind(one: Operation) -> str:
    """The classes of its link; one is for the key that retries."""
    again = " ojs-again" if one.name in ("retry", "run_now") else ""
    return f"ojs-act{' ojs-danger' if one.danger else ''}{again}"
