"""Check-ins for Sentry's monitors: the jobs of a schedule, one for each tick.

A job that is retried goes on with its check-in; it ends with the job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sentry_sdk
from django.db import Error

from django_ojs import clock
from django_ojs.domain.cron import WORDS, Interval, timing_of

if TYPE_CHECKING:
    from django_ojs.handlers import execution
    from django_ojs.handlers.context import JobContext

_MINUTE = timedelta(minutes=1)
_MARGIN = 5
"""Minutes by which a job may be late before Sentry takes its tick for missed."""


def around(context: JobContext, next: execution.Next) -> Any:
    """Run the handler between two check-ins, if its job is that of a schedule."""
    name = context.meta.get("cron_name")
    if not isinstance(name, str):
        return next(context)
    sentry_sdk.crons.capture_checkin(
        monitor_slug=slug_of(name),
        check_in_id=_id(context.id),
        status="in_progress",
        monitor_config=config_of(name),
    )
    began = clock.boottime()
    result = next(context)
    sentry_sdk.crons.capture_checkin(
        monitor_slug=slug_of(name),
        check_in_id=_id(context.id),
        status="ok",
        duration=clock.boottime() - began,
    )
    return result


def given_up(job_id: str, meta: object) -> None:
    """The job will not complete: if it is that of a schedule, its check-in is an error."""
    name = meta.get("cron_name") if isinstance(meta, Mapping) else None
    if isinstance(name, str):
        sentry_sdk.crons.capture_checkin(
            monitor_slug=slug_of(name), check_in_id=_id(job_id), status="error"
        )


def slug_of(name: str) -> str:
    """The name of the monitor of a schedule."""
    return re.sub(r"[^a-z0-9_-]+", "-", name)[:50]


def _id(job_id: object) -> str:
    return UUID(str(job_id)).hex


def config_of(name: str) -> Any:
    """What Sentry is to expect: ``None`` of times that it cannot express and of unknown schedules.

    Read each time, since people and clients change schedules while this process runs. ``None`` also
    while the database does not answer: that is no reason to fail the attempt.
    """
    from django_ojs.models import Schedule
    from django_ojs.services import databases

    try:
        rows = Schedule.objects.using(databases.of_schedule(name)).filter(pk=name)
        row = rows.values_list("expression", "timezone").first()
    except Error:
        return None
    if row is None:
        return None
    times = _times(*row)
    if times is None:
        return None
    return {"schedule": times, "timezone": row[1], "checkin_margin": _MARGIN}


def _times(expression: str, timezone: str) -> dict[str, Any] | None:
    timing = timing_of(expression, timezone)
    if isinstance(timing, Interval):
        minutes, rest = divmod(timing.every, _MINUTE)
        return None if rest else {"type": "interval", "value": minutes, "unit": "minute"}
    fields = WORDS.get(expression.lower(), expression)
    return {"type": "crontab", "value": fields} if len(fields.split()) == 5 else None
