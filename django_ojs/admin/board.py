"""The board of queues as HTML: a row for each, and its pause in place.

The rows are written here and not by Django's list, whose cells cost a template each: the board is
read again every few seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs.admin import charts, links
from django_ojs.admin.cells import (
    Column,
    Heading,
    badge,
    grey,
    select_box,
    shortened,
    since,
    translated,
    written,
)
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.links import SiteLinks
from django_ojs.admin.queue_figures import QueueOverview, Service
from django_ojs.admin.sorting import PARAMETER
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store.selectors import QueueDepth

_TONES = ("", "warn", "warn", "bad")
"""By how bad it is."""


class Switch(NamedTuple):
    """The operation that a row offers in place, and where it is posted to."""

    label: Any
    url: str


class BoardList(KeysetChangeList):
    """A page of rows that a board writes, with the columns after their name: in order of trouble, or
    sorted by a column.
    """

    columns: Sequence[Column]
    headings: Sequence[Heading]
    board: SafeString

    def arrange(self, columns: Sequence[Column], rank: Callable[[Any], Any]) -> None:
        """Sort the rows of the page, each with its ``ojs_overview``."""
        self.columns = translated(columns)
        asked = str(self.params.get(PARAMETER, ""))
        name, down = asked.removeprefix("-"), asked.startswith("-")
        self.result_list.sort(key=rank)
        for column in self.columns:
            if column.name == name and column.value is not None:
                # Of those that are equal the worst stays first.
                self.result_list.sort(key=column.value, reverse=down)
        self.headings = [self._heading(column, name, down) for column in self.columns]

    def _heading(self, column: Column, name: str, down: bool) -> Heading:
        if column.value is None:
            return Heading(column)
        on = column.name == name
        url = self.get_query_string({PARAMETER: column.name if on and down else f"-{column.name}"})
        return Heading(column, url, ("descending" if down else "ascending") if on else "")


def rows(
    site: SiteLinks,
    found: Sequence[Any],
    columns: Sequence[Column],
    switches: Mapping[str, Switch],
    *,
    selectable: bool,
) -> SafeString:
    """The rows of the board, in their order; each has ``ojs_overview``. A queue in ``switches`` has its
    button, each has a box if actions are offered.
    """
    made = ((_row(site, row, columns, switches.get(row.name), selectable),) for row in found)
    return format_html_join("", "{}", made)


def forms(switches: Mapping[str, Switch], hidden: SafeString) -> SafeString:
    """The forms of the buttons in the rows, which stand in the form of the list's actions."""
    return format_html_join(
        "",
        '<form id="{}" method="post" action="{}">{}</form>',
        ((_form_of(name), switch.url, hidden) for name, switch in switches.items()),
    )


def _row(
    site: SiteLinks,
    row: Any,
    columns: Sequence[Column],
    switch: Switch | None,
    selectable: bool,
) -> SafeString:
    overview: QueueOverview = row.ojs_overview
    return row_of(
        row,
        columns,
        site,
        name=links.link(site.page_of("queue", row.pk), row.name),
        tone=_TONES[overview.trouble(row.paused)],
        selectable=selectable,
        last=format_html('<td class="field-switch">{}</td>', _switch(row, switch) if switch else ""),
    )


def row_of(
    row: Any,
    columns: Sequence[Column],
    site: SiteLinks,
    *,
    name: str,
    tone: str,
    selectable: bool,
    last: str = "",
) -> SafeString:
    """A row of a board: a box if it can be selected, the name in the colour of its trouble, and a cell
    for each column.
    """
    return format_html(
        '<tr data-key="{}">{}<th class="field-name{}">{}</th>{}{}</tr>',
        row.pk,
        format_html('<td class="action-checkbox">{}</td>', select_box(row.pk, row.name))
        if selectable
        else "",
        f" ojs-trouble ojs-{tone}" if tone else "",
        name,
        written(columns, row, site),
        last,
    )


def _switch(row: Any, switch: Switch) -> SafeString:
    form = _form_of(row.name)
    return format_html(
        '<details id="{form}-in" class="ojs-switch"><summary>{label}</summary>'
        '<label for="{form}-why">{why}</label> <input id="{form}-why" name="reason" form="{form}"'
        ' maxlength="500" aria-describedby="ojs-switch-says"> '
        '<button type="submit" form="{form}" class="button">{label} <span>{name}</span></button>'
        "</details>",
        form=form,
        label=switch.label,
        why=_("Why"),
        name=row.name,
    )


