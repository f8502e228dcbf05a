"""Maintenance of which one process for a database is enough: which one, by the record of the last run.

Nobody is appointed. Each process reads the record when it is its turn, and leaves the task to another
that was there lately; when that one has died, the record becomes old. Two that begin at the same moment
both run once: the record then names one of them, and the other one leaves it to that. Where that is too
much, :func:`take` lets one begin.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from django_ojs import clock
from django_ojs.models import MaintenanceRun
from django_ojs.services.workers import process_name
from django_ojs.store.contention import alone

RECENT = 0.75
"""For which part of the task's period a run keeps other processes from running it.

Less than all of it, so that who finds a fresh record at its turn finds an old one at the next: when the
process that ran the task dies, another takes over within 1.75 periods. For pruning, 45 s and 105 s.
"""


def this_process() -> str:
    """The name of this process in records: its own for as long as it lives."""
    return _name_of(os.getpid())


@cache
def _name_of(pid: int) -> str:
    # One that is forked gets another.
    return process_name()


def last_run(name: str, *, using: str) -> MaintenanceRun | None:
    """The record of a task: when it ran, and who ran it; ``None`` if it never did."""
    return MaintenanceRun.objects.using(using).filter(name=name).only("last_run_at", "ran_by").first()


def is_left_to_another(
    last: MaintenanceRun | None, every: float, *, ran_by: str, now: datetime
) -> bool:
    """Whether another process than ``ran_by`` runs the task, which is due every so many seconds.

    ``now`` is the time of the database, by which the record is kept. If that was set back, the record
    is from the future: far from now it is as good as an old one.
    """
    if last is None or last.ran_by == ran_by:
        return False
    return abs(now - last.last_run_at) < timedelta(seconds=RECENT * every)


def take(name: str, every: float, *, ran_by: str, using: str) -> bool:
    """Record that ``ran_by`` runs the task now; ``False`` if it is left to another, also to one that
    was quicker: workers that were started together have their turns together. The record is no sign
    that the task has done anything.
    """
    last, now = last_run(name, using=using), clock.now(using)
    if is_left_to_another(last, every, ran_by=ran_by, now=now):
        return False
    runs = MaintenanceRun.objects.using(using).filter(name=name)
    if last is not None:
        seen = runs.filter(last_run_at=last.last_run_at, ran_by=last.ran_by)
        return bool(seen.update(last_run_at=now, ran_by=ran_by))
    made = MaintenanceRun(name=name, last_run_at=now, ran_by=ran_by)
    alone(using, partial(runs.bulk_create, [made], ignore_conflicts=True))
    return runs.filter(ran_by=ran_by).exists()


def record(
    name: str,
    last: MaintenanceRun | None,
    *,
    behind: bool | None = None,
    ran_by: str = "",
    using: str,
) -> None:
    """Record that the task has run, after ``last``. What is recorded as ``behind`` and ``ran_by`` stays
    if they are not given.
    """
    now = clock.now(using)
    values: dict[str, Any] = {"last_run_at": now}
    if last is not None:
        values["cadence_ms"] = max(0, (now - last.last_run_at) // timedelta(milliseconds=1))
    if behind is not None:
        values["behind"] = behind
    if ran_by:
        values["ran_by"] = ran_by
    runs = MaintenanceRun.objects.using(using)
    if not runs.filter(name=name).update(**values):
        made = MaintenanceRun(name=name, **values)
        alone(using, partial(runs.bulk_create, [made], ignore_conflicts=True))
