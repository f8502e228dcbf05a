"""Jobs that this worker holds the leases of."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from uuid import UUID

from django_ojs.domain.job import JobRecord
from django_ojs.domain.leases import Lease

LONG = 0.03
"""Seconds from which a job is one that others are stuck behind."""


@dataclass(slots=True, eq=False)
class Deadlines:
    """When a job is told to stop and killed (boottime). Only ``supervisor.deadlines`` writes it."""

    row: float
    """When the row's deadline passes: extensions move it, and so does the time after an outage."""
    ends: float
    """When the execution timeout and its grace period are over: only extensions move it."""
    total_at: float = inf
    """When the total timeout ends; what is left after it is a grace period."""
    soft_at: float | None = None
    """When the handler is told to stop at its execution timeout; unknown before it has begun."""
    stop_reason: str | None = None
    """Why the handler was told to stop."""
    stopped_at: float | None = None
    kill_reason: str | None = None
    checking: bool = False
    """Whether its row is being read before something is done about it."""


@dataclass(slots=True, eq=False)
class LeasedJob:
    """A claimed job on its way through an executor; times are on :func:`boottime`.

    ``seen_at`` is the last sign of life: liveness byte, or the handler's own heartbeat in manual mode.
    Everything but ``deadlines`` and ``job`` (which an extension replaces) is written by the dispatcher
    and the pool, in the supervisor's main thread.
    """

    job: JobRecord
    lease: str
    received_at: float
    deadlines: Deadlines
    text_bytes: int = 0
    """About how much text the job holds."""
    seen_at: float = 0.0
    began_at: float | None = None
    manual: bool = False
    lost: bool = False
    why_lost: str = "lost"
    asked_back: bool = False
    """Whether its executor was told to give it back unbegun."""

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def held(self) -> Lease:
        """The lease as the services name it."""
        assert self.job.lease_id is not None
        return Lease(self.job.id, self.job.lease_id)


LeaseTable = dict[str, LeasedJob]
"""Every job that this worker holds the lease of, by the lease."""
