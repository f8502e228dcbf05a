"""Make scheduled and retryable jobs available when they are due (OJS core 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.services import overdue
from django_ojs.services.commit import commit
from django_ojs.services.turns import BATCH, turn
from django_ojs.store import due_times, locking
from django_ojs.store.batches import SetAside
from django_ojs.store.columns import DUE
from django_ojs.store.contention import in_transaction

_failed = SetAside("promotion")


def promote(*, limit: int | None = None, seconds: float | None = None, using: str | None = None) -> int:
    """Move due ``scheduled`` and ``retryable`` jobs to ``available``; returns how many.

    A job whose deadline has passed is discarded instead. In transactions of at most 200
    jobs, and of a bounded size, until nothing is due, ``limit`` is reached or ``seconds`` have
    passed; a job that cannot be promoted is set aside for a while and logged. Costs two index probes
    when nothing is due.
    """
    using = using or conf.current().database
    until = None if seconds is None else clock.boottime() + seconds
    done = 0
    first = due_times.next_due(using=using)
    while True:
        moment = clock.now(using)
        room = BATCH if limit is None else min(BATCH, limit - done)
        if first is None or first > moment or room <= 0:
            return done
        moved = _promote_some(moment, room, using)
        done += moved
        if not moved or (until is not None and clock.boottime() >= until):
            return done


def _promote_some(now: datetime, limit: int, using: str) -> int:
    def work(part: Sequence[UUID], room: int) -> int:
        return _promote(part, room, now, using=using)

    look = partial(locking.promotable, now, using=using)
    due = look(limit + len(_failed))
    return turn(due, work, _failed, room=limit, further=look, using=using)


@in_transaction
def _promote(ids: Sequence[UUID], room: int, now: datetime, *, using: str = "") -> int:
    jobs = [
        job
        for job in locking.jobs(ids, skip_locked=True, brief=True, using=using).values()
        # Read without a lock before.
        if job.state in DUE and job.scheduled_at is not None and job.scheduled_at <= now
    ]
    ended, held = overdue.ends(jobs, now=now, using=using)
    able = [job for job in jobs if job.id not in held][:room]
    transitions = [ended.get(job.id) or lifecycle.promote(job, now=now) for job in able]
    commit(transitions, now=now, using=using)
    return len(transitions)
