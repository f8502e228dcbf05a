"""End what is overdue, but for members of workflows that another transaction holds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django_ojs import clock, hooks
from django_ojs.domain import lifecycle
from django_ojs.domain.job import JobRow, Transition


def ends(
    jobs: Iterable[JobRow], *, now: datetime, using: str
) -> tuple[dict[UUID, Transition], set[UUID]]:
    """What becomes of those of the jobs that are overdue, and those of them to be left for later: to
    end them would mean to wait for another transaction.

    To be called in the transaction that locked the jobs. Decides nothing of those that are not overdue.
    """
    found = {
        job.id: end
        for job in jobs
        if (end := lifecycle.overdue(job, now=now, jitter=clock.jitter())) is not None
    }
    held = hooks.held_by_others([end.job for end in found.values()], using=using)
    for job_id in held:
        del found[job_id]
    return found, held
