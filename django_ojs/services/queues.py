"""Pause and resume queues: stops claims, not clocks (decision T11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.envelope import check_queue_name
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, Fact
from django_ojs.domain.states import State
from django_ojs.models import Queue
from django_ojs.services import audit
from django_ojs.services.commit import publish, wake
from django_ojs.services.enqueue import remember_queues
from django_ojs.store import inserting, selectors
from django_ojs.store.contention import atomically


def pause(
    names: Iterable[str],
    *,
    actor: Actor = Actor(),
    now: datetime | None = None,
    using: str | None = None,
) -> list[str]:
    """Stop claims from these queues; returns those that were running until now.

    When it returns, no claim from them is under way. Enqueueing goes on, and so do the total and
    TTL clocks of the jobs.
    """
    return _switch(names, True, actor, now, using)


def resume(
    names: Iterable[str],
    *,
    actor: Actor = Actor(),
    now: datetime | None = None,
    using: str | None = None,
) -> list[str]:
    """Allow claims from these queues again; returns those that were paused."""
    return _switch(names, False, actor, now, using)


def _switch(
    names: Iterable[str], paused: bool, actor: Actor, now: datetime | None, using: str | None
) -> list[str]:
    using = using or conf.current().database
    wanted = sorted({check_queue_name(name, "queue") for name in names})
    return atomically(using, partial(_write, wanted, paused, actor, now, using))


def _write(names: list[str], paused: bool, actor: Actor, now: datetime | None, using: str) -> list[str]:
    inserting.queues(names, using=using)
    rows = Queue.objects.using(using).select_for_update().filter(name__in=names)
    changed = [row.name for row in rows.order_by("name") if row.paused is not paused]
    now = now or clock.now(using)
    Queue.objects.using(using).filter(name__in=changed).update(
        paused=paused,
        paused_at=now if paused else None,
        paused_by=actor.name if paused else "",
        reason=actor.reason if paused else "",
    )
    kind = Kind.QUEUE_PAUSED if paused else Kind.QUEUE_RESUMED
    publish((Fact(kind, {"queue": name, **actor.told()}) for name in changed), now=now, using=using)
    if not paused:
        wake([(name, "") for name in changed], using=using)
    return changed


def known(*, using: str | None = None) -> list[str]:
    """The names of all queues that have a row, in order."""
    using = using or conf.current().database
    return list(Queue.objects.using(using).order_by("name").values_list("name", flat=True))


def unused(names: Iterable[str], *, using: str | None = None) -> list[str]:
    """Those of the names that no queue has had so far, in order."""
    names = set(names)
    rows = Queue.objects.using(using or conf.current().database).filter(name__in=names)
    return sorted(names.difference(rows.values_list("name", flat=True)))


def discover(*, using: str | None = None) -> int:
    """Give a row to queues that have jobs but none: after a crash between commit and callback."""
    using = using or conf.current().database
    there = set(known(using=using))
    missing = [name for name in selectors.queues_with_work(using=using) if name not in there]
    remember_queues(missing, using=using)
    return len(missing)


def paused(*, using: str | None = None) -> list[str]:
    """The names of the paused queues, in order."""
    return sorted(selectors.paused_queues(using=using or conf.current().database))


def ensure(names: Iterable[str], *, using: str | None = None) -> None:
    """Give the queues a row, if they have none."""
    remember_queues(list(names), using=using or conf.current().database)


def create(
    name: str, *, actor: Actor = Actor(), now: datetime | None = None, using: str | None = None
) -> None:
    """Give a queue a row before its first use, for the audit too if it had none."""
    using = using or conf.current().database

    def work() -> None:
        if not Queue.objects.using(using).filter(pk=name).exists():
            inserting.queues([name], using=using)
            audit.note("queue.created", actor, target=("queue", name), now=now, using=using)

    atomically(using, work)


def counts(name: str, *, using: str | None = None) -> dict[str, int]:
    """The jobs of a queue by state, each counted up to a cap."""
    return selectors.counts_by_state(queue=name, using=using or conf.current().database)


def counts_of(names: Sequence[str], *, using: str | None = None) -> dict[str, Mapping[str, int]]:
    """The same of many queues, in one statement; available jobs of each up to a lower cap."""
    using = using or conf.current().database
    found = selectors.depths(names, states=selectors.ALL_STATES, using=using)
    return {name: depth.counts for name, depth in found.items()}


def last_hour(name: str, *, now: datetime | None = None, using: str | None = None) -> dict[str, Any]:
    """What a queue did in the last hour, from at most the newest 10,000 jobs that ended in it."""
    using = using or conf.current().database
    now = now or clock.now(using)
    since = now - timedelta(hours=1)
    ended = selectors.ended_since(name, since, using=using)
    completed = [row for row in ended if row.state == State.COMPLETED]
    failed = [row for row in ended if row.state == State.DISCARDED]
    ran = [row for row in completed if row.started_at is not None]
    return {
        "completed_last_hour": len(completed),
        "failed_last_hour": len(failed),
        "dead": sum(row.dead_letter for row in failed),
        "avg_duration_ms": _mean(row.finished_at - row.started_at for row in ran if row.started_at),
        "avg_wait_ms": _mean(row.started_at - row.enqueued_at for row in ran if row.started_at),
        "throughput_per_second": round(len(completed) / 3600, 4),
    }


def _mean(spans: Iterable[timedelta]) -> float:
    found = [max(0.0, span.total_seconds() * 1000) for span in spans]
    return round(sum(found) / len(found), 3) if found else 0.0
