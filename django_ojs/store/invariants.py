"""The invariants of the stored jobs, each as a query for what breaks it.

They hold at any moment, under any load. Each reads the job table once, so they are for ``ojs check``
and for tests, not for a monitoring loop on a large history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest

from django_ojs import conf
from django_ojs.domain.events import Kind
from django_ojs.domain.states import LIVE, State
from django_ojs.models import Attempt, Event, Job, MaintenanceRun, RateLimitPlace, UniqueKey
from django_ojs.models.maintenance import PRUNE


class Finding(NamedTuple):
    """A broken invariant: its name, its meaning, and some of the rows that violate it."""

    name: str
    rule: str
    examples: list[str]


RULES: Mapping[str, str] = {
    "I3": "attempt is at most max(1, max_attempts)",
    "I4": "a lease is open exactly while the job is active",
    "I5": "ended attempts plus the open one are as many as the claims",
    "I6": "an ended attempt's lease is not open any more",
    "I7": "completed means exactly one completed attempt, and it is the last",
    "I8": "leases of one job do not overlap",
    "I9": "no job is active long past its deadline",
    "I11": "no job outlives its total timeout; no retry is planned that cannot end in time",
    "I12": "an expired job that never started is discarded",
    "I15": "a unique job that has not ended is among the holders of its key",
    "I16": "a planned retry is in the future of its failure",
    "I17": "every change of state that is stored as an event has its event",
    "I21": "a finished job has no deadline, a waiting one no lease data",
    "I22": "a held job waits for a place under a rate limit, a running one has its places",
}


def check(*, now: datetime, slack: timedelta, using: str) -> list[Finding]:
    """Every broken invariant; ``slack`` is how late a reaper may be."""
    late = now - slack
    jobs = Job.objects.using(using)
    queries: dict[str, QuerySet[Job]] = {
        "I3": jobs.filter(attempt__gt=Greatest(F("max_attempts"), 1)),
        "I4": jobs.filter(
            Q(state=State.ACTIVE, lease_id=None) | (~Q(state=State.ACTIVE) & ~Q(lease_id=None))
        ),
        "I5": _claims_without_attempt(jobs),
        "I6": jobs.filter(attempts__lease_id=F("lease_id")),
        "I9": jobs.filter(state=State.ACTIVE, deadline_at__lt=late),
        "I11": jobs.filter(
            state__in=[State.SCHEDULED, State.AVAILABLE, State.PENDING, State.RETRYABLE],
            total_timeout_ms__isnull=False,
            deadline_at__lt=late,
        ),
        "I12": jobs.filter(
            state__in=[State.SCHEDULED, State.AVAILABLE, State.PENDING],
            attempt=0,
            deadline_at__lt=late,
        ),
        "I16": jobs.filter(state=State.RETRYABLE, scheduled_at__lt=F("started_at")),
        "I21": jobs.filter(
            (~Q(state__in=LIVE) & Q(deadline_at__isnull=False))
            | (~Q(state=State.ACTIVE) & Q(heartbeat_at__isnull=False))
        ),
    }
    queries["I22"] = _misplaced(jobs, using)
    findings = [
        Finding(name, RULES[name], [str(pk) for pk in found])
        for name, query in queries.items()
        if (found := list(query.values_list("pk", flat=True)[:5]))
    ]
    for name, examples in (
        ("I7", _completed_wrong(using)),
        ("I8", _overlaps(using)),
        ("I15", _not_holding(using)),
        ("I17", _without_event(using)),
    ):
        if examples:
            findings.append(Finding(name, RULES[name], examples))
    return findings


def _claims_without_attempt(jobs: QuerySet[Job]) -> QuerySet[Job]:
    counted = jobs.annotate(ended=Count("attempts"))
    return counted.exclude(
        Q(state=State.ACTIVE, lease_seq=F("ended") + 1)
        | (~Q(state=State.ACTIVE) & Q(lease_seq=F("ended")))
    )


def _misplaced(jobs: QuerySet[Job], using: str) -> QuerySet[Job]:
    status = RateLimitPlace.Status
    mine = RateLimitPlace.objects.using(using).filter(job_id=OuterRef("pk"))
    idle = mine.exclude(status__in=(status.RUNNING, status.ENDING))
    return jobs.filter(
        (Q(state=State.AVAILABLE, held=True) & ~Exists(mine.filter(status=status.WAITING)))
        | (Q(state=State.ACTIVE) & (Q(held=True) | Exists(idle)))
    )


def _completed_wrong(using: str) -> list[str]:
    counted = Job.objects.using(using).annotate(
        done=Count("attempts", filter=Q(attempts__outcome="completed")),
        last=Count(
            "attempts",
            filter=Q(attempts__outcome="completed", attempts__lease_seq=F("lease_seq")),
        ),
    )
    wrong = counted.filter(
        (Q(state=State.COMPLETED) & ~Q(done=1, last=1)) | (~Q(state=State.COMPLETED) & Q(done__gt=0))
    )
    return [str(pk) for pk in wrong.values_list("pk", flat=True)[:5]]


def _overlaps(using: str) -> list[str]:
    """Pairs of neighbouring leases of which the later began before the earlier ended."""
    found = (
        Attempt.objects.using(using)
        .filter(
            job__attempts__lease_seq=F("lease_seq") + 1,
            job__attempts__started_at__lt=F("ended_at"),
        )
        .values_list("job_id", flat=True)[:5]
    )
    return [str(job_id) for job_id in found]


def _not_holding(using: str) -> list[str]:
    """Unique jobs that a later enqueue would not see."""
    live = Job.objects.using(using).filter(state__in=sorted(LIVE), unique_key__isnull=False)
    wrong: list[UUID] = []
    part: list[tuple[UUID, str]] = []
    for row in chain(live.values_list("pk", "unique_key").iterator(chunk_size=1000), [None]):
        if row is not None:
            part.append((row[0], str(row[1])))
        if row is None or len(part) == 1000:
            wrong += _unlisted(part, using)
            part.clear()
    # One that has ended meanwhile may be forgotten.
    again = live.filter(pk__in=wrong[:100]).values_list("pk", "unique_key")
    return [str(pk) for pk in _unlisted([(pk, str(key)) for pk, key in again], using)[:5]]


def _unlisted(jobs: Sequence[tuple[UUID, str]], using: str) -> list[UUID]:
    rows = UniqueKey.objects.using(using).filter(pk__in={key for _, key in jobs})
    holders = dict(rows.values_list("pk", "holders"))
    return [pk for pk, key in jobs if str(pk) not in holders.get(key, ())]


_TOLD = {
    State.CANCELLED: Kind.CANCELLED,
    State.DISCARDED: Kind.DISCARDED,
    State.COMPLETED: Kind.COMPLETED,
}


def _without_event(using: str) -> list[str]:
    """Finished jobs without the event of their end, for the kinds that are stored.

    Only since the moment from which on no event was pruned.
    """
    stored = conf.current().stored_events
    runs = MaintenanceRun.objects.using(using).filter(name=PRUNE, watermark_at__isnull=False)
    # An id has the time of the host in it, which may differ a little from the database's.
    since = runs.values_list("watermark_at", flat=True).first()
    ended = Q() if since is None else Q(finished_at__gt=since + timedelta(seconds=5))
    missing: list[str] = []
    for state, kind in _TOLD.items():
        if kind not in stored:
            continue
        announced = Event.objects.using(using).filter(kind=kind, job_id__isnull=False).values("job_id")
        silent = Job.objects.using(using).filter(ended, state=state).exclude(pk__in=announced)
        missing += [str(pk) for pk in silent.values_list("pk", flat=True)[:5]]
    return missing
