"""What an action of the screens is, and what it reports."""

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
_GO_BACK = gettext_lazy("Go back")


class Chosen(NamedTuple):
    """The keys of the first rows that an action is about, and whether these are all."""

    keys: list[Any]
    whole: bool


@dataclass(slots=True)
class ActionReport:
    """What an operation did: how many rows it changed, and why it left others alone."""

    done: int = 0
    skipped: list[str] = field(default_factory=list)
    made: str | None = None
    """The id of a job that was made: its page is shown afterwards."""
    notes: list[str] = field(default_factory=list)
    """What was done to some rows, where "done" does not say it all."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that people do to rows, from the list and from the page of one.

    ``permission`` is a codename of this app. ``allowed`` says whether to offer it for a row; ``run``
    gets the keys, the cleaned form and the actor, and checks everything again under its locks.
    """

    name: str
    label: Words
    permission: str
    consequence: Words
    run: Callable[[Sequence[Any], Mapping[str, Any], Actor], ActionReport]
    form: type[ReasonForm] = ReasonForm
    allowed: Callable[[Any], bool] = lambda row: True
    danger: bool = False
    single: bool = False
    """For one row at a time only."""
    also: Sequence[str] = ()
    """Further permissions that it needs."""
    several: Words = ""
    """The label for more than one row, where it is another."""
    back: tuple[Words, Words] = (_GO_BACK, _GO_BACK)
    """What the way back from its confirmation is called, for one row and for several: never like the
    way on."""


def report_to_user(
    page: admin.ModelAdmin[Any], request: HttpRequest, operation: Operation, report: ActionReport
) -> None:
    """Say what was done, and of the first few rows that were left alone why."""
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
