"""Pause and resume queues: stops claims, not clocks (decision T11)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from django_ojs import clock, conf
from django_ojs.domain.envelope import check_queue_name
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, Fact
from django_ojs.models import Queue
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
    who = {"source": actor.source, "actor": actor.name, "reason": actor.reason}
    publish((Fact(kind, {"queue": name, **who}) for name in changed), now=now, using=using)
    if not paused:
        wake(changed, using=using)
    return changed


def known(*, using: str | None = None) -> list[str]:
    """The names of all queues that have a row, in order."""
    using = using or conf.current().database
    return list(Queue.objects.using(using).order_by("name").values_list("name", flat=True))


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
