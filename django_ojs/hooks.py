"""Extension points: how other code plugs into the core.

A :class:`TransitionHook` takes part in the transaction in which jobs change state. A
:class:`MaintenanceTask` is periodic work that a worker does while it runs and ``reap_timeouts`` on
its own; the core's promoter, pruner and roll-up are registered in the same way. A job type declares the
defaults of its jobs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django_ojs.conf import DefaultsLayer
from django_ojs.domain.job import JobRow, Transition

logger = logging.getLogger("django_ojs.worker")

SLICE = 0.1
"""Seconds after which a maintenance task with more to do returns, so that others can run."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What a maintenance task did: rows by kind.

    With ``more`` it stopped early so as not to delay the others, and is run again after them.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True)
class TransitionHook:
    """Work in the transaction of transitions, for jobs whose ``hooks`` column has ``bit``.

    ``run(transitions, now, using)`` gets all such transitions of a commit at once, after they are
    written and while their rows are locked; what it raises undoes the commit. It may lock rows that
    come after the jobs in the lock order (``store/locking.py``) and insert rows; it does nothing
    outside the database.

    ``purged(jobs, now, using)`` gets the finished jobs that a person deletes, under their locks.

    ``held(jobs, using)`` names those of the jobs whose other rows, which ``run`` would lock, another
    transaction holds, and locks the rows of the others: a batch leaves the held ones for later.
    """

    name: str
    bit: int
    run: Callable[[Sequence[Transition], datetime, str], None]
    purged: Callable[[Sequence[JobRow], datetime, str], None]
    held: Callable[[Sequence[JobRow], str], set[UUID]]


_transition_hooks: dict[str, TransitionHook] = {}


def register_transition_hook(hook: TransitionHook) -> None:
    """Add a transition hook. Raises ``ValueError`` when its name or its bit is taken."""
    for other in _transition_hooks.values():
        if other is not hook and (other.name == hook.name or other.bit & hook.bit):
            raise ValueError(f"the transition hook {other.name!r} has this name, or the bit {hook.bit}")
    _transition_hooks[hook.name] = hook


def run_transition_hooks(transitions: Sequence[Transition], *, now: datetime, using: str) -> None:
    """Run the hooks that want some of the transitions, in the order of registration."""
    wanted = [transition for transition in transitions if transition.job.hooks]
    if wanted:
        for hook in _transition_hooks.values():
            if own := [transition for transition in wanted if transition.job.hooks & hook.bit]:
                hook.run(own, now, using)


def run_purge_hooks(jobs: Sequence[JobRow], *, now: datetime, using: str) -> None:
    """Run the hooks that want to know of finished jobs that are deleted."""
    for hook in _transition_hooks.values():
        if own := [job for job in jobs if job.hooks & hook.bit]:
            hook.purged(own, now, using)


def held_by_others(jobs: Iterable[JobRow], *, using: str) -> set[UUID]:
    """The jobs that a hook would have to wait for: see :class:`TransitionHook`."""
    wanted = [job for job in jobs if job.hooks]
    held: set[UUID] = set()
    if wanted:
        for hook in _transition_hooks.values():
            if own := [job for job in wanted if job.hooks & hook.bit]:
                held |= hook.held(own, using)
    return held


@dataclass(frozen=True, slots=True)
class DeadlineHook:
    """Deadlines of other things than jobs: ``expire(using)`` enforces those that have passed, in
    transactions of its own and for at most about ``SLICE`` seconds; returns how many.

    Every pass of a reaper that does something calls it; ``store/due_times.py`` tells the reaper when.
    """

    name: str
    expire: Callable[[str], int]


_deadline_hooks: dict[str, DeadlineHook] = {}


def register_deadline_hook(hook: DeadlineHook) -> None:
    """Add a deadline hook. Raises ``ValueError`` when its name is taken."""
    if _deadline_hooks.get(hook.name, hook) is not hook:
        raise ValueError(f"a deadline hook named {hook.name!r} is registered already")
    _deadline_hooks[hook.name] = hook


def expire_others(*, using: str) -> Counter[str]:
    """Enforce the deadlines of all deadline hooks; how many, by the name of the hook."""
    done: Counter[str] = Counter()
    for hook in _deadline_hooks.values():
        if count := hook.expire(using):
            done[hook.name] += count
    return done


_exit_calls: list[Callable[[], object]] = []


def before_exit(call: Callable[[], object]) -> Callable[[], object]:
    """Have ``call()`` run in each executor before it ends: to send what an exporter has buffered.

    To be registered where Django starts, so that every executor knows it; also a decorator. Executors
    end when their worker does, and when they are replaced. All calls together have two seconds, then
    the executor is killed; they do not run in one that is killed at a deadline or has crashed.
    """
    _exit_calls.append(call)
    return call


def run_before_exit() -> None:
    """Make the calls in the order of registration; one that raises is logged."""
    for call in _exit_calls:
        try:
            call()
        except Exception:
            logger.exception("before_exit: %r failed", call)


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
