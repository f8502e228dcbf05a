"""The waits and attempts of a job as an SVG chart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.admin import axes
from django_ojs.domain.job import JobRow
from django_ojs.models import Attempt
from django_ojs.services.phrases import humanize_duration

WIDTH = 760
_LABEL = 120
_ROW = 22
_AXIS = 16


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A wait or an attempt."""

    label: str
    start: datetime
    end: datetime
    kind: str
    """``wait``, ``run``, ``good``, ``bad`` or ``warn``."""

    @property
    def lasted(self) -> str:
        return humanize_duration(self.end - self.start)


def spans(job: JobRow, attempts: list[Attempt], now: datetime) -> list[TimelineSpan]:
    """The waits and attempts of a job in order."""
    found: list[TimelineSpan] = []
    at = job.created_at

    def waits(until: datetime) -> None:
        if until > at:
            found.append(TimelineSpan(_("waits"), at, until, "wait"))

    for row in attempts:
        waits(row.started_at)
        kind = {"completed": "good", "released": "wait", "requeued": "warn"}.get(row.outcome, "bad")
        found.append(TimelineSpan(f"#{row.attempt} {row.outcome}", row.started_at, row.ended_at, kind))
        at = row.ended_at
    if job.lease_id is not None and job.started_at is not None:
        waits(job.started_at)
        found.append(TimelineSpan(f"#{job.attempt} " + _("running"), job.started_at, now, "run"))
    elif job.finished_at is None:
        found.append(TimelineSpan(_("waits"), at, max(at, now), "wait"))
    else:
        waits(job.finished_at)
    return found


def picture(found: list[TimelineSpan]) -> SafeString:
    """The spans as bars over a time axis."""
    if not found:
        return SafeString("")
    start, end = found[0].start, max(span.end for span in found)
    whole = max((end - start).total_seconds(), 0.001)
    room = WIDTH - _LABEL

    def place(moment: datetime) -> float:
        return round(_LABEL + room * (moment - start).total_seconds() / whole, 1)

    bars = format_html_join(
        "",
        '<text x="0" y="{}" class="ojs-label">{}</text>'
        '<rect x="{}" y="{}" width="{}" height="14" rx="2" class="ojs-bar ojs-bar-{}">'
        "<title>{}</title></rect>",
        (
            (
                index * _ROW + 14,
                span.label[:22],
                place(span.start),
                index * _ROW + 3,
                max(2.0, round(place(span.end) - place(span.start), 1)),
                span.kind,
                f"{span.label}: {span.lasted}",
            )
            for index, span in enumerate(found[:40])
        ),
    )
    height = min(len(found), 40) * _ROW + 6
    return format_html(
        '<svg class="ojs-chart" role="img" width="{}" height="{}" viewBox="0 0 {} {}">'
        "<title>{}</title>{}{}</svg>",
        WIDTH,
        height + _AXIS,
        WIDTH,
        height + _AXIS,
        _("The life of the job: the table below says the same"),
        _axis(whole, height),
        bars,
    )


def _axis(whole: float, height: int) -> SafeString:
    """Lines at round times since the job was created, for a life of so many seconds."""
    found = [ms for ms in axes.spans(whole * 1000) if ms <= whole * 1000]
    places = [round(_LABEL + (WIDTH - _LABEL) * ms / 1000 / whole, 1) for ms in found]
    return format_html_join(
        "",
        '<line x1="{0}" x2="{0}" y1="0" y2="{1}" class="ojs-grid"/>'
        '<text x="{0}" y="{2}" text-anchor="{3}" class="ojs-axis">{4}</text>',
        (
            (
                place,
                height,
                height + _AXIS - 4,
                "start" if not ms else "end" if place > WIDTH - 30 else "middle",
                humanize_duration(timedelta(milliseconds=ms)),
            )
            for ms, place in zip(found, places, strict=True)
        ),
    )
