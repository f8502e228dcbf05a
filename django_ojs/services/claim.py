"""Claim jobs for a worker, each under a new lease (OJS worker protocol FETCH)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import Error

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.domain.job import JobRow, Transition
from django_ojs.hooks import SLICE
from django_ojs.services import overdue
from django_ojs.services.promote import promote
from django_ojs.services.rate_limits import admission, places, policies
from django_ojs.services.starting import Holder, start, start_at_once
from django_ojs.store import candidates, claiming, due_times, picking
from django_ojs.store.candidates import Look
from django_ojs.store.claiming import QueueStates
from django_ojs.store.contention import in_transaction
from django_ojs.store.dialect import dialect
from django_ojs.store.picking import Picked, PickLimits
from django_ojs.store.sources import Lane, Sources, in_order

_LOOK_AGAIN = 0.005
_USUAL_FOR = 0.5
"""Seconds for which jobs are claimed as ever, since few could be started by one statement."""
_AT_ONCE = 0.05
"""Seconds within which the time that came with the rows of queues is that of the claim."""
_TAKEN_IN = 200
"""How many jobs of a queue that has a rate limit since are taken in at once."""
_ROUNDS = 8
"""How often a claim does so, or passes over jobs that it cannot end, before it leaves the rest."""
_BEHIND = 200
"""How many more jobs are locked at once when all that were locked had expired."""
_BEHIND_BYTES = 8 << 20
"""How much text of theirs is read at once."""
_WIDER = 6
"""How often the number of rows looked at is multiplied by four when all were locked."""


def sources(
    queues: Sequence[str] | None,
    types: Iterable[str] | None = None,
    *,
    ranked: bool = True,
    excluded: Iterable[str] = (),
    resumes: bool = False,
) -> Sources:
    """Where to claim from: these types, or all, in these queues.

    ``ranked`` serves the queues in the order named (decision L10), otherwise they are one pool.
    ``queues`` of ``None`` are all but those ``excluded``, as one pool; a pool needs types. ``resumes``
    is for a worker that claims again and again (ADR 46).
    """
    return Sources(
        None if queues is None else tuple(queues),
        None if types is None else frozenset(types),
        ranked=ranked,
        excluded=frozenset(excluded),
        resumes=resumes,
    )


def claim(
    where: Sources,
    *,
    limit: int,
    worker_id: str | None,
    beats: bool,
    immediate: int | None = None,
    ahead_bytes: int | None = None,
    most_bytes: int | None = None,
    visibility_ms: int | None = None,
    principal: str | None = None,
    patience: int = 0,
    probe: bool = True,
    promote_for: float = 0.0,
    expire_for: float = SLICE,
    using: str | None = None,
) -> list[JobRow]:
    """Claim up to ``limit`` available jobs; an empty list when there is nothing to do.

    ``immediate`` is how many of them the worker can start at once: of jobs that have one attempt
    only, no more than that are taken, and of the others beyond it no more than ``ahead_bytes`` of text.
    Of all that is claimed, ``most_bytes`` is how much text it may hold, but for one job.
    Jobs whose deadline has passed are discarded on the way, for about ``expire_for`` seconds, not
    returned. ``beats``, ``visibility_ms`` and ``principal`` are as in :func:`lifecycle.claim`. The
    records are what was written; nothing is read again.

    Rows that another transaction holds are passed over, as are overdue jobs of a workflow that one
    holds; on MariaDB also rows that it merely looks at: ``patience`` is how often to look again when
    there was work and none was got. Without ``probe``, one type of one queue is claimed without a read
    first: it was just announced. ``promote_for`` is for how many seconds to make due jobs available,
    and to let in those that a rate limit holds, first (decision L5).
    """
    using = using or conf.current().database
    if promote_for:
        first = due_times.next_start(using=using)
        if first is not None and first <= clock.now(using):
            promote(seconds=promote_for, using=using)
            admission.admit_due(seconds=promote_for, using=using)
    decide = partial(
        lifecycle.claim,
        worker_id=worker_id,
        beats=beats,
        visibility_ms=visibility_ms,
        principal=principal,
    )
    holder = Holder(worker_id, beats, principal)
    lane = where.only
    if lane is not None and not probe and immediate and visibility_ms is None:
        pick = partial(picking.first, lane, PickLimits(min(limit, immediate)))
        started = start_at_once(pick, in_order, holder, using=using)
        if started and started.jobs:
            return started.jobs
    # Where a claim shuts out other writers, what it takes is looked up in its transaction: out of
    # it, a look would be stale behind the writer that it waited for.
    ahead = where.only is None and bool(dialect(using).skip_locked)
    probe = probe or where.only is None
    # A worker of one range locks it in a transaction: there it takes those that it may claim ahead.
    at_once = visibility_ms is None and (ahead or (lane is not None and immediate is None))
    rounds, most, blocked = _ROUNDS, limit, set[UUID]()
    until = clock.boottime() + expire_for
    tries, widened, room = patience, 0, _Room(immediate, ahead_bytes, most_bytes)
    everything, narrow = where, where.crowding
    if at_once and probe and where.flows:
        tried = _start_at_once(where, None, limit, decide, room, holder, using)
        if tried:
            return tried
    while where and limit > 0:
        seen, none_free = None, False
        if probe:
            seen = candidates.look(where, most + len(blocked) if ahead else 1, using=using)
            if blocked:
                seen = seen._replace(found=[one for one in seen.found if one.id not in blocked])
            if not seen.found:
                break
        if at_once and seen is not None and clock.boottime() >= where.usual_until:
            tried = _start_at_once(where, seen, limit, decide, room, holder, using)
            if tried:
                return tried
            none_free = tried is None
            if ahead and none_free and seen.cut_off and not widened:
                # Others were faster. A transaction takes more turns: first look at what is behind.
                widened += 1
                where.crowding *= 4
                continue
        got = _claim(where, seen if ahead else None, limit, decide, room, most=most, using=using)
        if none_free and got.claimed:
            # Free, but not for one statement: their queue has a rate limit, perhaps.
            where.usual_until = clock.boottime() + _USUAL_FOR
            where.crowding = min(where.crowding, narrow)
        if got.claimed or (got.found and not got.passed_over):
            return got.claimed
        probe = True
        if got.held:
            # First the queues whose row is free.
            where = where.without(got.held)
            continue
        if got.passed_over:
            # There may be work behind them.
            rounds -= bool(got.taken_in or got.blocked)
            if rounds <= 0 or (most > limit and clock.boottime() >= until):
                return []
            if not got.taken_in:
                most, at_once = limit + _BEHIND, False
                room = room._replace(most_bytes=room.most_bytes or _BEHIND_BYTES)
                # Left where they are, they would be locked again instead of those behind them.
                blocked |= got.blocked
                ahead = ahead or bool(blocked)
            continue
        if ahead and seen is not None and seen.cut_off and widened < _WIDER:
            # Other claimers have locked all rows that were looked at.
            widened += 1
            where.crowding *= 4
            continue
        if tries <= 0:
            break
        tries -= 1
        clock.pause(_LOOK_AGAIN)
    if where is not everything:
        # No other queue has work: now wait for the locked rows.
        return _claim(everything, None, limit, decide, room, waits=True, using=using).claimed
    return []


def _start_at_once(
    where: Sources,
    seen: Look | None,
    limit: int,
    decide: Callable[..., Transition],
    room: _Room,
    holder: Holder,
    using: str,
) -> list[JobRow] | None:
    """Start what can be started by one statement, then the others as ever; ``None`` if others seem to
    hold all of them. Without a look the statement finds them itself.
    """
    immediate = room.immediate
    ahead = immediate is not None and limit > immediate
    if ahead and seen is not None and any(candidate.most_attempts <= 1 for candidate in seen.found):
        # They have the first places among those that can begin.
        return []
    # What was looked up for some who wait is chosen by that look, also where one range is left.
    lane = where.only if immediate is None else None
    each = None if room.most_bytes is None else room.most_bytes // limit
    limits = PickLimits(limit, ahead, each)
    pick: Callable[..., Picked]
    order: Callable[[JobRow], Any] = in_order
    places: dict[UUID, int] = {}
    if lane is not None:
        pick = partial(picking.first, lane, limits)
    elif seen is not None:
        pick = partial(picking.seen, seen.found, limits)
        places = {candidate.id: place for place, candidate in enumerate(seen.found)}
        order = _by_place(places)
    else:
        pick = partial(picking.served, where, candidates.width(where, limit), limits)
    tried = start_at_once(pick, order, holder, using=using)
    if tried is None or len(tried.jobs) < limit:
        where.flows_until = 0.0
    elif seen is not None:
        where.looked(len(seen.found), limit, pure=seen.pure)
    if tried is None:
        return []
    started, free, looked_at = tried
    if not started:
        return None
    if 2 * len(started) <= free:
        where.usual_until = clock.boottime() + _USUAL_FOR
    where.resumed.found(started[0].priority, started[0].enqueued_at)
    if lane is None:
        exact = seen is not None and seen.pure and len(started) == free
        reached = places[started[-1].id] + 1 if exact else None
        where.locked(free, min(limit, len(places) or looked_at), reached)
    if len(started) == free:
        return started
    others = None
    if lane is None and seen is not None:
        ids = {job.id for job in started}
        others = Look([candidate for candidate in seen.found if candidate.id not in ids], False)
    try:
        left = room.after(len(started), each)
        got = _claim(where, others, limit - len(started), decide, left, using=using)
    except Error:
        # What has started is committed: nobody would run it if this claim failed.
        return started
    return sorted(started + got.claimed, key=order)


def _by_place(places: Mapping[UUID, int]) -> Callable[[JobRow], int]:
    """In the order of the look; what it has not seen comes last."""
    return lambda job: places.get(job.id, len(places))


class _Room(NamedTuple):
    """The limits of a claim; see :func:`claim`."""

    immediate: int | None
    ahead_bytes: int | None
    most_bytes: int | None

    def after(self, jobs: int, each_bytes: int | None) -> _Room:
        """What is left for others."""
        immediate, most = self.immediate, self.most_bytes
        if immediate is not None:
            immediate = max(0, immediate - jobs)
        if most is not None and each_bytes is not None:
            most -= jobs * each_bytes
        return self._replace(immediate=immediate, most_bytes=most)


class _Got(NamedTuple):
    claimed: list[JobRow]
    found: int
    """How many jobs were locked."""
    passed_over: int
    """How many of them were overdue, or are held for a rate limit from now on."""
    taken_in: int = 0
    """How many of them these are."""
    held: frozenset[str] = frozenset()
    """Queues that were passed over because another transaction holds their row."""
    blocked: Set[UUID] = frozenset()
    """Overdue jobs that cannot be ended because another transaction holds their workflow."""


@in_transaction
def _claim(
    where: Sources,
    seen: Look | None,
    limit: int,
    decide: Callable[..., Transition],
    room: _Room,
    *,
    most: int = 0,
    waits: bool = False,
    using: str = "",
) -> _Got:
    found, states = _lock(where, seen, max(limit, most), room.most_bytes, using, waits)
    if found:
        where.resumed.found(found[0].priority, found[0].enqueued_at)
    # After the locks: a time from before a step of the clock would make the jobs overdue at once.
    now = clock.read(using, within=_AT_ONCE)
    chosen: list[JobRow] = []
    immediate, ahead = room.immediate, room.ahead_bytes
    early = _early(found, states.limited)
    if early:
        # Enqueued before their queue had a rate limit; with them more of those behind them.
        policies.know_limited(states.limited, using=using)
        behind = [
            job
            for queue in {job.queue for job in early}
            for job in claiming.first(Lane(queue), _TAKEN_IN, using=using)
        ]
        every = {job.id: job for job in (*early, *_early(behind, states.limited))}
        places.take_in(list(every.values()), now=now, using=using)
        found = [job for job in found if job.id not in every]
    late = [job for job in found if job.deadline_at is not None and job.deadline_at <= now]
    ended, blocked = overdue.ends(late, now=now, using=using) if late else ({}, set[UUID]())
    passed = ended.keys() | blocked
    for job in [job for job in found if job.id not in passed] if passed else found:
        if len(chosen) >= limit:
            break
        if immediate is not None and len(chosen) >= immediate:
            if job.max_attempts <= 1:
                continue
            if ahead is not None:
                ahead -= job.text_bytes
                if ahead < 0:
                    # In order: smaller jobs behind it wait too.
                    break
        chosen.append(job)
    claimed = start(chosen, decide, list(ended.values()), now=now, using=using)
    passed_over = len(passed) + len(early)
    return _Got(claimed, len(found) + len(early), passed_over, len(early), states.held, blocked)


def _early(jobs: Sequence[JobRow], limited: frozenset[str]) -> list[JobRow]:
    """Jobs of queues with a rate limit that have no place under it."""
    return [job for job in jobs if job.queue in limited and not job.hooks & policies.BY_QUEUE]


def _lock(
    where: Sources,
    seen: Look | None,
    limit: int,
    most_bytes: int | None,
    using: str,
    waits: bool,
) -> tuple[list[JobRow], QueueStates]:
    """Lock up to ``limit`` jobs of queues that are not paused: those ``seen``, or the first.

    A queue whose row another transaction holds (to pause it, perhaps) is passed over and returned as
    ``held``, unless this ``waits`` or there is only one queue.
    """
    lane = where.only
    if seen is None and lane is not None and lane.queue is not None:
        states = claiming.shared([lane.queue], using=using)
        if states.paused:
            return [], states
        return claiming.first(lane, limit, most_bytes=most_bytes, using=using), states
    one_writer = seen is None and most_bytes is None and not dialect(using).skip_locked
    if one_writer and where.flows:
        front = claiming.front(where, limit, using=using)
        if front is not None:
            return front, claiming.shared(sorted({job.queue for job in front}), using=using)
        where.flows_until = 0.0
    if seen is None:
        seen = candidates.look(where, limit, using=using)
        if one_writer:
            where.looked(len(seen.found), limit, pure=seen.pure)
    names = {candidate.queue for candidate in seen.found}
    share = claiming.shared if waits else claiming.shared_unless_held
    states = share(sorted(names), using=using)
    names -= states.paused | states.held
    still = [candidate for candidate in seen.found if candidate.queue in names]
    locked = claiming.these(still, limit, most_bytes=most_bytes, using=using)
    where.locked(len(locked), min(limit, len(still)))
    # A job may have been moved to another queue since it was looked at.
    serves = cache(where.serves)
    served = [job for job in locked if job.queue in names and serves(job.queue, job.type)]
    return served, states


def has_work(where: Sources, *, using: str | None = None) -> bool:
    """Whether a job is available in a queue that is not paused; locks nothing."""
    using = using or conf.current().database
    return bool(where) and bool(candidates.look(where, 1, whole=True, using=using).found)
