"""The words of a search: ``type:mail.send actor:"Ada L." 01975ab3-...``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _


class Term(NamedTuple):
    """A word of a search. ``qualifier`` is what stands before the colon, ``None`` without one."""

    qualifier: str | None
    value: str
    text: str
    """As it was typed."""
    quoted: bool


def terms(text: str, qualifier: str) -> Iterator[Term]:
    """The words of a search; a value with spaces is in double quotes.

    ``qualifier`` is the regular expression of what may stand before a colon.
    """
    for match in re.finditer(rf'(?:({qualifier}):)?(?:"([^"]*)"|(\S+))', text):
        name, quoted, plain = match.groups()
        yield Term(name, plain if quoted is None else quoted, match[0], quoted is not None)


def not_understood(
    request: HttpRequest, words: Sequence[str], queryset: QuerySet[Any], hint: str = ""
) -> tuple[QuerySet[Any], bool]:
    """The result of a search with words that mean nothing: no rows, and a message."""
    said = _("Not understood: %s") % ", ".join(words)[:200]
    messages.warning(request, f"{said} {hint}".strip())
    return queryset.none(), False
