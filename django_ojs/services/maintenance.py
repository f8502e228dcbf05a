"""The core's own maintenance tasks, registered like those of any other app."""

from __future__ import annotations

from django_ojs import clock, hooks
from django_ojs.hooks import SLICE, MaintenanceResult, MaintenanceTask
from django_ojs.services import promote, prune, queues, rollup, shared_tasks
from django_ojs.services.rate_limits import upkeep as rate_limits
from django_ojs.services.schedules import upkeep as schedules
from django_ojs.services.workflows import upkeep
from django_ojs.store.contention import repeating_statements


def _promote(using: str) -> MaintenanceResult:
    promoted = promote.promote(seconds=SLICE, using=using)
    return MaintenanceResult({"promoted": promoted}, more=promoted > 0)


_DISCOVER = "queues"
_DISCOVER_EVERY = 30.0
_fronts: dict[str, prune.Front] = {}
"""Where prunes go on, by database."""


def _prune(using: str) -> MaintenanceResult:
    front = _fronts.setdefault(using, prune.Front())
    pruned = prune.prune(seconds=SLICE, front=front, ran_by=shared_tasks.this_process(), using=using)
    if not pruned.more:
        front.end_pass()
    return MaintenanceResult(pruned.counts, more=pruned.more)


def _discover(using: str) -> MaintenanceResult:
    ran_by = shared_tasks.this_process()
    with repeating_statements(using):
        last = shared_tasks.last_run(_DISCOVER, using=using)
        now = clock.now(using)
        if shared_tasks.is_left_to_another(last, _DISCOVER_EVERY, ran_by=ran_by, now=now):
            return MaintenanceResult()
        found = queues.discover(using=using)
        shared_tasks.record(_DISCOVER, last, ran_by=ran_by, using=using)
    return MaintenanceResult({"queues": found})


PROMOTE = MaintenanceTask("promote", 0.1, _promote, enforces=True, scheduled=True)
PRUNE = MaintenanceTask("prune", prune.EVERY, _prune)
DISCOVER = MaintenanceTask(_DISCOVER, _DISCOVER_EVERY, _discover, enforces=True)


def register_all() -> None:
    """Register the core's maintenance tasks; the reaper keeps its own record
    (``services.reaper``).
    """
    over_time = (PRUNE, DISCOVER, rollup.TASK, upkeep.TASK)
    for task in (PROMOTE, schedules.DECLARE, schedules.FIRE, rate_limits.TASK, *over_time):
        hooks.register_maintenance_task(task)
