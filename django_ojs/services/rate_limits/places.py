"""The transition hook of rate limits: places are taken, given up and waited for with the state of jobs.

It writes places of its own jobs, under their locks, and never waits for a key: who is let in next is
for an admission, after the commit or, where nobody holds the key, at once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F

from django_ojs import clock
from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.rate_limit import queue_key
from django_ojs.domain.states import TERMINAL, State, Trigger
from django_ojs.hooks import TransitionHook
from django_ojs.models import Job, RateLimit, RateLimitPlace, RateLimitStart
from django_ojs.services.rate_limits import admission, policies
from django_ojs.services.rate_limits.policies import BITS, BY_QUEUE, LIMITED
from django_ojs.services.rate_limits.room import counts_starts
from django_ojs.store.contention import in_transaction

_ROWS = 1000
_Status = RateLimitPlace.Status
_TOLD_WITHIN = timedelta(seconds=5)
"""How long it may take until a worker learns that its attempt is over: a beat."""
_HANDLER_GOES_ON = frozenset({Trigger.CANCEL, Trigger.TOTAL_TIMEOUT})
"""Ends of attempts after which the handler still has its grace period."""


def add(
    records: Sequence[JobRow],
    *,
    settled: bool = False,
    at_once: bool = True,
    now: datetime,
    using: str,
) -> None:
    """Give new jobs, already inserted, their places. An admission lets in those that are ``held``,
    ``at_once`` where it can be, unless it is ``settled`` that they wait.
    """
    new = [record for record in records if record.hooks & LIMITED]
    if not new:
        return
    places = [
        place
        for record in new
        for place in _places(record, record.extra, now, admitted=not record.held)
    ]
    RateLimitPlace.objects.using(using).bulk_create(places, batch_size=_ROWS)
    waiting = [record for record in new if record.state == State.AVAILABLE and record.held]
    if waiting and not settled:
        admission.changed(policies.asked(waiting), at_once=at_once, now=now, using=using)


def take_in(jobs: Sequence[JobRow], *, now: datetime, using: str) -> None:
    """Hold available jobs, locked by the caller, that were enqueued before their queue had a limit.

    They are let in after the commit: under a lower limit an admission takes places back, which must
    not meet jobs that the caller has locked to start them.
    """
    if not jobs:
        return
    ids = [job.id for job in jobs]
    rows = RateLimitPlace.objects.using(using).filter(job_id__in=ids).exclude(status=_Status.ENDING)
    rows.delete()
    marked = [job._replace(hooks=job.hooks | BITS, held=True) for job in jobs]
    by_hooks: dict[int, list[UUID]] = defaultdict(list)
    for job in marked:
        by_hooks[job.hooks].append(job.id)
    for bits, each in by_hooks.items():
        Job.objects.using(using).filter(pk__in=each).update(hooks=bits, held=True)
    add(marked, at_once=False, now=now, using=using)


def _places(job: JobRow, extra: str, now: datetime, *, admitted: bool = False) -> list[RateLimitPlace]:
    status = _Status.ADMITTED if admitted else _Status.WAITING
    if job.state != State.AVAILABLE:
        status = _Status.IDLE
    found = []
    for key in policies.keys_of(extra, job.queue, by_queue=bool(job.hooks & BY_QUEUE)):
        found.append(
            RateLimitPlace(
                key=key,
                status=status,
                priority=job.priority,
                enqueued_at=job.enqueued_at or now,
                job_id=job.id,
                queue=job.queue,
            )
        )
        status = _Status.IDLE
    return found


class _Changes:
    """What the transitions of a commit do to places, gathered to be written set by set."""

    def __init__(self, now: datetime, using: str) -> None:
        self.now = now
        self.using = using
        self.status: dict[int, list[int]] = defaultdict(list)
        self.gone: list[int] = []
        self.new: list[RateLimitPlace] = []
        self.held: list[UUID] = []
        self.priority: dict[int, list[UUID]] = defaultdict(list)
        self.keys: set[str] = set()

    def write(self) -> None:
        rows = RateLimitPlace.objects.using(self.using)
        jobs = Job.objects.using(self.using)
        for status, ids in self.status.items():
            changes = {"enqueued_at": self.now} if status == _Status.WAITING else {}
            rows.filter(pk__in=ids).update(status=status, **changes)
        for priority, job_ids in self.priority.items():
            rows.filter(job_id__in=job_ids).update(priority=priority)
        if self.gone:
            rows.filter(pk__in=self.gone).delete()
        if self.new:
            rows.bulk_create(self.new, batch_size=_ROWS)
        if self.held:
            jobs.filter(pk__in=self.held).update(held=True)
        if self.keys:
            admission.changed(dict.fromkeys(self.keys), now=self.now, using=self.using)


def run(transitions: Sequence[Transition], now: datetime, using: str) -> None:
    """Move the places of these jobs on."""
    moved = [one for one in transitions if one.trigger is Trigger.EDIT or _moves(one)]
    if not moved:
        return
    places: dict[UUID, list[RateLimitPlace]] = defaultdict(list)
    rows = RateLimitPlace.objects.using(using).filter(job_id__in=[one.job.id for one in moved])
    for place in rows.exclude(status=_Status.ENDING).order_by("id"):
        places[place.job_id].append(place)
    changes = _Changes(now, using)
    claimed: list[RateLimitPlace] = []
    again: list[Transition] = []
    for one in moved:
        mine = places[one.job.id]
        if one.trigger is Trigger.CLAIM:
            changes.status[_Status.RUNNING] += [place.id for place in mine]
            claimed += mine
        elif one.trigger is Trigger.RELEASE:
            changes.status[_Status.ADMITTED] += [place.id for place in mine]
            # The limit may be lower than when it was let in.
            changes.keys |= {place.key for place in mine}
        elif one.trigger is Trigger.EDIT:
            _edited(one, mine, changes, again)
        elif one.target in TERMINAL:
            _ended(one, mine, changes)
        elif one.target is State.AVAILABLE:
            _waits(one, mine, changes, again)
        else:
            _rests(one, mine, changes)
    _start_over(again, places, changes)
    changes.write()
    _count_starts(claimed, now, using)


def _moves(one: Transition) -> bool:
    return one.target is not one.source


def _ended(one: Transition, mine: Sequence[RateLimitPlace], changes: _Changes) -> None:
    changes.gone += [place.id for place in mine]
    changes.keys |= {place.key for place in mine if place.status != _Status.IDLE}
    job = one.job
    if one.source is State.ACTIVE and one.trigger in _HANDLER_GOES_ON:
        until = changes.now + timedelta(milliseconds=job.grace_period_ms) + _TOLD_WITHIN
        changes.new += [
            RateLimitPlace(
                key=place.key,
                status=_Status.ENDING,
                priority=place.priority,
                enqueued_at=place.enqueued_at,
                job_id=job.id,
                queue=job.queue,
                lease_id=job.lease_id,
                until=until,
            )
            for place in mine
        ]


def _waits(
    one: Transition, mine: Sequence[RateLimitPlace], changes: _Changes, again: list[Transition]
) -> None:
    """The job is available: it needs its places anew."""
    if not mine or {"queue", "priority"} & one.changes.keys():
        again.append(one)
        return
    changes.status[_Status.WAITING].append(mine[0].id)
    changes.status[_Status.IDLE] += [place.id for place in mine[1:]]
    changes.keys |= {place.key for place in mine if place.status != _Status.IDLE} | {mine[0].key}
    if not one.job.held:
        changes.held.append(one.job.id)


def _rests(one: Transition, mine: Sequence[RateLimitPlace], changes: _Changes) -> None:
    """The job waits for its time: it gives its places up."""
    busy = [place for place in mine if place.status != _Status.IDLE]
    changes.status[_Status.IDLE] += [place.id for place in busy]
    changes.keys |= {place.key for place in busy}
    if not one.job.held:
        changes.held.append(one.job.id)


def _edited(
    one: Transition, mine: Sequence[RateLimitPlace], changes: _Changes, again: list[Transition]
) -> None:
    if one.changes.get("queue", one.job.queue) != one.job.queue:
        changes.keys |= {place.key for place in mine if place.status != _Status.IDLE}
        again.append(one)
    elif "priority" in one.changes:
        changes.priority[one.changes["priority"]].append(one.job.id)


def _start_over(
    transitions: Sequence[Transition],
    places: dict[UUID, list[RateLimitPlace]],
    changes: _Changes,
) -> None:
    """New places, by what the jobs were enqueued with and where they are now."""
    if not transitions:
        return
    jobs = Job.objects.using(changes.using)
    rows = jobs.filter(pk__in=[one.job.id for one in transitions])
    extras = {row.pk: row.extra for row in rows.only("pk", "extra")}
    for one in transitions:
        job = one.written
        extra = json.dumps(extras[job.id])
        bits = job.hooks
        if not policies.is_limited(job.queue, changes.using):
            # A claim takes it in if there is a limit.
            own = policies.own(extra, job.queue)
            mine = own is not None and own.key == queue_key(job.queue)
            bits = bits & ~BY_QUEUE | (BY_QUEUE if mine else 0)
        else:
            bits |= BY_QUEUE
        new = _places(job._replace(hooks=bits), extra, changes.now)
        held = bool(new)
        bits = bits if new else bits & ~BITS
        if (bits, held) != (job.hooks, job.held):
            # The bits of other hooks are theirs: one before this may have cleared its own.
            stored = F("hooks").bitand(~BITS).bitor(bits & BITS)
            jobs.filter(pk=job.id).update(hooks=stored, held=held)
        changes.gone += [place.id for place in places[job.id]]
        changes.new += new
        if job.state == State.AVAILABLE:
            changes.keys |= {place.key for place in new[:1]}


def _count_starts(claimed: Sequence[RateLimitPlace], now: datetime, using: str) -> None:
    """Note the starts under keys that count them; the next opening is known by them."""
    if not claimed:
        return
    keys = {place.key for place in claimed}
    limits = RateLimit.objects.using(using).filter(pk__in=keys)
    counting = {row.key for row in limits if counts_starts(row)}
    if not counting:
        return
    RateLimitStart.objects.using(using).bulk_create(
        [RateLimitStart(key=place.key, started_at=now) for place in claimed if place.key in counting],
        batch_size=_ROWS,
    )
    admission.changed(dict.fromkeys(counting), now=now, using=using)


@in_transaction
def ended(leases: Collection[UUID], *, using: str = "") -> None:
    """The handlers of these attempts, over before, have ended: their places are free."""
    rows = RateLimitPlace.objects.using(using).filter(lease_id__in=list(leases), status=_Status.ENDING)
    found = list(rows.values_list("pk", "key"))
    if found:
        RateLimitPlace.objects.using(using).filter(pk__in=[pk for pk, _ in found]).delete()
        now = clock.now(using)
        admission.changed({key: None for _, key in found}, now=now, using=using)


def _purged(jobs: Sequence[JobRow], now: datetime, using: str) -> None:
    """Finished jobs have no places."""


def _held(jobs: Sequence[JobRow], using: str) -> set[UUID]:
    """The hook waits for nothing that another transaction may hold."""
    return set()


HOOK = TransitionHook("rate_limits", BITS, run, _purged, _held)
