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
class LeasedJob:
    """A claimed job on its way through an executor. Times are :func:`clock.boottime` seconds."""

    job: JobRecord
    lease: str
    received_at: float
    deadline: float
    """When the row's deadline passes: extensions move it, and so does the air after an outage."""
    ends: float
    """When the execution timeout and its grace period are over: only extensions move it."""
    text_bytes: int = 0
    """About how much text the job holds."""
    total_at: float = inf
    """When the total timeout ends; what is left after it is a grace period."""
    began_at: float | None = None
    soft_at: float | None = None
    told: str | None = None
    """The reason for which the handler was told to stop."""
    told_at: float | None = None
    seen_at: float = 0.0
    """Last sign of life: pulse, or the handler's own heartbeat in manual mode."""
    vouched_at: float = 0.0
    """The last sign of life that a beat was sent for."""
    manual: bool = False
    lost: bool = False
    why_lost: str = "lost"
    kill_reason: str | None = None
    checking: bool = False
    """Whether its row is being asked before something is done about it."""
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
