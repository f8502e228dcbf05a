"""Enforce the five timeouts, independently of the workers (OJS timeouts 7.1).

Any number of reapers at once is safe: rows that another one holds are skipped, and every decision is
made under the row's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django_ojs import clock, conf, hooks
from django_ojs.domain import lifecycle
from django_ojs.domain.job import JobRow, Transition
from django_ojs.domain.silence import Hearing, as_heard, clock_set
from django_ojs.domain.timeouts import TimeoutKind, fired
from django_ojs.services.commit import commit
from django_ojs.services.rate_limits import upkeep
from django_ojs.services.turns import BATCH, turn
from django_ojs.store import due_times, leases, locking
from django_ojs.store.batches import SetAside
from django_ojs.store.contention import atomically, in_transaction
from django_ojs.store.due_times import StallDeadline

_MOST = 10_000
_failed = SetAside("ending")


@dataclass(slots=True)
class ReapResult:
    """What one pass did: jobs by timeout kind, the worst lateness, and when to look again."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness_ms: int = 0
    next_due: datetime | None = None
    jobs: dict[UUID, TimeoutKind] = field(default_factory=dict)

    def add(self, more: ReapResult) -> int:
        """Count what one transaction has done; returns its number of jobs."""
        self.counts += more.counts
        self.lateness_ms = max(self.lateness_ms, more.lateness_ms)
        self.jobs |= more.jobs
        return len(more.jobs)


def reap(
    *,
    limit: int | None = None,
    hearing: Hearing | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
    using: str | None = None,
) -> ReapResult:
    """End everything that is overdue, up to ``limit`` jobs; with ``dry_run`` only report it.

    Works in transactions of at most 200 jobs, and of a bounded size; a job that cannot be ended is
    set aside for a while and logged. ``next_due`` is the earliest moment at which something that
    exists now can fall due. Missed heartbeats are judged by ``hearing``, never by time that passed
    during the pass itself, when no heartbeat could be written.
    """
    using = using or conf.current().database
    hearing = hearing or Hearing(now or clock.now(using))
    one = _Pass(limit, hearing, now, dry_run, using)
    if not dry_run:
        one.reaped.counts += hooks.expire_others(using=using)
    one.end_past_deadlines()
    one.end_active()
    return one.reaped


@dataclass(slots=True)
class _Pass:
    """One pass: how far it may go, and what it has done. With ``at`` it is made as of that time."""

    limit: int | None
    hearing: Hearing
    at: datetime | None
    dry_run: bool
    using: str
    reaped: ReapResult = field(default_factory=ReapResult)

    def end_past_deadlines(self) -> None:
        """End jobs past ``deadline_at``: execution timeout, total timeout, enqueue TTL."""
        using = self.using
        first = due_times.next_deadline(using=using)
        now = self.at or clock.now(using)
        while first is not None and first <= now:
            room = self._room()
            if not room:
                break
            look = partial(locking.past_deadline, now, using=using)
            ids = look(room + len(_failed))
            if len(ids) >= room and not self.dry_run:
                # With a backlog, running jobs go first.
                self.end_active()
                room = self._room()
                running = locking.running_past_deadline(now, using=using)
                ids = list(dict.fromkeys([*running, *ids]))
            if not self._end(ids, room, now, look) or self.dry_run:
                break
            first = due_times.next_deadline(using=using)
            now = self.at or clock.now(using)
        self.reaped.next_due = first if first is not None and first > now else None

    def end_active(self) -> None:
        """End attempts past a deadline that heartbeats extend: heartbeat timeout, visibility lease."""
        using, hearing = self.using, self.hearing
        while room := self._room(_MOST if self.dry_run else BATCH):
            now = self.at or clock.now(using)
            room_to_look = room + len(_failed)
            silences = due_times.next_stall_deadlines(room_to_look + 1, using=using)
            full = len(silences) > room_to_look
            if full and _due(silences[0], hearing, now) > now >= silences[-1].due:
                # The first ones may be excused by an outage, and others behind them overdue.
                silences = due_times.next_stall_deadlines(_MOST, using=using)
            dues = [(_due(silence, hearing, now), silence) for silence in silences]
            overdue = [silence.id for due, silence in dues if due <= now]
            later = [silence.due for silence in silences if silence.due > now][:1]
            excused = [due for due, silence in dues if due > now >= silence.due]
            known = [self.reaped.next_due] if self.reaped.next_due else []
            self.reaped.next_due = min([*later, *excused, *known], default=None)
            done = self._end(overdue, room, now, partial(self._silent, now))
            seen_all = bool(later) or len(silences) <= room
            if self.dry_run or not done or (seen_all and done == len(overdue)):
                break

    def _room(self, most: int = BATCH) -> int:
        if self.limit is None:
            return most
        return max(0, min(most, self.limit - sum(self.reaped.counts.values())))

    def _silent(self, now: datetime, most: int) -> list[UUID]:
        """The overdue ones of so many running jobs whose silence ends first."""
        silences = due_times.next_stall_deadlines(most, using=self.using)
        return [silence.id for silence in silences if _due(silence, self.hearing, now) <= now]

    def _end(
        self,
        ids: Sequence[UUID],
        room: int,
        now: datetime,
        further: Callable[[int], Sequence[UUID]],
    ) -> int:
        """End those of the jobs that are overdue, up to ``room``, as far as a turn goes; returns how
        many. What is ``further`` overdue is looked up where others hold them.

        A job that cannot be ended is set aside for a while, so that it does not block others.
        """

        def work(part: Sequence[UUID], room: int) -> int:
            decide = partial(_decide, part, room, self.hearing, now, self.dry_run, self.using)
            return self.reaped.add(atomically(self.using, decide))

        return turn(
            ids, work, _failed, room=room, further=further, whole=self.dry_run, using=self.using
        )


