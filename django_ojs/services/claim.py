"""Give jobs to a worker, each under a fresh lease (OJS worker protocol FETCH)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from django_ojs import clock, conf
from django_ojs.domain import lifecycle
from django_ojs.domain.job import JobRecord, Transition
from django_ojs.services.commit import commit
from django_ojs.store import claiming, selectors
from django_ojs.store.claiming import Source
from django_ojs.store.contention import atomically

_LOOK_AGAIN = 0.005


def sources(
    queues: Sequence[str], types: Sequence[str] | None = None, *, ranked: bool = True
) -> list[Source]:
    """Where to claim from: every queue, or every type of every queue.

    ``ranked`` serves the queues in the order named (decision L10), otherwise they are one pool.
    """
    return [
        Source(queue, kind, rank if ranked else 0)
        for rank, queue in enumerate(dict.fromkeys(queues))
        for kind in (types if types is not None else (None,))
    ]


def claim(
    where: Sequence[Source],
    *,
    limit: int,
    worker_id: str | None,
    beats: bool,
    immediate: int | None = None,
    visibility_ms: int | None = None,
    principal: str | None = None,
    patience: int = 0,
    probe: bool = True,
    now: datetime | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """Claim up to ``limit`` available jobs; an empty list when there is nothing to do.

    ``immediate`` is how many of them the worker can start at once: of jobs that have one attempt
    only, no more than that are taken. Jobs whose deadline has passed are discarded on the way, not
    returned. ``beats``, ``visibility_ms`` and ``principal`` are as in :func:`lifecycle.claim`. The
    records are what was written; nothing is read again.

    Rows that another transaction holds are passed over, on MariaDB also some that it merely looks
    at: ``patience`` is how often to look again when there was work and none was got. Without
    ``probe`` no cheap look at the sources comes first: for a few of them that were just announced.
    """
    using = using or conf.current().database
    busy = list(where) if limit > 0 else []
    if busy and probe:
        busy = claiming.sources_with_work(where, using=using)
    if not busy:
        return []
    terms = partial(
        lifecycle.claim,
        worker_id=worker_id,
        beats=beats,
        visibility_ms=visibility_ms,
        principal=principal,
    )
    work = partial(_claim, busy, limit, terms, immediate, now, using)
    claimed, expired = atomically(using, work)
    tries = patience
    while not claimed and (expired or (tries > 0 and has_work(busy, using=using))):
        if not expired:
            tries -= 1
            clock.pause(_LOOK_AGAIN)
        # Behind what has expired there may be work.
        claimed, expired = atomically(using, work)
    return claimed


def _claim(
    where: Sequence[Source],
    limit: int,
    terms: Callable[..., Transition],
    immediate: int | None,
    now: datetime | None,
    using: str,
) -> tuple[list[JobRecord], bool]:
    """What was claimed, and whether anything was found that had expired."""
    paused = claiming.paused(sorted({source.queue for source in where}), using=using)
    open_sources = [source for source in where if source.queue not in paused]
    found = claiming.candidates(open_sources, limit, using=using)
    now = now or clock.now(using)
    moves: list[Transition] = []
    claimed: list[JobRecord] = []
    for job in found:
        if job.deadline_at is not None and job.deadline_at <= now:
            expired = lifecycle.overdue(job, now=now, jitter=clock.jitter())
            if expired is not None:
                moves.append(expired)
                continue
        if immediate is not None and job.max_attempts <= 1 and len(claimed) >= immediate:
            continue
        move = terms(job, lease_id=clock.new_lease(), now=now)
        moves.append(move)
        claimed.append(move.written)
    commit(moves, now=now, using=using)
    return claimed, len(moves) > len(claimed)


def has_work(where: Sequence[Source], *, using: str | None = None) -> bool:
    """Whether any of the sources has an available job and its queue is not paused; locks nothing."""
    using = using or conf.current().database
    busy = claiming.sources_with_work(where, using=using)
    stopped = selectors.paused_queues(using=using) if busy else set()
    return any(source.queue not in stopped for source in busy)
