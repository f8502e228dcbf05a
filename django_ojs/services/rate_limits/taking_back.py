"""Take back the places of jobs that were let in and have not started, where a limit is lower now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import Job, RateLimitPlace
from django_ojs.services.rate_limits.policies import BY_QUEUE
from django_ojs.store import locking

_Status = RateLimitPlace.Status
_PAGE = 200
"""The most jobs from which one transaction takes a place."""
_SPARE = 8


class TakenBack(NamedTuple):
    """What became of the places that are too many."""

    keys: frozenset[str] = frozenset()
    """Other keys under which places are free, as their jobs wait for this one again."""
    more: bool = False
    """Whether there are more than this transaction takes."""
    locked_out: bool = False
    """Whether another transaction held jobs that were to wait."""


def take_back(key: str, excess: int, *, using: str) -> TakenBack:
    """Let so many jobs wait again, those first who would be let in last. Under the lock of the key.

    They keep their turn. A job that a claim holds is starting: it is passed over.
    """
    places = RateLimitPlace.objects.using(using).filter(key=key, status=_Status.ADMITTED)
    wanted = min(excess, _PAGE)
    last_first = places.order_by("priority", "-enqueued_at", "-job_id")
    seen = dict(last_first.values_list("job_id", "pk")[: wanted + _SPARE])
    locked = locking.jobs(seen, skip_locked=True, brief=True, using=using)
    able = [job for job in map(locked.get, seen) if job and job.state == State.AVAILABLE]
    # Read again under the locks of the jobs, without which no place of theirs changes.
    still = places.filter(pk__in=[seen[job.id] for job in able])
    there = set(still.values_list("job_id", flat=True))
    jobs = [job for job in able if job.id in there][:wanted]
    if not jobs:
        return TakenBack(locked_out=True)
    mine = {job.id: seen[job.id] for job in jobs}
    RateLimitPlace.objects.using(using).filter(pk__in=mine.values()).update(status=_Status.WAITING)
    Job.objects.using(using).filter(pk__in=mine).update(held=True)
    return TakenBack(_rest_behind(jobs, mine, using), wanted < excess, len(jobs) < wanted)


def _rest_behind(jobs: Sequence[JobRow], mine: dict[UUID, int], using: str) -> frozenset[str]:
    """Their places under later keys are given up: a job needs one after the other."""
    more = [job.id for job in jobs if job.hooks & BY_QUEUE]
    if not more:
        return frozenset()
    rows = RateLimitPlace.objects.using(using).filter(
        job_id__in=more, status__in=(_Status.WAITING, _Status.ADMITTED)
    )
    behind = [place for place in rows if place.pk > mine[place.job_id]]
    rows.filter(pk__in=[place.pk for place in behind]).update(status=_Status.IDLE)
    return frozenset(place.key for place in behind)
