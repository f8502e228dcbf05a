"""A job as it is now: what fell due since the last pass of the reaper is done first (decision L5)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.domain.errors import NotFound
from django_ojs.domain.job import JobRecord, Transition
from django_ojs.domain.silence import Hearing
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import fired
from django_ojs.services import inspect, operate, reap, reaper
from django_ojs.store.columns import DUE


def current(job_id: UUID, *, using: str | None = None) -> JobRecord:
    """The record of a job, promoted or ended if its time has come. Raises :class:`NotFound`.

    Running attempts are ended here only while scans are regular: after an outage the living are
    given time to be heard first (decision T9).
    """
    using = using or conf.current().database
    job = inspect.find(job_id, using=using)
    now = clock.stamp(using)
    if not _due(job, now):
        return job
    running = job.state == State.ACTIVE
    judging = not running or reaper.reaper_is_current(now=now, using=using)
    hearing = reaper.hearing_of(now=now, using=using) if running else Hearing(now)

    def decide(job: JobRecord, now: datetime) -> Transition | None:
        if job.state == State.ACTIVE:
            if not judging:
                return None
            (job,) = reap.heard([job], hearing, now=now, using=using)
        late = lifecycle.overdue(job, now=now, jitter=clock.jitter())
        if late is not None or not _promotable(job, now):
            return late
        return lifecycle.promote(job, now=now)

    try:
        return operate.decide_each([job_id], decide, using=using)[0]
    except NotFound:
        # Deleted since it was read.
        return inspect.find(job_id, using=using)


def _due(job: JobRecord, now: datetime) -> bool:
    return fired(job, now) is not None or _promotable(job, now)


def _promotable(job: JobRecord, now: datetime) -> bool:
    return job.state in DUE and job.scheduled_at is not None and job.scheduled_at <= now
