"""Make jobs available whose time has come (OJS core 6.3)."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.services.commit import commit
from django_ojs.store import locking, upcoming
from django_ojs.store.contention import atomically

BATCH = 1000


def promote(*, limit: int | None = None, now: datetime | None = None, using: str | None = None) -> int:
    """Move due ``scheduled`` and ``retryable`` jobs to ``available``; returns how many.

    A job whose deadline has passed meanwhile is discarded instead. Costs two index probes when
    nothing is due.
    """
    using = using or conf.current().database
    done = 0
    while True:
        moment = now or clock.now(using)
        first = upcoming.next_due(using=using)
        room = BATCH if limit is None else min(BATCH, limit - done)
        if first is None or first > moment or room <= 0:
            return done
        moved = atomically(using, partial(_promote, moment, room, using))
        done += moved
        if not moved:
            return done


def _promote(now: datetime, limit: int, using: str) -> int:
    jobs = locking.promotable(now, limit, using=using)
    moves = [
        lifecycle.overdue(job, now=now, jitter=clock.jitter()) or lifecycle.promote(job, now=now)
        for job in jobs
    ]
    commit(moves, now=now, using=using)
    return len(moves)
