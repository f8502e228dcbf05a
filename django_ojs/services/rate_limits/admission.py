"""Let held jobs in while their key has room, and take back what is too many.

Under the lock of the key's row, which only admissions and operators take, and for a moment; jobs are
locked by ``SKIP LOCKED``, so that an admission waits for no job. What is taken is counted from rows,
so that nothing can drift. A transaction that changes places leaves a :class:`RateLimitDue`, and
admits after its commit; whoever looks next does so for one that died in between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DatabaseError, connections, transaction
from django.db.models import QuerySet

from django_ojs import clock
from django_ojs.domain import over_limit
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobEvent, JobRow
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.rate_limit import QUEUE_PREFIX, RateLimitPolicy
from django_ojs.domain.states import State
from django_ojs.models import Job, Queue, RateLimit, RateLimitDue, RateLimitPlace, RateLimitStart
from django_ojs.services.commit import commit, publish, wake
from django_ojs.services.rate_limits import policies
from django_ojs.services.rate_limits.policies import BY_QUEUE
from django_ojs.services.rate_limits.room import Room, effective, excess_of, room_of
from django_ojs.services.rate_limits.taking_back import TakenBack, take_back
from django_ojs.store import due_times, inserting, locking
from django_ojs.store.contention import in_transaction, is_contention

logger = logging.getLogger("django_ojs")

Keys = Mapping[str, RateLimitPolicy | None]
_Status = RateLimitPlace.Status
_PAGE = 200
"""The most jobs that one transaction lets in."""
_SPARE = 8
_LEFT_BEHIND = timedelta(milliseconds=200)
"""After which time a due admission is anybody's: those who made it due have died, or could not."""
_AGAIN = timedelta(milliseconds=100)
"""When to look again if the jobs that could be let in were locked."""
_PUT_OFF = timedelta(seconds=1)
"""For how long a job is put off at least, and where the time of the next opening is not known."""
_USED_EVERY = timedelta(hours=1)


def after_commit(keys: Keys, *, now: datetime, using: str) -> None:
    """Note that places of these keys have changed, and admit when the transaction commits.

    A key comes with its policy where jobs brought one.
    """
    due_at = now + _LEFT_BEHIND
    RateLimitDue.objects.using(using).bulk_create(
        [RateLimitDue(key=key, due_at=due_at) for key in sorted(keys)]
    )

    # A function, not a partial: when it fails Django names it, and fails itself where it cannot.
    def run() -> None:
        # In a test that captures callbacks the transaction is still open.
        if not connections[using].in_atomic_block:
            admit(keys, using=using)

    transaction.on_commit(run, using=using, robust=True)


def resumed(queues: Sequence[str], *, now: datetime, using: str) -> None:
    """Admit the jobs of these queues that wait: they were passed over while the queue was paused."""
    waiting = RateLimitPlace.objects.using(using).filter(status=_Status.WAITING, queue__in=queues)
    keys = set(waiting.order_by().values_list("key", flat=True).distinct())
    if keys:
        after_commit(dict.fromkeys(keys), now=now, using=using)


def admit(keys: Keys, *, using: str) -> int:
    """Let jobs in under these keys, and under those that they need next; returns how many.

    A key whose row is held for long, or that lost a race, stays due.
    """
    todo, count = dict(keys), 0
    while todo:
        key = min(todo)
        try:
            done = _admit(key, todo.pop(key), using=using)
        except DatabaseError as error:
            if not is_contention(error) or connections[using].in_atomic_block:
                raise
            logger.debug("the admission under %s is left for later: %s", key, error)
            continue
        count += done.admitted
        for following in done.next_keys:
            todo.setdefault(following, None)
    return count


def admit_due(*, seconds: float | None = None, at_once: bool = False, using: str) -> int:
    """Admit under the keys that are due, for about so long; returns how many keys were looked at.

    With ``at_once`` also what those are about to admit who made the change. One statement when
    nothing is due.
    """
    until = None if seconds is None else clock.boottime() + seconds
    done, before = 0, set[str]()
    while (first := due_times.next_admission(using=using)) is not None:
        now = clock.now(using)
        ahead = now + _LEFT_BEHIND if at_once else now
        if first > ahead:
            break
        due = RateLimitDue.objects.using(using).filter(due_at__lte=ahead).order_by("id")
        keys = set(due.values_list("key", flat=True)[:_PAGE])
        timed = RateLimit.objects.using(using).filter(due_at__lte=now).order_by("due_at")
        keys |= set(timed.values_list("key", flat=True)[:_PAGE])
        if keys <= before:
            # Held, or lost a race: later.
            break
        before = keys
        admit(dict.fromkeys(keys), using=using)
        done += len(keys)
        if until is not None and clock.boottime() >= until:
            break
    return done