def _due(silence: StallDeadline, hearing: Hearing, now: datetime) -> datetime:
    """When a missed heartbeat is overdue, extended by the time that does not count."""
    return silence.due + hearing.uncounted(silence.heard_at, now)


def _decide(
    ids: Sequence[UUID], room: int, hearing: Hearing, now: datetime, dry_run: bool, using: str
) -> ReapResult:
    """End the overdue ones of these jobs, up to ``room``, in the caller's transaction."""
    transitions: list[Transition] = []
    done = ReapResult()
    found = locking.jobs(ids, skip_locked=True, brief=True, using=using)
    for job_id in hooks.held_by_others(found.values(), using=using):
        del found[job_id]
    for job in with_heartbeats(list(found.values()), hearing, now=now, using=using):
        if len(transitions) >= room:
            break
        due = fired(job, now)
        transition = lifecycle.overdue(job, now=now, jitter=clock.jitter())
        if due is None or transition is None:
            continue
        done.counts[str(due.clock)] += 1
        grace = job.grace_period_ms if due.clock is TimeoutKind.EXECUTION else 0
        done.lateness_ms = max(done.lateness_ms, due.elapsed_ms - due.limit_ms - grace)
        done.jobs[job.id] = due.clock
        transitions.append(transition)
    if not dry_run:
        commit(transitions, now=now, using=using)
    return done


def with_heartbeats(
    jobs: Sequence[JobRow], hearing: Hearing, *, now: datetime, using: str
) -> list[JobRow]:
    """The jobs with their latest heartbeat, stored beside the row or in it; read under locks."""
    running = [job.lease_id for job in jobs if job.lease_id is not None]
    beats = leases.beats(running, using=using)
    made = []
    for job in jobs:
        if job.lease_id is not None:
            beat = beats.get(job.lease_id)
            at, visibility_ms = (beat.heartbeat_at, beat.visibility_ms) if beat else (None, None)
            job = as_heard(job, beat_at=at, visibility_ms=visibility_ms, hearing=hearing, now=now)
        made.append(job)
    return made


@in_transaction
def set_clock(step: timedelta, *, now: datetime, using: str) -> int:
    """Move the times of running attempts, of their heartbeats and of rate limits by a step of the
    server's clock. Returns how many attempts; to be called once per step.
    """
    transitions = [clock_set(job, step) for job in locking.active(None, using=using)]
    commit(transitions, now=now, using=using)
    leases.move_beats(step, using=using)
    upkeep.set_clock(step, now=now, using=using)
    return len(transitions)


@in_transaction
def recover(*, until: datetime, now: datetime, using: str) -> int:
    """After an outage, extend execution deadlines to ``until``, so that reports arrive first (decision
    T9). Returns how many; the reaper applies the same to locked rows.
    """
    transitions = [
        lifecycle.recover(job, execution_until=until, now=now)
        for job in locking.active(until, using=using)
    ]
    commit(transitions, now=now, using=using)
    return len(transitions)
