"""The last runs of a job type as a chart: a bar for each, as long as it took, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from uuid import UUID

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.admin.charts import plain
from django_ojs.domain.job import ran_for
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services.phrases import humanize_duration

MOST = 60
FEWEST = 5
"""Runs that must have completed to say what is usual."""
MUCH = 1.5
"""So many times as long as usual is worth saying."""
_WIDTH, _HEIGHT = 720, 60
_KINDS = {"completed": "good", "discarded": "bad", "retryable": "warn", "active": "run"}


@dataclass(frozen=True, slots=True)
class RecentRun:
    """A job of the type that was made before."""

    pk: UUID
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    enqueued_at: datetime | None
    scheduled_at: datetime | None

    @property
    def lasted(self) -> timedelta | None:
        """How long its last attempt took; ``None`` for one that has not ended, or waited afterwards."""
        return ran_for(self)

    @property
    def words(self) -> str:
        return humanize_duration(self.lasted)

    @property
    def label(self) -> str:
        """Its state, translated."""
        return str(Job.States(self.state).label)


def beside(lasted: timedelta | None, runs: Sequence[RecentRun]) -> str:
    """How long a job has run, beside those that completed before it; empty for fewer than five."""
    completed = (run.lasted for run in runs if run.state == State.COMPLETED)
    before = [span.total_seconds() for span in completed if span]
    if lasted is None or len(before) < FEWEST:
        return ""
    usual = timedelta(seconds=median(before))
    words = {"took": humanize_duration(lasted), "usual": humanize_duration(usual)}
    times = lasted / usual
    if times >= MUCH:
        return _("This one: %(took)s, %(times)s times the usual %(usual)s.") % {
            **words,
            "times": plain(round(times, 1) if times < 10 else round(times)),
        }
    return _("This one: %(took)s; usual: %(usual)s.") % words


def picture(runs: Sequence[RecentRun]) -> SafeString:
    """The runs from the oldest to the newest; empty for fewer than two."""
    if len(runs) < 2:
        return SafeString("")
    top = max((run.lasted for run in runs if run.lasted), default=timedelta()).total_seconds() or 1.0
    step = _WIDTH / MOST
    bars = []
    for place, run in enumerate(reversed(runs)):
        share = run.lasted.total_seconds() / top if run.lasted else 0.0
        height = max(3.0, round((_HEIGHT - 2) * share, 1))
        kind = _KINDS.get(run.state, "wait")
        said = f"{run.label}: {run.words}"
        bars.append((place * step, _HEIGHT - height, step - 2, height, kind, said))
    return format_html(
        '<svg class="ojs-chart" role="img" width="{w}" height="{h}" viewBox="0 0 {w} {h}">'
        "<title>{title}</title>{bars}</svg>",
        w=_WIDTH,
        h=_HEIGHT,
        title=_("How long they took, the longest %s: the table below says the same")
        % humanize_duration(timedelta(seconds=top)),
        bars=format_html_join(
            "",
            '<rect x="{}" y="{}" width="{}" height="{}" class="ojs-bar ojs-bar-{}">'
            "<title>{}</title></rect>",
            bars,
        ),
    )
