"""Who is let in under a key, and who is not to wait: under the lock of its row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from django_ojs import clock, hooks
from django_ojs.domain import over_limit
from django_ojs.domain.job import JobRow
from django_ojs.domain.rate_limit import RateLimitPolicy
from django_ojs.domain.states import State
from django_ojs.models import Job, RateLimitDue, RateLimitPlace
from django_ojs.services.commit import commit, wake
from django_ojs.services.rate_limits.policies import BY_QUEUE
from django_ojs.services.rate_limits.room import Room
from django_ojs.store import locking

_Status = RateLimitPlace.Status
PAGE = 200
"""The most jobs that one transaction lets in."""
LEFT_BEHIND = timedelta(milliseconds=200)
"""After which time a due admission is anybody's: those who made it due have died, or could not."""
_SPARE, _MORE_SPARE = 8, 64
"""How many more than are wanted are looked at, and how many where others hold those."""
_PUT_OFF = timedelta(seconds=1)
"""For how long a job is put off at least, and where the time of the next opening is not known."""


class LetIn(NamedTuple):
    """Who was let in, which keys they need next, and who is left."""

    jobs: Sequence[JobRow] = ()
    next_keys: frozenset[str] = frozenset()
    locked_out: bool = False
    """Whether another transaction held jobs that were to be let in, or not to wait."""
    wait: bool = False
    """Whether others wait."""


def let_in(
    key: str, places: QuerySet[RateLimitPlace], wanted: int, paused: Sequence[str], using: str
) -> LetIn:
    """Let in up to so many of those who wait, in their turn, passing over jobs that somebody holds."""
    waiting = _waiting(places, paused)
    for most in (wanted + _SPARE, wanted + _MORE_SPARE):
        seen = dict(waiting.values_list("job_id", "pk")[:most])
        if not seen:
            return LetIn(wait=_wait(places))
        locked = locking.jobs(seen, skip_locked=True, brief=True, using=using)
        able = [
            job for job in map(locked.get, seen) if job and job.state == State.AVAILABLE and job.held
        ]
        if len(able) >= wanted or len(seen) < most:
            break
    # Read again under the locks of the jobs, without which no place of theirs changes.
    still = places.filter(pk__in=[seen[job.id] for job in able], status=_Status.WAITING)
    there = set(still.values_list("job_id", flat=True))
    able = [job for job in able if job.id in there]
    jobs = able[:wanted]
    if jobs:
        places.filter(pk__in=[seen[job.id] for job in jobs]).update(status=_Status.ADMITTED)
    next_keys = _pass_on(key, jobs, seen, using)
    everybody = not paused and len(jobs) == len(seen) < most
    wait = len(able) > wanted or (not everybody and _wait(places))
    return LetIn(jobs, next_keys, len(jobs) < min(wanted, len(seen)), wait)


def turn_away(
    limits: RateLimitPolicy,
    places: QuerySet[RateLimitPlace],
    room: Room,
    done: LetIn,
    paused: Sequence[str],
    now: datetime,
    using: str,
) -> LetIn:
    """Jobs that are not to wait for a place: as many as one transaction takes; the others follow."""
    seen = list(_waiting(places, paused).values_list("job_id", flat=True)[:PAGE])
    locked = locking.jobs(seen, skip_locked=True, brief=True, using=using)
    jobs = [job for job in locked.values() if job.state == State.AVAILABLE and job.held]
    held = set[UUID]()
    if limits.on_limit == "drop":
        # The row of the key is locked: their workflows are not waited for.
        held = hooks.held_by_others(jobs, using=using)
        jobs = [job for job in jobs if job.id not in held]
        transitions = [over_limit.drop(job, key=limits.key, now=now) for job in jobs]
    else:
        until = max(filter(None, (room.opens_at, now + _PUT_OFF)))
        transitions = [over_limit.put_off(job, key=limits.key, until=until) for job in jobs]
    commit(transitions, now=now, using=using)
    locked_out = done.locked_out or bool(held) or len(locked) < len(seen)
    return done._replace(locked_out=locked_out, wait=_wait(places))


def _waiting(places: QuerySet[RateLimitPlace], paused: Sequence[str]) -> QuerySet[RateLimitPlace]:
    """Those who wait in queues that are not paused, in the order in which they are let in."""
    waiting = places.filter(status=_Status.WAITING).order_by("-priority", "enqueued_at", "job_id")
    return waiting.exclude(queue__in=paused) if paused else waiting


def _wait(places: QuerySet[RateLimitPlace]) -> bool:
    return places.filter(status=_Status.WAITING).exists()


def _pass_on(key: str, jobs: Sequence[JobRow], seen: Mapping[UUID, int], using: str) -> frozenset[str]:
    """Jobs with a place under all of their keys can be claimed; the others wait for the next one."""
    more = [job.id for job in jobs if job.hooks & BY_QUEUE]
    following: dict[UUID, RateLimitPlace] = {}
    if more:
        rows = RateLimitPlace.objects.using(using).filter(job_id__in=more, status=_Status.IDLE)
        for place in rows.order_by("id"):
            if place.pk > seen[place.job_id]:
                following.setdefault(place.job_id, place)
    if following:
        ids = [place.pk for place in following.values()]
        RateLimitPlace.objects.using(using).filter(pk__in=ids).update(status=_Status.WAITING)
    free = [job for job in jobs if job.id not in following]
    if free:
        Job.objects.using(using).filter(pk__in=[job.id for job in free]).update(held=False)
        wake({(job.queue, job.type) for job in free}, using=using)
    keys = frozenset(place.key for place in following.values())
    make_due(keys, clock.now(using), using)
    return keys


def make_due(keys: Collection[str], now: datetime, using: str) -> None:
    """These are admitted next; by anybody, if this process dies before."""
    if keys:
        due_at = now + LEFT_BEHIND
        rows_due = [RateLimitDue(key=one, due_at=due_at) for one in sorted(keys)]
        RateLimitDue.objects.using(using).bulk_create(rows_due)
