"""Extension points: how other code plugs into the core.

A :class:`MaintenanceTask` is periodic work that a worker does while it runs and ``reap_timeouts`` on
its own; the core's promoter, pruner and roll-up are registered in the same way. A job type declares the
defaults of its jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django_ojs.conf import DefaultsLayer

SLICE = 0.1
"""Seconds after which a maintenance task with more to do returns, so that others can run."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What a maintenance task did: rows by kind, and when it has something to do next, if it knows.

    With ``more`` it stopped early so as not to delay the others, and is run again after them.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    next_due: datetime | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """Named periodic work: ``run(using)`` is called at least every ``every`` seconds.

    It must be safe to run by any number of processes at once, and return after about ``SLICE``
    seconds, with ``more`` if it is not done: maintenance tasks share a thread, which no deadline waits
    for. With ``enforces`` it is part of ``reap_timeouts``. With ``scheduled`` it is run when a
    scheduled or retryable job is due.
    """

    name: str
    every: float
    run: Callable[[str], MaintenanceResult]
    enforces: bool = False
    scheduled: bool = False


_maintenance_tasks: dict[str, MaintenanceTask] = {}
_job_types: dict[str, DefaultsLayer] = {}


def register_maintenance_task(task: MaintenanceTask) -> None:
    """Add a maintenance task; a second one of the same name is a programming error."""
    if _maintenance_tasks.get(task.name, task) is not task:
        raise ValueError(f"a maintenance task named {task.name!r} is registered already")
    _maintenance_tasks[task.name] = task


def maintenance_tasks() -> tuple[MaintenanceTask, ...]:
    """All registered maintenance tasks, in the order of registration."""
    return tuple(_maintenance_tasks.values())


def declare_job_type(name: str, defaults: DefaultsLayer) -> None:
    """Declare the defaults of jobs of the type ``name``, wherever they are enqueued from."""
    _job_types[name] = defaults


def job_types() -> Mapping[str, DefaultsLayer]:
    """The job types that this process knows, with their defaults."""
    return dict(_job_types)


def job_type(name: str) -> DefaultsLayer | None:
    """The declared defaults of a job type, if this process knows it."""
    return _job_types.get(name)
