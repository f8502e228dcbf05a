"""Let held jobs in while their key has room, and take back what is too many.

Under the lock of the key's row, which only admissions, operators and transactions of ours take, and
for a moment; jobs are locked by ``SKIP LOCKED``, so that an admission waits for no job. What is taken
is counted from rows, so that nothing can drift. A user's transaction that changes places leaves a
:class:`RateLimitDue`, and admits after its commit; whoever looks next does so for one that died in
between. A transaction of ours admits by itself (ADR 59).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction

from django_ojs import clock
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobEvent
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.rate_limit import QUEUE_PREFIX, RateLimitPolicy
from django_ojs.models import Job, Queue, RateLimit, RateLimitDue, RateLimitPlace, RateLimitStart
from django_ojs.services.commit import publish
from django_ojs.services.rate_limits import policies
from django_ojs.services.rate_limits.letting_in import (
    LEFT_BEHIND,
    PAGE,
    LetIn,
    let_in,
    make_due,
    turn_away,
)
from django_ojs.services.rate_limits.room import (
    Room,
    counted_for,
    effective,
    excess_of,
    room_of,
    standing,
)
from django_ojs.services.rate_limits.taking_back import TakenBack, take_back
from django_ojs.store import due_times, inserting, rate_limit_keys
from django_ojs.store.contention import in_transaction, is_contention, is_own_transaction
from django_ojs.store.dialect import dialect
from django_ojs.store.rate_limit_keys import KeyRows

logger = logging.getLogger("django_ojs")

Keys = Mapping[str, RateLimitPolicy | None]
_Status = RateLimitPlace.Status
_AGAIN = timedelta(milliseconds=100)
"""When to look again if the jobs that could be let in were locked."""
USED_EVERY = timedelta(hours=1)
_admitting: ContextVar[bool] = ContextVar("django_ojs.admitting", default=False)
"""Whether this is an admission: what it changes itself is for the next one."""


def changed(keys: Keys, *, at_once: bool = True, now: datetime, using: str) -> None:
    """Places of these keys have changed: admit. A key comes with its policy where jobs brought one.

    Under one key in a transaction of ours that nobody can keep open, if nobody holds its row: then
    ``at_once``. Otherwise when the transaction commits.
    """
    can = at_once and is_own_transaction(using) and dialect(using).lock_shows_latest
    if can and len(keys) == 1 and not _admitting.get():
        ((key, policy),) = keys.items()
        row = locked(key, using, skip=True)
        done = None if row is None else _at_once(row, policy, using)
        if done is not None:
            # They are due already.
            _admit_after_commit(dict.fromkeys(done.next_keys), using)
            return
    make_due(keys, now, using)
    _admit_after_commit(keys, using)


def _admit_after_commit(keys: Keys, using: str) -> None:
    if not keys:
        return

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
        changed(dict.fromkeys(keys), now=now, using=using)


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
        ahead = now + LEFT_BEHIND if at_once else now
        if first > ahead:
            break
        due = RateLimitDue.objects.using(using).filter(due_at__lte=ahead).order_by("id")
        keys = set(due.values_list("key", flat=True)[:PAGE])
        timed = RateLimit.objects.using(using).filter(due_at__lte=now).order_by("due_at")
        keys |= set(timed.values_list("key", flat=True)[:PAGE])
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
    found = rate_limit_keys.read(key, using=using)
    has_other = _note_policy(row, policy, now)
    if is_new or has_other:
        # A queue that had limits before has none since its override was cleared.
        limit_queue_of(key, using)
    if not found.dues and not has_other and (row.due_at is None or row.due_at > now):
        # Somebody has admitted since.
        return _Done()
    return _under(row, found, now, using, has_other=has_other)


def _at_once(row: RateLimit, policy: RateLimitPolicy | None, using: str) -> _Done | None:
    """``None`` for a key whose limits cannot be read: that is no reason to refuse a change. For one
    that turns jobs away, which commits changes of jobs that the caller knows nothing of. And for other
    limits of a queue: they may have to be noted on its row, which others may hold.
    """
    now = clock.now(using)
    has_other = _note_policy(row, policy, now)
    try:
        limits = effective(row, now)
    except InvalidRequest:
        return None
    if limits.on_limit != "wait" or (has_other and row.key.startswith(QUEUE_PREFIX)):
        return None
    found = rate_limit_keys.read(row.key, using=using)
    return _under(row, found, now, using, has_other=has_other)


def _under(row: RateLimit, found: KeyRows, now: datetime, using: str, *, has_other: bool) -> _Done:
    """Admit under a key whose row is locked, and which ``has_other`` limits than before or not."""
    before = _admitting.set(True)
    try:
        return _let_in_or_turn_away(row, found, now, using, has_other)
    finally:
        _admitting.reset(before)


def _let_in_or_turn_away(
    row: RateLimit, found: KeyRows, now: datetime, using: str, has_other: bool
) -> _Done:
    key = row.key
    places = RateLimitPlace.objects.using(using).filter(key=key)
    if found.first_end is not None and found.first_end <= now:
        places.filter(status=_Status.ENDING, until__lte=now).delete()
        found = rate_limit_keys.read(key, using=using)._replace(dues=found.dues)
    limits = effective(row, now)
    if longest := counted_for(row, limits):
        starts = RateLimitStart.objects.using(using).filter(key=key)
        starts.filter(started_at__lte=now - longest).delete()
    room = room_of(row, limits, standing(found), now, using)
    back = TakenBack()
    if excess := excess_of(row, limits, room.standing, now):
        back = take_back(key, excess, using=using)
        make_due(back.keys, now, using)
        found = rate_limit_keys.read(key, using=using)
        room = room_of(row, limits, standing(found), now, using)
    wanted = PAGE if room.places is None else min(room.places, PAGE)
    done = LetIn(wait=found.waits)
    if wanted and found.waits:
        done = let_in(key, places, wanted, found.paused, using)
    full = room.places is not None and room.places <= len(done.jobs)
    if limits.on_limit != "wait" and full and done.wait:
        done = turn_away(limits, places, room, done, found.paused, now, using)
    _settle_row(row, found, room, done, wanted, has_other, back, now)
    if found.dues:
        RateLimitDue.objects.using(using).filter(pk__in=found.dues).delete()
    next_keys = set(done.next_keys | back.keys)
    if row.due_at is not None and row.due_at <= now:
        next_keys.add(key)
    return _Done(len(done.jobs), frozenset(next_keys))


def locked(key: str, using: str, *, skip: bool = False) -> RateLimit | None:
    """Lock the row of a key, if it has one; with ``skip``, if nobody holds it."""
    rows = RateLimit.objects.using(using).select_for_update(skip_locked=skip)
    return rows.filter(pk=key).first()


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
        # Again if the queue was pruned between the two statements: a limit must not be lost.
        while not rows.update(limited=True):
            inserting.queues([name], using=using)
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


def _settle_row(
    row: RateLimit,
    found: KeyRows,
    room: Room,
    done: LetIn,
    wanted: int,
    has_other: bool,
    back: TakenBack,
    now: datetime,
) -> None:
    """Note on the row of the key when to look again."""
    before = (row.due_at, row.exceeded)
    waits = done.wait
    full = room.places is not None and room.places <= len(done.jobs)
    row.due_at = None
    if waits:
        moments = [room.opens_at, found.first_end]
        if row.override_until is not None and row.override_until > now:
            moments.append(row.override_until)
        if done.locked_out:
            moments.append(now + _AGAIN)
        elif not full and len(done.jobs) == wanted:
            moments.append(now)
        row.due_at = min(filter(None, moments), default=None)
    if back.locked_out:
        row.due_at = min(filter(None, (row.due_at, now + _AGAIN)))
    elif back.more:
        row.due_at = now
    open_again = not waits and (room.places is None or room.places > len(done.jobs))
    if waits and full and not row.exceeded:
        row.exceeded = True
        current = room.standing.admitted + room.standing.running + len(done.jobs)
        data = {"strategy": room.strategy, "limit": room.limit, "current": current}
        _tell(Kind.RATE_LIMIT_EXCEEDED, row, data, now)
    elif open_again and row.exceeded:
        row.exceeded = False
        released = {"job_id": str(done.jobs[-1].id)} if done.jobs else {}
        _tell(Kind.RATE_LIMIT_RELEASED, row, {"strategy": room.strategy, **released}, now)
    using = str(row._state.db)
    # What lets jobs in at the same time on another node of a Galera cluster fails as it commits.
    apart = bool(done.jobs) and not dialect(using).lock_shows_latest
    is_old = now - row.used_at > USED_EVERY
    if has_other or apart or is_old or before != (row.due_at, row.exceeded):
        row.used_at = now
        row.save(using=using)


def _tell(kind: Kind, row: RateLimit, data: Mapping[str, Any], now: datetime) -> None:
    """Once per episode: from the first job that waits until there is room again."""
    publish([JobEvent(kind, {"key": row.key, **data})], now=now, using=str(row._state.db))