class _Done(NamedTuple):
    admitted: int = 0
    next_keys: frozenset[str] = frozenset()


@in_transaction
def _admit(key: str, policy: RateLimitPolicy | None, *, using: str = "") -> _Done:
    row = locked(key, using)
    is_new = row is None
    row = row or lock(key, using)
    now = clock.now(using)
    if is_new:
        policy = policy or _brought(key, using)
        limit_queue_of(key, using)
    dues = list(RateLimitDue.objects.using(using).filter(key=key).values_list("pk", flat=True))
    changed = _note_policy(row, policy, now)
    if not dues and not changed and (row.due_at is None or row.due_at > now):
        # Somebody has admitted since.
        return _Done()
    places = RateLimitPlace.objects.using(using).filter(key=key)
    places.filter(status=_Status.ENDING, until__lte=now).delete()
    limits = effective(row, now)
    if longest := max((window.period for _, window in limits.windows()), default=None):
        starts = RateLimitStart.objects.using(using).filter(key=key)
        starts.filter(started_at__lte=now - longest).delete()
    room = room_of(row, limits, now, using)
    back = TakenBack()
    if excess := excess_of(row, limits, room.standing, now):
        back = take_back(key, excess, using=using)
        _make_due(back.keys, using)
        room = room_of(row, limits, now, using)
    wanted = _PAGE if room.places is None else min(room.places, _PAGE)
    let_in = _let_in(key, places, wanted, using) if wanted else _LetIn()
    if _turn_away(limits, places, room, let_in, now, using):
        let_in = let_in._replace(locked_out=True)
    _settle_row(row, places, room, let_in, wanted, changed, back, now)
    if dues:
        RateLimitDue.objects.using(using).filter(pk__in=dues).delete()
    next_keys = set(let_in.next_keys | back.keys)
    if row.due_at is not None and row.due_at <= now:
        next_keys.add(key)
    return _Done(len(let_in.jobs), frozenset(next_keys))


def locked(key: str, using: str) -> RateLimit | None:
    """Lock the row of a key, if it has one."""
    return RateLimit.objects.using(using).select_for_update().filter(pk=key).first()


def lock(key: str, using: str) -> RateLimit:
    """Lock the row of a key; it is made if there is none."""
    while (row := locked(key, using)) is None:
        RateLimit.objects.using(using).bulk_create([RateLimit(key=key)], ignore_conflicts=True)
    return row


def limit_queue_of(key: str, using: str) -> None:
    """If this is the key of a queue, tell claims that its jobs need a place. After :func:`lock`."""
    if not key.startswith(QUEUE_PREFIX):
        return
    name = check_queue_name(key.removeprefix(QUEUE_PREFIX), "key")
    rows = Queue.objects.using(using).filter(pk=name)
    if not rows.filter(limited=True).exists():
        inserting.queues([name], using=using)
        rows.update(limited=True)
    policies.know_limited([name], using=using)


def free_queue_of(key: str, using: str) -> None:
    """If this is the key of a queue, tell claims that its jobs need no place any more."""
    name = key.removeprefix(QUEUE_PREFIX)
    if name != key and policies.of_queue(name) is None:
        Queue.objects.using(using).filter(pk=name).update(limited=False)


def _brought(key: str, using: str) -> RateLimitPolicy | None:
    """The policy of a key without a row, by its newest job: whoever enqueued it has died since."""
    places = RateLimitPlace.objects.using(using).filter(key=key).order_by("-id")
    newest = places.values_list("job_id", "queue").first()
    if newest is None:
        return None
    job_id, queue = newest
    extra = Job.objects.using(using).filter(pk=job_id).values_list("extra", flat=True).first()
    policy = policies.own(json.dumps(extra or {}), queue)
    return policy if policy is not None and policy.key == key else policies.of_queue(queue)


def _note_policy(row: RateLimit, policy: RateLimitPolicy | None, now: datetime) -> bool:
    if policy is None or policy.limits() == row.policy:
        return False
    row.policy = policy.limits()
    row.due_at = now
    return True


class _LetIn(NamedTuple):
    jobs: Sequence[JobRow] = ()
    next_keys: frozenset[str] = frozenset()
    locked_out: bool = False
    """Whether another transaction held jobs that were to be let in, or not to wait."""


