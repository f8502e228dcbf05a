"""When a worker stops what must not overlap, because no heartbeat arrives (``on_partition="stop"``).

Everything counts from the moment at which the last heartbeat was *sent* that has arrived. The server
counts from when it was received, which is no earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from django_ojs.domain.job import JobRow
from django_ojs.worker.prefork.leased import LeasedJob


def _timeout(job: JobRow) -> float:
    return job.heartbeat_timeout_ms / 1000


def _margin(job: JobRow) -> float:
    """Seconds before the end of the heartbeat timeout by which the handler is killed."""
    return min(1.0, _timeout(job) / 4)


def soft_at(leased: LeasedJob) -> float:
    """When the handler is asked to stop; infinity for a job that goes on."""
    heard_at = leased.deadlines.heard_at
    return inf if heard_at is None else heard_at + _timeout(leased.job) / 2


def kill_at(leased: LeasedJob) -> float:
    """When the handler is killed; infinity for a job that goes on."""
    heard_at = leased.deadlines.heard_at
    return inf if heard_at is None else heard_at + _timeout(leased.job) - _margin(leased.job)


def is_watched(leased: LeasedJob) -> bool:
    """Whether it stops on a partition, and its executor with it."""
    return leased.deadlines.heard_at is not None


def watched(assigned: Iterable[LeasedJob]) -> tuple[float, float] | None:
    """When the monitor of an executor with these jobs kills it, and when the system does, if the worker
    has not; ``None`` for never.
    """
    return min(map(_watched, filter(is_watched, assigned)), default=None)


def _watched(leased: LeasedJob) -> tuple[float, float]:
    margin, at = _margin(leased.job), kill_at(leased)
    return at + margin / 4, at + margin / 2
