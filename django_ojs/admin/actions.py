"""Operations of the admin, and their reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs.admin.forms import ReasonForm
from django_ojs.domain.job import Actor

Words = Any
Run = Callable[[Sequence[Any], Mapping[str, Any], Actor], "ActionReport"]
"""Performs an operation on the rows with these keys, with the fields of its form."""
_GO_BACK = gettext_lazy("Go back")


class Chosen(NamedTuple):
    """The keys of the selected rows, up to a limit, whether these are all, and those of which there is
    no row any more.
    """

    keys: list[Any]
    whole: bool
    gone: Sequence[Any] = ()


@dataclass(slots=True)
class ActionReport:
    """The outcome of an operation: how many rows it changed, and why it skipped others."""

    done: int = 0
    skipped: list[str] = field(default_factory=list)
    made: str | None = None
    """The id of a new job, whose page is shown next."""
    notes: list[str] = field(default_factory=list)
    """Further messages about the rows that were changed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on rows, offered in the list and on the page of a row.

    ``permission`` is a codename of this app. ``allowed`` says whether to offer it for a row; ``run``
    gets the keys, the cleaned form and the actor, and checks everything again under its locks.
    """

    name: str
    label: Words
    permission: str
    consequence: Words
    run: Run
    form: type[ReasonForm] = ReasonForm
    allowed: Callable[[Any], bool] = lambda row: True
    danger: bool = False
    single: bool = False
    """For one row at a time only."""
    also: Sequence[str] = ()
    """Further permissions that are required."""
    several: Words = ""
    """The label for more than one row, if it differs."""
    back: tuple[Words, Words] = (_GO_BACK, _GO_BACK)
    """The label of the button that leaves the confirmation, for one row and for several. It must
    differ from that of the operation ("Cancel" would be ambiguous)."""


def report_to_user(
    page: admin.ModelAdmin[Any], request: HttpRequest, operation: Operation, report: ActionReport
) -> None:
    """Show what was done, and why the first few skipped rows were skipped."""
    if report.done:
        said = ngettext("%(label)s: %(n)d done.", "%(label)s: %(n)d done.", report.done)
        page.message_user(
            request, said % {"label": operation.label, "n": report.done}, messages.SUCCESS
        )
    if not report.done and not report.skipped:
        page.message_user(request, _("Nothing had to be changed."), messages.INFO)
    for text in report.notes[:5]:
        page.message_user(request, text, messages.INFO)
    for text in report.skipped[:5]:
        page.message_user(request, text, messages.WARNING)
    if len(report.skipped) > 5:
        more = len(report.skipped) - 5
        left = ngettext("%d more was left as it is.", "%d more were left as they are.", more)
        page.message_user(request, left % more, messages.WARNING)


def say_gone(key: object) -> str:
    """That a row no longer exists."""
    return _("%s is no longer there.") % key
