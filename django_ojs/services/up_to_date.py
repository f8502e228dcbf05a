"""A job as it is now: what is due of it happens before it is shown (decision L5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.domain.errors import NotFound, no_job
from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.silence import Hearing
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import fired
from django_ojs.services import operate, reap, reaper
from django_ojs.store import selectors
from django_ojs.store.columns import DUE


def find_up_to_date(job_id: UUID, *, using: str | None = None) -> JobRow:
    """The record of a job, promoted or ended first if that is due (decision L5).

    A running attempt is ended only while the reaper's scans are regular: after an outage, workers are
    given time to send a heartbeat (decision T9). Raises :class:`NotFound`.
    """
    using = using or conf.current().database
    job = _find(job_id, using)
    now = clock.stamp(using)
    if not _due(job, now):
        return job
    try:
        decide = judge(running=job.state == State.ACTIVE, now=now, using=using)
        return operate.decide_each([job_id], decide, using=using)[0]
    except NotFound:
        # Deleted meanwhile.
        return _find(job_id, using)


def judge(
    *, running: bool, now: datetime, using: str
) -> Callable[[JobRow, datetime], Transition | None]:
    """A decision for :func:`operate.decide_each`: what is due for a job that is looked at.

    ``running`` is whether there are running attempts among the jobs.
    """
    judging = not running or reaper.reaper_is_current(now=now, using=using)
    hearing = reaper.hearing_of(now=now, using=using) if running else Hearing(now)

    def decide(job: JobRow, now: datetime) -> Transition | None:
        if job.state == State.ACTIVE:
            if not judging:
                return None
            (job,) = reap.with_heartbeats([job], hearing, now=now, using=using)
        late = lifecycle.overdue(job, now=now, jitter=clock.jitter())
        if late is not None or not _promotable(job, now):
            return late
        return lifecycle.promote(job, now=now)

    return decide


def _due(job: JobRow, now: datetime) -> bool:
    return fired(job, now) is not None or _promotable(job, now)


def _promotable(job: JobRow, now: datetime) -> bool:
    return job.state in DUE and job.scheduled_at is not None and job.scheduled_at <= now


def _find(job_id: UUID, using: str) -> JobRow:
    job = selectors.jobs([job_id], using=using).get(job_id)
    if job is None:
        raise no_job(job_id)
    return job
