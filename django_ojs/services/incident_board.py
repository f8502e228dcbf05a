"""The most frequent incidents of a window: how often, since when, and what became of their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import Sum

from django_ojs.domain.histogram import floor
from django_ojs.domain.states import State
from django_ojs.models import DeployMark, FailureStat, Incident, Worker
from django_ojs.services import deploys, stats_queries
from django_ojs.store import incident_jobs
from django_ojs.store.truncation import CutToHour, CutToMinute

MOST = 12
COUNTED = 40_000
"""How many jobs are counted for one board, shared among its incidents by their failures."""
LEAST = 1000
"""How many of an incident are counted however rare it is."""
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class BoardWindow:
    """A period, and the step of its trend."""

    span: timedelta
    step: timedelta


@dataclass(slots=True)
class IncidentCard:
    """An incident with its failed attempts in the window, and its jobs as they are now.

    ``whole`` is whether all of its jobs were counted: otherwise the numbers are lower bounds.
    ``workers`` are the versions of the workers that had its newest jobs, with the number of attempts.
    ``started`` is when the last worker started in the hour before it was first seen, ``deploy`` the
    last deployment of that hour.
    """

    incident: Incident
    failures: int
    trend: Sequence[int]
    states: Counter[str] = field(default_factory=Counter)
    whole: bool = True
    workers: Counter[str] = field(default_factory=Counter)
    started: datetime | None = None
    deploy: DeployMark | None = None

    @property
    def jobs(self) -> int:
        """How many jobs failed so, and not otherwise since."""
        return self.states.total()

    def count(self, *states: State) -> int:
        return sum(self.states[state] for state in states)


@dataclass(frozen=True, slots=True)
class IncidentBoard:
    """The incidents, the most frequent first; whether there are more; when the trends begin."""

    window: BoardWindow
    cards: Sequence[IncidentCard]
    more: bool
    begin: datetime
    until: datetime


def board(window: BoardWindow, *, now: datetime, using: str) -> IncidentBoard:
    """Read the board in seven statements, from the roll-up and by index."""
    until = stats_queries.watermark(now=now, using=using)
    begin = floor(now - window.span, window.step)
    rows = FailureStat.objects.using(using).filter(step__in=(60, 3600), at__gte=begin)
    sums = rows.exclude(incident="").values_list("incident").annotate(n=Sum("count"))
    found = dict(sums.order_by("-n", "incident")[: MOST + 1])
    more = len(found) > MOST
    numbers = dict(list(found.items())[:MOST])
    known = Incident.objects.using(using).in_bulk(list(numbers))
    # Those of an older roll-up, or just forgotten, have counts alone.
    numbers = {key: int(n) for key, n in numbers.items() if key in known}
    trends = _trends(list(numbers), window, begin, now, using)
    whole = sum(numbers.values()) or 1
    caps = {key: max(LEAST, COUNTED * n // whole) for key, n in numbers.items()}
    jobs = incident_jobs.jobs_of(caps, using=using)
    cards = [
        IncidentCard(
            known[key],
            n,
            trends[key],
            jobs[key].states,
            jobs[key].states.total() < caps[key],
            jobs[key].workers,
        )
        for key, n in numbers.items()
    ]
    _add_workers(cards, using)
    _add_deploys(cards, using)
    return IncidentBoard(window, cards, more, begin, until)


def _trends(
    ids: Sequence[str], window: BoardWindow, begin: datetime, now: datetime, using: str
) -> dict[str, list[int]]:
    """The failures of each incident in each step."""
    length = int((now - begin) / window.step) + 1
    trends = {key: [0] * length for key in ids}
    if not ids:
        return trends
    truncate = CutToMinute if window.step < HOUR else CutToHour
    rows = FailureStat.objects.using(using).filter(step__in=(60, 3600), at__gte=begin, incident__in=ids)
    by_time = rows.annotate(since=truncate("at", tzinfo=UTC)).values_list("incident", "since")
    for key, since, n in by_time.annotate(n=Sum("count")).order_by():
        trends[key][int((since - begin) / window.step)] += int(n)
    return trends


def _add_deploys(cards: Sequence[IncidentCard], using: str) -> None:
    """Tell which deployment preceded the first sight of each."""
    seen = [card.incident.first_seen for card in cards]
    if not seen:
        return
    marks = deploys.between(min(seen) - HOUR, max(seen), using=using)
    for card in cards:
        card.deploy = deploys.before(card.incident.first_seen, marks, HOUR)


def _add_workers(cards: Sequence[IncidentCard], using: str) -> None:
    """Replace the names of workers by their versions; tell which started shortly before."""
    names = {name for card in cards for name in card.workers}
    if not names:
        return
    versions: dict[str, str] = {}
    starts: dict[str, list[datetime]] = {}
    rows = Worker.objects.using(using).filter(name__in=names)
    for row in rows.only("name", "version", "labels", "started_at"):
        versions[row.name] = deploys.version_of(row.version, row.labels)
        starts.setdefault(row.name, []).append(row.started_at)
    for card in cards:
        first = card.incident.first_seen
        moments = [moment for name in card.workers for moment in starts.get(name, ())]
        card.started = max((m for m in moments if first - HOUR <= m <= first), default=None)
        said: Counter[str] = Counter()
        for name, n in card.workers.items():
            said[versions.get(name, "")] += n
        card.workers = said