def _form_of(name: str) -> str:
    """The id of a form: names can have characters that ids cannot."""
    return f"ojs-switch-{hashlib.blake2s(name.encode(), digest_size=6).hexdigest()}"


# Cells


def badges(row: Any, service: Service) -> SafeString:
    """The status of a queue as coloured words: one word while all is well."""
    said = [("warn", _("paused"))] if row.paused else []
    if service.state == "none":
        said.append(("bad", _("no live workers")))
    elif service.state == "quiet":
        said.append(("warn", _("all workers are quiet")))
    return format_html_join(" ", "{}", ((badge(*one),) for one in said or [("good", _("running"))]))


def spark(title: str, values: Sequence[int], tone: str) -> SafeString:
    """The sum and a sparkline; a grey zero when there is nothing to draw."""
    total = sum(values)
    if not total:
        return grey(0)
    return format_html("{} {}", charts.plain(total), charts.sparkline(title, values, tone))


def counted(depth: QueueDepth, state: str) -> SafeString:
    """The number of jobs, or a lower bound; grey when none was found among the rows examined."""
    count = depth.counts[state]
    if state not in depth.capped:
        return format_html("{}", charts.plain(count))
    text = charts.at_least(count)
    return format_html("{}", text) if count else grey(text)


def oldest(depth: QueueDepth, now: datetime) -> SafeString:
    """How long the oldest available job has waited, or a lower bound."""
    mark = "≥ " if depth.oldest is not None and State.AVAILABLE in depth.capped else ""
    return format_html("{}{}", mark, since(depth.oldest, now))


def utilisation(service: Service) -> SafeString:
    """How busy the workers of a queue are, as a bar with its figures."""
    if not service.workers:
        return grey("—")
    workers = ngettext("%(n)s worker", "%(n)s workers", service.workers) % {
        "n": charts.plain(service.workers)
    }
    if not service.slots:
        return format_html("{}", workers)
    return format_html(
        '<meter min="0" max="{0}" value="{1}" title="{2}">{1}/{0}</meter> {1}/{0}',
        service.slots,
        min(service.busy, service.slots),
        _("%(busy)s of %(slots)s slots of %(workers)s are busy")
        % {"busy": service.busy, "slots": service.slots, "workers": workers},
    )


def _jobs_in(state: State) -> Column:
    """The column with the number of jobs in a state, linked to them."""

    def cell(row: Any, site: SiteLinks) -> str:
        depth = row.ojs_overview.depth
        text = counted(depth, state)
        url = site.list_of("job", state=state, queue=row.name)
        return links.link(url, text) if depth.counts[state] else text

    return Column(
        state.value, Job.States(state).label, cell, lambda row: row.ojs_overview.depth.counts[state]
    )


def _paused(row: Any, site: SiteLinks) -> str:
    """Who paused it, when and why."""
    if not row.paused:
        return ""
    when = since(row.paused_at, row.ojs_overview.now)
    reason = shortened(row.reason) or "—"
    return format_html("{} · {} · {}", row.paused_by or "—", when, reason)


COLUMNS: tuple[Column, ...] = (
    Column("badges", gettext_lazy("status"), lambda row, site: badges(row, row.ojs_overview.service)),
    _jobs_in(State.AVAILABLE),
    Column(
        "oldest",
        gettext_lazy("oldest waits"),
        lambda row, site: oldest(row.ojs_overview.depth, row.ojs_overview.now),
        lambda row: row.ojs_overview.waited,
    ),
    _jobs_in(State.ACTIVE),
    Column(
        "busy",
        gettext_lazy("slots busy"),
        lambda row, site: utilisation(row.ojs_overview.service),
        lambda row: row.ojs_overview.service.utilisation,
    ),
    _jobs_in(State.SCHEDULED),
    _jobs_in(State.RETRYABLE),
    Column(
        "throughput",
        gettext_lazy("completed, last hour"),
        lambda row, site: spark(_("Completed, last hour"), row.ojs_overview.hour.completed, "good"),
        lambda row: sum(row.ojs_overview.hour.completed),
    ),
    Column(
        "failures",
        gettext_lazy("failed, last hour"),
        lambda row, site: spark(_("Failed attempts, last hour"), row.ojs_overview.hour.failed, "bad"),
        lambda row: sum(row.ojs_overview.hour.failed),
    ),
    Column("paused_because", gettext_lazy("paused by"), _paused),
)