def _let_in(key: str, places: QuerySet[RateLimitPlace], wanted: int, using: str) -> _LetIn:
    waiting = _waiting(places, using)
    seen = dict(waiting.values_list("job_id", "pk")[: wanted + _SPARE])
    if not seen:
        return _LetIn()
    locked = locking.jobs(seen, skip_locked=True, brief=True, using=using)
    able = [job for job in map(locked.get, seen) if job and job.state == State.AVAILABLE and job.held]
    # Read again under the locks of the jobs, without which no place of theirs changes.
    still = places.filter(pk__in=[seen[job.id] for job in able], status=_Status.WAITING)
    there = set(still.values_list("job_id", flat=True))
    jobs = [job for job in able if job.id in there][:wanted]
    if jobs:
        places.filter(pk__in=[seen[job.id] for job in jobs]).update(status=_Status.ADMITTED)
    next_keys = _pass_on(key, jobs, seen, using)
    return _LetIn(jobs, next_keys, len(jobs) < min(wanted, len(seen)))


def _turn_away(
    limits: RateLimitPolicy,
    places: QuerySet[RateLimitPlace],
    room: Room,
    let_in: _LetIn,
    now: datetime,
    using: str,
) -> bool:
    """Jobs that are not to wait for a place: as many as one transaction takes; the others follow.

    Whether another transaction held some of them.
    """
    full = room.places is not None and room.places <= len(let_in.jobs)
    if limits.on_limit == "wait" or not full:
        return False
    waiting = _waiting(places, using)
    seen = list(waiting.values_list("job_id", flat=True)[:_PAGE])
    locked = locking.jobs(seen, skip_locked=True, brief=True, using=using)
    jobs = [job for job in locked.values() if job.state == State.AVAILABLE and job.held]
    if limits.on_limit == "drop":
        transitions = [over_limit.drop(job, key=limits.key, now=now) for job in jobs]
    else:
        until = max(filter(None, (room.opens_at, now + _PUT_OFF)))
        transitions = [over_limit.put_off(job, key=limits.key, until=until) for job in jobs]
    commit(transitions, now=now, using=using)
    return len(locked) < len(seen)


def _waiting(places: QuerySet[RateLimitPlace], using: str) -> QuerySet[RateLimitPlace]:
    """Those who wait in queues that are not paused, in the order in which they are let in."""
    waiting = places.filter(status=_Status.WAITING).order_by("-priority", "enqueued_at", "job_id")
    paused = list(Queue.objects.using(using).filter(paused=True).values_list("name", flat=True))
    return waiting.exclude(queue__in=paused) if paused else waiting


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
    _make_due(keys, using)
    return keys


def _make_due(keys: Collection[str], using: str) -> None:
    """These are admitted next; by anybody, if this process dies before."""
    if keys:
        due_at = clock.now(using) + _LEFT_BEHIND
        rows_due = [RateLimitDue(key=one, due_at=due_at) for one in sorted(keys)]
        RateLimitDue.objects.using(using).bulk_create(rows_due)


def _settle_row(
    row: RateLimit,
    places: QuerySet[RateLimitPlace],
    room: Room,
    let_in: _LetIn,
    wanted: int,
    changed: bool,
    back: TakenBack,
    now: datetime,
) -> None:
    """Note on the row of the key when to look again."""
    before = (row.due_at, row.exceeded)
    waits = places.filter(status=_Status.WAITING).exists()
    full = room.places is not None and room.places <= len(let_in.jobs)
    row.due_at = None
    if waits:
        ending = places.filter(status=_Status.ENDING).order_by("until")
        moments = [room.opens_at, ending.values_list("until", flat=True).first()]
        if row.override_until is not None and row.override_until > now:
            moments.append(row.override_until)
        if let_in.locked_out:
            moments.append(now + _AGAIN)
        elif not full and len(let_in.jobs) == wanted:
            moments.append(now)
        row.due_at = min(filter(None, moments), default=None)
    if back.locked_out:
        row.due_at = min(filter(None, (row.due_at, now + _AGAIN)))
    elif back.more:
        row.due_at = now
    open_again = not waits and (room.places is None or room.places > len(let_in.jobs))
    if waits and full and not row.exceeded:
        row.exceeded = True
        current = room.standing.admitted + room.standing.running + len(let_in.jobs)
        data = {"strategy": room.strategy, "limit": room.limit, "current": current}
        _tell(Kind.RATE_LIMIT_EXCEEDED, row, data, now)
    elif open_again and row.exceeded:
        row.exceeded = False
        released = {"job_id": str(let_in.jobs[-1].id)} if let_in.jobs else {}
        _tell(Kind.RATE_LIMIT_RELEASED, row, {"strategy": room.strategy, **released}, now)
    if changed or now - row.used_at > _USED_EVERY or before != (row.due_at, row.exceeded):
        row.used_at = now
        row.save(using=row._state.db)


def _tell(kind: Kind, row: RateLimit, data: Mapping[str, Any], now: datetime) -> None:
    """Once per episode: from the first job that waits until there is room again."""
    publish([JobEvent(kind, {"key": row.key, **data})], now=now, using=str(row._state.db))
