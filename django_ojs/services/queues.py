"""Pause and resume queues: stops claims, not clocks (decision T11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.errors import RateLimited
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobEvent, who
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.states import State
from django_ojs.models import ApiToken, MinuteStat, Queue
from django_ojs.services import audit, enqueue
from django_ojs.services.commit import publish, wake
from django_ojs.services.rate_limits import admission
from django_ojs.store import inserting, selectors
from django_ojs.store.contention import in_transaction

_HOUR = timedelta(hours=1)
_AMONG = 100_000
"""Among how many jobs of a state a queue is looked for before it is forgotten."""


def pause(names: Collection[str], *, actor: Actor = Actor(), using: str = "") -> list[str]:
    """Stop claims from these queues; returns those that were not paused before.

    When it returns, no claim from them is under way. Enqueueing goes on, and so do the total and
    TTL clocks of the jobs.
    """
    return _switch(names, True, actor, using=using)


def resume(names: Collection[str], *, actor: Actor = Actor(), using: str = "") -> list[str]:
    """Allow claims from these queues again; returns those that were paused."""
    return _switch(names, False, actor, using=using)


@in_transaction
def _switch(names: Collection[str], paused: bool, actor: Actor, *, using: str = "") -> list[str]:
    names = sorted({check_queue_name(name, "queue") for name in names})
    rows = Queue.objects.using(using).select_for_update().filter(name__in=names).order_by("name")
    locked = list[Queue]()
    # Again if a queue was pruned between the two statements: a pause must not be lost.
    while len(locked) < len(names):
        inserting.queues(names, using=using)
        locked = list(rows.all())
    changed = [row.name for row in locked if row.paused is not paused]
    now = clock.now(using)
    Queue.objects.using(using).filter(name__in=changed).update(
        paused=paused,
        paused_at=now if paused else None,
        paused_by=actor.name if paused else "",
        reason=actor.reason if paused else "",
    )
    kind, by = (Kind.QUEUE_PAUSED, "paused_by") if paused else (Kind.QUEUE_RESUMED, "resumed_by")
    publish(
        (JobEvent(kind, {"queue": name, by: who(actor), **actor.event_fields()}) for name in changed),
        now=now,
        using=using,
    )
    if not paused:
        wake([(name, "") for name in changed], using=using)
        admission.resumed(changed, now=now, using=using)
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
    # Even if this process knows of a row: it may have been pruned since.
    enqueue.add_queues(missing, using=using)
    return len(missing)


def paused(*, using: str | None = None) -> list[str]:
    """The names of the paused queues, in order."""
    return sorted(selectors.paused_queues(using=using or conf.current().database))


def ensure(names: Iterable[str], *, using: str | None = None) -> None:
    """Give the queues a row, if this process does not know that they have one."""
    enqueue.remember_queues(names, using=using or conf.current().database)


def first_use(
    names: Iterable[str], principal: str, *, token_id: int | None = None, using: str | None = None
) -> list[str]:
    """Make the queues known that a credential names first, all of them or none; returns these.

    Raises :class:`RateLimited` when that would be more of them than
    ``OJS["HTTP"]["MAX_NEW_QUEUES_PER_HOUR"]``. No statement for queues that this process knows.
    """
    using = using or conf.current().database
    asked = enqueue.unknown(names, using=using)
    if not asked:
        return []
    there = set(Queue.objects.using(using).filter(name__in=asked).values_list("name", flat=True))
    new = [name for name in asked if name not in there]
    if new:
        _first_use(new, principal, token_id, clock.now(using), using=using)
    enqueue.know_queues(asked, using=using)
    return new


@in_transaction
def _first_use(
    new: Sequence[str], principal: str, token_id: int | None, now: datetime, *, using: str = ""
) -> None:
    most = conf.current().http.max_new_queues_per_hour
    # One request of a token at a time, so that concurrent ones do not exceed the limit together.
    if token_id is not None:
        list(ApiToken.objects.using(using).select_for_update().filter(pk=token_id).values_list("pk"))
    mine = Queue.objects.using(using).filter(created_by=principal, created_at__gt=now - _HOUR)
    made = list(mine.order_by("created_at").values_list("created_at", flat=True))
    over = len(made) + len(new) - most
    if over > 0:
        # When as many queues as are too many now will be an hour old.
        free = made[min(over, len(made)) - 1] if made else now
        wait = 1 + int((free + _HOUR - now).total_seconds())
        raise RateLimited(
            f"More than {most} new queues an hour with this credential"
            " (OJS['HTTP']['MAX_NEW_QUEUES_PER_HOUR']).",
            retry_after=wait,
            limit=most,
            field="queue",
        )
    rows = [
        Queue(name=name, paused=False, created_at=now, created_by=principal, used_at=now)
        for name in new
    ]
    Queue.objects.using(using).bulk_create(rows, ignore_conflicts=True)


def forget(before: datetime, most: int, *, now: datetime, dry_run: bool = False, using: str) -> int:
    """Delete queues unused since ``before``: no job ended, none is left to run, and they are neither
    paused nor limited nor in the settings. Returns how many.

    A deleted queue is created again by its next use. One in use is checked again after as long.
    """
    settings = conf.current()
    # A queue counts as new for an hour, whatever the retention (``first_use``).
    before = min(before, now - _HOUR)
    idle = Queue.objects.using(using).filter(paused=False, limited=False, used_at__lt=before)
    idle = idle.exclude(name__in=[*settings.queues, settings.queue])
    names = list(idle.order_by("used_at").values_list("name", flat=True)[:most])
    if not names:
        return 0
    depths = selectors.depths(names, cap=1, among=_AMONG, using=using)
    ended = MinuteStat.objects.using(using).filter(step__in=(60, 3600), at__gte=before)
    used = set(ended.filter(queue__in=names).values_list("queue", flat=True).distinct())
    used |= {name for name, depth in depths.items() if any(depth.counts.values()) or depth.capped}
    unused = [name for name in names if name not in used]
    if not dry_run:
        enqueue.forget_queues(unused, using=using)
        # ``idle`` excludes queues that were paused or limited meanwhile.
        idle.filter(name__in=unused)._raw_delete(using)
        idle.filter(name__in=used).update(used_at=now)
    return len(unused)


@in_transaction
def create(name: str, *, is_new: bool = False, actor: Actor = Actor(), using: str = "") -> None:
    """Give a queue a row before its first use, for the audit too if it had none or it ``is_new``."""
    there = Queue.objects.using(using).filter(pk=name).exists()
    if not there:
        inserting.queues([name], using=using)
    if is_new or not there:
        audit.note("queue.created", actor, target=("queue", name), using=using)


def counts(name: str, *, using: str | None = None) -> Mapping[str, int]:
    """The jobs of a queue by state, each counted up to a cap."""
    using, cap = using or conf.current().database, selectors.COUNT_CAP
    found = selectors.depths([name], cap=cap, among=cap, states=selectors.ALL_STATES, using=using)
    return found[name].counts


def counts_of(names: Sequence[str], *, using: str | None = None) -> dict[str, Mapping[str, int]]:
    """The same of many queues, in one statement, up to lower caps."""
    using = using or conf.current().database
    found = selectors.depths(names, states=selectors.ALL_STATES, using=using)
    return {name: depth.counts for name, depth in found.items()}


def last_hour(name: str, *, using: str | None = None) -> dict[str, Any]:
    """What a queue did in the last hour, from at most the newest 10,000 jobs that ended in it."""
    using = using or conf.current().database
    since = clock.now(using) - _HOUR
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
