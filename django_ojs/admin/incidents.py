"""The failures as incidents: a card for each, with what became of its jobs and what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs import conf
from django_ojs.admin import links
from django_ojs.admin.cells import since
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.operations import JOB_OPERATIONS
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services.incident_board import HOUR, BoardWindow, IncidentBoard, IncidentCard
from django_ojs.services.phrases import humanize_duration

WINDOWS: Mapping[str, tuple[Any, BoardWindow]] = {
    "1h": (gettext_lazy("1 hour"), BoardWindow(HOUR, timedelta(minutes=1))),
    "24h": (gettext_lazy("24 hours"), BoardWindow(24 * HOUR, HOUR)),
    "7d": (gettext_lazy("7 days"), BoardWindow(168 * HOUR, 4 * HOUR)),
}
USUAL = "24h"
NO_KEY = "00000000-0000-0000-0000-000000000000"
"""Stands for the selected row: Django's list wants one, though all rows that match are meant."""
_TONES = {State.DISCARDED: "bad", State.RETRYABLE: "warn", State.COMPLETED: "good"}
_WIDTH, _HEIGHT = 240, 36


class CardNumber(NamedTuple):
    """A number of jobs, what they are, and the list that has exactly these."""

    number: str
    label: str
    url: str
    tone: str


class CardAction(NamedTuple):
    """A button that asks for confirmation of an operation on all jobs of a list."""

    name: str
    label: str
    url: str
    danger: bool


def describe(
    board: IncidentBoard, request: HttpRequest, site: AdminSite, *, now: datetime
) -> list[dict[str, Any]]:
    """The template variables of the cards."""
    step = board.window.step
    most = max((len(card.trend) for card in board.cards), default=0)
    # They are the same on each card.
    times = [date_format(timezone.localtime(board.begin + step * n), "D H:i") for n in range(most)]
    return [_describe(card, bars(card.trend, times, step), request, site, now) for card in board.cards]


def _describe(
    card: IncidentCard, trend: SafeString, request: HttpRequest, site: AdminSite, now: datetime
) -> dict[str, Any]:
    incident = card.incident
    write = plain if card.whole else at_least

    def url(**query: str) -> str:
        return links.list_for(request, site, "job", **query, q=f"incident:{incident.id}")

    numbers = [CardNumber(write(card.jobs), _jobs(card.jobs), url(), "")]
    numbers += [
        CardNumber(write(n), str(Job.States(state).label), url(state=state), _TONES.get(state, ""))
        for state in State
        if (n := card.count(state))
    ]
    return {
        "id": incident.id,
        "type": incident.type,
        "error": incident.error.rpartition(".")[2] or incident.error,
        "whole_error": incident.error,
        "message": incident.sample,
        "first": since(incident.first_seen, now),
        "last": since(incident.last_seen, now),
        "failures": _failures(card.failures),
        "trend": trend,
        "numbers": numbers,
        "actions": _actions(card, request, url, write),
        "workers": _workers(card),
    }


def _jobs(count: int) -> str:
    return ngettext("job", "jobs", count)


def _failures(count: int) -> str:
    said = ngettext("%(n)s failed attempt", "%(n)s failed attempts", count)
    return said % {"n": plain(count)}


def _actions(card: IncidentCard, request: HttpRequest, url: Any, write: Any) -> list[CardAction]:
    """What the user may do with all jobs of the incident in one state."""
    wanted = (
        ("retry", State.DISCARDED, gettext_lazy("Retry all %s")),
        ("run_now", State.RETRYABLE, gettext_lazy("Run all %s now")),
        ("discard", State.RETRYABLE, gettext_lazy("Discard all %s")),
    )
    if conf.current().admin.read_only:
        return []
    found = {item.name: item for item in JOB_OPERATIONS}
    return [
        CardAction(name, label % write(n), there, found[name].danger)
        for name, state, label in wanted
        if (n := card.count(state))
        and (there := url(state=state))
        and request.user.has_perm(f"django_ojs.{found[name].permission}")
    ]


def _workers(card: IncidentCard) -> list[str]:
    """Which versions had the newest jobs, and whether a worker had just started when it began."""
    found = [
        _("%(version)s: %(n)s of the last attempts") % {"version": name or "?", "n": plain(n)}
        for name, n in card.workers.most_common(3)
    ]
    if card.deploy is not None:
        after = humanize_duration(card.incident.first_seen - card.deploy.at)
        what = card.deploy.name or _("a version without a name")
        found.insert(
            0, _("first seen %(after)s after %(name)s was deployed") % {"after": after, "name": what}
        )
    elif card.started is not None:
        before = humanize_duration(card.incident.first_seen - card.started)
        found.append(_("first seen %s after one of its workers started") % before)
    return found


def bars(values: Sequence[int], times: Sequence[str], each: timedelta) -> SafeString:
    """The trend as bars the width of a card; each tells its time and number."""
    top = max([1, *values])
    step = _WIDTH / max(1, len(values))
    drawn = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>',
        (
            (
                round(place * step, 1),
                round(_HEIGHT - (_HEIGHT - 2) * value / top, 1),
                round(max(1.0, step - 1), 1),
                round((_HEIGHT - 2) * value / top, 1),
                times[place],
                plain(value),
            )
            for place, value in enumerate(values)
            if value
        ),
    )
    return format_html(
        '<svg class="ojs-chart ojs-trend" role="img" width="{}" height="{}" viewBox="0 0 {} {}"'
        ' preserveAspectRatio="none"><title>{}</title>'
        '<g fill="currentColor">{}</g></svg>',
        _WIDTH,
        _HEIGHT,
        _WIDTH,
        _HEIGHT,
        _("Failed attempts in each %(step)s: most %(most)s, last %(last)s")
        % {
            "step": humanize_duration(each),
            "most": plain(max([0, *values])),
            "last": plain(values[-1] if values else 0),
        },
        drawn,
    )
