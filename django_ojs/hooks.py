"""The doors through which other code plugs into the core.

A :class:`Chore` is periodic work that the runner does while it runs and ``reap_timeouts`` on its
own; the core's reaper, promoter and pruner come through the same door. A :class:`JobType` declares
what jobs of a type get that say nothing themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django_ojs.conf import Defaults

SLICE = 0.1
"""Seconds after which a chore that has more to do lets the others have their turn."""


@dataclass(frozen=True, slots=True)
class ChoreResult:
    """What a chore did: rows by kind, and when it has something to do next, if it knows.

    With ``more`` it stopped before it was done, so as not to hold up the others: it is run again
    as soon as they have had their turn.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    next_due: datetime | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Chore:
    """Named periodic work: ``run(using)`` is called at least every ``every`` seconds.

    It must be safe to run by any number of processes at once, and return after about ``SLICE``
    seconds, with ``more`` if it is not done: chores share a thread, which no deadline waits for.
    With ``enforces`` it is part of ``reap_timeouts``. With ``scheduled`` only jobs whose scheduled
    time has come are work for it: it is run when there are some.
    """

    name: str
    every: float
    run: Callable[[str], ChoreResult]
    enforces: bool = False
    scheduled: bool = False


_chores: dict[str, Chore] = {}
_job_types: dict[str, Defaults] = {}


def register_chore(chore: Chore) -> None:
    """Add a chore; a second one of the same name is a programming error."""
    if _chores.get(chore.name, chore) is not chore:
        raise ValueError(f"a chore named {chore.name!r} is registered already")
    _chores[chore.name] = chore


def chores() -> tuple[Chore, ...]:
    """All registered chores, in the order of registration."""
    return tuple(_chores.values())


def declare_job_type(name: str, defaults: Defaults) -> None:
    """Say what jobs of the type ``name`` get by default, wherever they are enqueued from."""
    _job_types[name] = defaults


def job_types() -> Mapping[str, Defaults]:
    """The job types that this process knows, with their defaults."""
    return dict(_job_types)


def job_type(name: str) -> Defaults | None:
    """The declared defaults of a job type, if this process knows it."""
    return _job_types.get(name)
