"""Schedules over time: those that are due, runs past their retention, those that are late."""

from __future__ import annotations

from datetime import datetime

from django_ojs.hooks import SLICE, MaintenanceResult, MaintenanceTask
from django_ojs.models import Schedule, ScheduleRun
from django_ojs.services.schedules import declared, fire


def _declare(using: str) -> MaintenanceResult:
    changed = len(declared.sync(using=using))
    return MaintenanceResult({"declared": changed} if changed else {})


def _fire(using: str) -> MaintenanceResult:
    done = fire.fire_due(seconds=SLICE, using=using)
    return MaintenanceResult({"schedules": done} if done else {}, more=done > 0)


def late(now: datetime, *, using: str) -> list[str]:
    """The schedules that are due for so long that nobody seems to look after them."""
    rows = Schedule.objects.using(using).filter(due_at__lt=now - fire.LATE).order_by("name")
    return list(rows.values_list("name", flat=True))


def prune(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete up to ``room`` records of runs from before a time."""
    runs = ScheduleRun.objects.using(using)
    ids = list(runs.filter(tick__lt=before).order_by("tick").values_list("pk", flat=True)[:room])
    if ids and not dry_run:
        runs.filter(pk__in=ids)._raw_delete(using)
    return len(ids)


DECLARE = MaintenanceTask("schedules", 60.0, _declare, enforces=True)
FIRE = MaintenanceTask("cron", 0.1, _fire, enforces=True, scheduled=True)
