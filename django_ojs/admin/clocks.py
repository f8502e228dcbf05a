"""The four timeouts of a job: limit, time used and left, when each fires, which one is next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from django_ojs.domain.failures import cause_of
from django_ojs.domain.job import JobRow, ran_for
from django_ojs.domain.states import TERMINAL, State
from django_ojs.domain.timeouts import (
    active_deadline,
    heartbeat_deadline,
    soft_deadline,
    start_deadline,
    total_deadline,
)
from django_ojs.services.phrases import humanize_duration

_FIRED = {
    "timeout": "execution",
    "visibility_timeout": "execution",
    "total_timeout": "total",
    "enqueue_ttl_expired": "queue",
    "stalled": "heartbeat",
}


@dataclass(slots=True)
class TimeoutClock:
    """One timeout of a job; without ``fires_at`` it is not running."""

    name: str
    label: str
    limit: timedelta | None
    note: str = ""
    used: timedelta | None = None
    fires_at: datetime | None = None
    left: timedelta | None = None
    nearest: bool = False
    fired: bool = False
    """Whether it ended the job, or its last attempt."""

    @property
    def late(self) -> bool:
        return self.left is not None and self.left < timedelta(0)


def clocks(job: JobRow, now: datetime) -> list[TimeoutClock]:
    """Execution, total, time in queue and heartbeat, as they stand at ``now``."""
    running = job.state == State.ACTIVE
    live = job.state not in TERMINAL
    grace = _("and %s grace") % humanize_duration(_ms(job.grace_period_ms))
    execution = TimeoutClock("execution", _("Execution"), _ms(job.timeout_ms + job.extended_ms), grace)
    if job.extended_ms:
        execution.note += ", " + _("%s of it added") % humanize_duration(_ms(job.extended_ms))
    total = TimeoutClock("total", _("Total"), _ms(job.total_timeout_ms))
    queue = TimeoutClock("queue", _("Time in queue"), _ms(job.enqueue_ttl_ms))
    if job.attempt_ttl_ms is not None:
        queue.note = _("and %s for each attempt") % humanize_duration(_ms(job.attempt_ttl_ms))
    if job.expires_at is not None:
        queue.note = _("or by its expiry")
    beat = TimeoutClock("heartbeat", _("Heartbeat"), _ms(job.heartbeat_timeout_ms))
    if running and job.started_at is not None:
        soft = soft_deadline(job)
        execution.used = now - job.started_at
        execution.fires_at = soft if soft is not None and soft > now else active_deadline(job)
        if execution.fires_at is not soft:
            execution.note = _("in its grace period")
        beat.fires_at = heartbeat_deadline(job)
        beat.used = None if job.heartbeat_at is None else now - job.heartbeat_at
        if beat.fires_at is None:
            beat.note = _("not enforced: this worker never promised beats")
    if live:
        total.fires_at = total_deadline(job)
        total.used = now - job.limits_from
    queue.fires_at = start_deadline(job) if live and not running else None
    if queue.fires_at is not None or (live and not running and not job.attempt):
        queue.used = now - ((job.enqueued_at if job.attempt else None) or job.limits_from)
    if not live and job.finished_at is not None:
        total.used = job.finished_at - job.limits_from
        execution.used = ran_for(job)
    found = [execution, total, queue, beat]
    error = None if running or job.error is None else job.json("error")
    if isinstance(error, dict):
        kind = str((cause_of(error) or error).get("type"))
        for clock in found:
            clock.fired = _FIRED.get(kind) == clock.name
    for clock in found:
        if clock.fires_at is not None:
            clock.left = clock.fires_at - now
    ticking = [clock for clock in found if clock.left is not None]
    if ticking:
        min(ticking, key=_left).nearest = True
    return found


def _left(clock: TimeoutClock) -> Any:
    return clock.left


def _ms(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(milliseconds=value)
