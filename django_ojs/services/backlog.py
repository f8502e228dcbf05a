"""How far behind maintenance is: deadlines, promotion, pruning, the roll-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import QuerySet

from django_ojs import clock, conf
from django_ojs.domain.ids import made_at, uuid7
from django_ojs.models import Event, Job, MaintenanceRun
from django_ojs.services import rollup
from django_ojs.services.prune import JOBS
from django_ojs.store import due_times, locking, selectors

_ORDINARY_MINUTES = 3
"""Minutes that may wait while the roll-up is healthy: it runs once a minute and counts whole ones."""


class Behind(NamedTuple):
    """How many rows wait, counted up to ``selectors.COUNT_CAP`` of each kind, and how many seconds ago
    the first of them was due.
    """

    rows: int = 0
    seconds: float = 0.0


def backlog(*, now: datetime | None = None, using: str | None = None) -> Mapping[str, Behind]:
    """What is overdue, by ``deadlines``, ``promotion``, ``pruning`` and ``rollup``.

    Deadlines are the fixed ones (``deadline_at``); ``rollup`` counts minutes. Costs an index probe per
    kind and a count of what waits. Pruning is normally up to a minute behind; of finished jobs past
    their retention, of which there may be more that are kept, the oldest and the newest are looked at.
    """
    using = using or conf.current().database
    now = now or clock.now(using)
    jobs = Job.objects.using(using)
    overdue = jobs.filter(deadline_at__lte=now)
    due = selectors.waiting_for_a_time(jobs).filter(scheduled_at__lte=now)
    old = list(_prunable(now, using))
    return {
        "deadlines": _behind(due_times.next_deadline(using=using), overdue, now),
        "promotion": _behind(due_times.next_due(using=using), due, now),
        "pruning": Behind(sum(one.rows for one in old), max((one.seconds for one in old), default=0.0)),
        "rollup": _uncounted(now, using),
    }


def _behind(first: datetime | None, rows: QuerySet[Any], until: datetime) -> Behind:
    if first is None or first >= until:
        return Behind()
    return _since(first, until, selectors.capped(rows))


def _since(first: datetime | None, until: datetime, rows: int) -> Behind:
    if first is None or not rows:
        return Behind()
    return Behind(rows, round((until - first).total_seconds(), 1))


def _prunable(now: datetime, using: str) -> Iterator[Behind]:
    """What is past its retention, of each kind with many rows."""
    keep = conf.current().retention_ms
    for name, state, dead in JOBS:
        if (age := keep[name]) is not None:
            before = now - timedelta(milliseconds=age)
            rows, first = locking.count_finished_before(
                state, before, selectors.COUNT_CAP, dead_letter=dead, using=using
            )
            yield _since(first, before, rows)
    if (age := keep["events"]) is not None:
        before = now - timedelta(milliseconds=age)
        events = Event.objects.using(using).filter(pk__lt=uuid7(int(before.timestamp() * 1000), 0))
        oldest = events.order_by("pk").values_list("pk", flat=True).first()
        made = None if oldest is None else made_at(oldest)
        yield _behind(made, events, before)


def _uncounted(now: datetime, using: str) -> Behind:
    runs = MaintenanceRun.objects.using(using).filter(name=rollup.NAME, watermark_at__isnull=False)
    watermark = runs.values_list("watermark_at", flat=True).first()
    seconds = 0.0 if watermark is None else (now - rollup.LATE - watermark).total_seconds()
    minutes = int(seconds // 60)
    return Behind(minutes, round(seconds, 1)) if minutes >= _ORDINARY_MINUTES else Behind()
