"""What became of a job that failed, in one sentence, and where in the application."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ojs.admin.cells import shortened
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import Attempt
from django_ojs.services.phrases import humanize_duration

_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "django_ojs/worker")
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_FAILED = (State.DISCARDED, State.RETRYABLE)


class JobVerdict(NamedTuple):
    """``frame`` are the lines of the innermost frame of the application, with the error below."""

    sentence: str
    frame: str
    trace: Sequence[str]


def verdict(job: JobRow, attempts: Sequence[Attempt]) -> JobVerdict | None:
    """The verdict on a job whose last attempt failed; ``None`` for another."""
    if job.state not in _FAILED or not attempts or not attempts[-1].error:
        return None
    last, error = attempts[-1], attempts[-1].error
    trace = list(error.get("backtrace") or ())
    frames = [line for line in trace if _PLACE.search(line)]
    innermost = (of_application(frames) or frames)[-1:]
    name, message = str(error.get("type", "")).rpartition(".")[2], str(error.get("message", ""))
    raised = f"{name}: {message}" if message else name
    # Only those since the last retry by a person, and without the waits between them.
    lived = [row for row in attempts if row.started_at >= job.limits_from] or [last]
    took = sum((row.ended_at - row.started_at for row in lived), timedelta())
    words = {"count": job.attempt, "took": humanize_duration(took)}
    failed = ngettext(
        "Failed after %(count)d attempt in %(took)s",
        "Failed after %(count)d attempts in %(took)s",
        job.attempt,
    )
    sentence = f"{failed % words}: {shortened(raised)}"
    if innermost and (place := _PLACE.search(innermost[0])):
        sentence += " " + _("in %(file)s:%(line)s, %(function)s()") % {
            **place.groupdict(),
            "file": "/".join(PurePath(place["file"]).parts[-2:]),
        }
    return JobVerdict(sentence, "\n".join([*innermost, raised]) if innermost else "", trace)


def of_application(trace: Sequence[str]) -> list[str]:
    """The lines of a trace that are not about libraries, or about us."""
    return [line for line in trace if not any(part in line for part in _LIBRARIES)]
