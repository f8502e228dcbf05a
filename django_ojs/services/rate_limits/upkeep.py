"""Rate limits over time: openings, keys that nobody uses any more, rows against jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from django_ojs import clock
from django_ojs.domain.rate_limit import MAX_PERIOD
from django_ojs.hooks import SLICE, MaintenanceResult, MaintenanceTask
from django_ojs.models import RateLimit, RateLimitDue, RateLimitPlace, RateLimitStart
from django_ojs.services.rate_limits import admission
from django_ojs.services.rate_limits.letting_in import make_due
from django_ojs.store.contention import in_transaction


def _admit(using: str) -> MaintenanceResult:
    done = admission.admit_due(seconds=SLICE, using=using)
    return MaintenanceResult({"rate_limits": done} if done else {}, more=done > 0)


def prune(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete up to ``room`` keys that were not used since a time, with their starts."""
    over = RateLimitPlace.objects.using(using).filter(until__lt=before)
    if not dry_run:
        over.filter(status=RateLimitPlace.Status.ENDING)._raw_delete(using)
    rows = _unused(before, using)
    rows = rows.filter(~Exists(RateLimitPlace.objects.using(using).filter(key=OuterRef("key"))))
    # A start counts for as long as a period may last.
    recent = RateLimitStart.objects.using(using).filter(started_at__gt=before - MAX_PERIOD)
    rows = rows.filter(~Exists(recent.filter(key=OuterRef("key"))))
    keys = list(rows.order_by("used_at").values_list("key", flat=True)[:room])
    if keys and not dry_run:
        _delete(keys, before, using=using)
    return len(keys)


def _unused(before: datetime, using: str) -> QuerySet[RateLimit]:
    """Keys that nothing holds but perhaps jobs: no operator, and no handler that asked for a block."""
    blocked = Q(blocked_until__gt=clock.now(using))
    rows = RateLimit.objects.using(using).filter(used_at__lt=before, override__isnull=True)
    return rows.exclude(blocked)


@in_transaction
def _delete(keys: list[str], before: datetime, *, using: str = "") -> None:
    # In the order in which admissions lock them, and looked at again: one may be in use by now.
    rows = _unused(before, using).select_for_update().filter(pk__in=keys)
    old = [row.key for row in rows.order_by("key")]
    RateLimitStart.objects.using(using).filter(key__in=old)._raw_delete(using)
    RateLimit.objects.using(using).filter(pk__in=old)._raw_delete(using)
    for key in old:
        admission.free_queue_of(key, using)


def set_clock(step: timedelta, *, now: datetime, using: str) -> None:
    """Move what counts time by a step of the server's clock: starts, and handlers that may still run.

    Waits for no key, which a user's transaction may hold: those that open by time are made due.
    """
    # In the order in which admissions delete them.
    ending = RateLimitPlace.objects.using(using).filter(status=RateLimitPlace.Status.ENDING)
    ending.update(until=F("until") + step)
    RateLimitStart.objects.using(using).update(started_at=F("started_at") + step)
    dues = RateLimitDue.objects.using(using)
    # One that is inserted meanwhile has whoever made the change.
    free = dues.select_for_update(skip_locked=True).order_by("id").values_list("pk", flat=True)
    dues.filter(pk__in=list(free)).update(due_at=now)
    timed = RateLimit.objects.using(using).filter(due_at__isnull=False)
    make_due(list(timed.values_list("key", flat=True)), now, using)


TASK = MaintenanceTask("rate_limits", 0.1, _admit, enforces=True, scheduled=True)
