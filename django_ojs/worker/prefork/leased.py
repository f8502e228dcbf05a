"""The jobs whose leases this worker holds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease
from django_ojs.worker.prefork.log_tail import LogTail

LONG = 0.03
"""A job that has run for so many seconds is long: others should not wait behind it."""


@dataclass(slots=True, eq=False)
class Deadlines:
    """When a job is asked to stop, and killed (boottime). Written by ``supervisor.deadlines`` only."""

    row: float
    """The deadline on the row; extensions and outages move it."""
    ends: float
    """The end of the execution timeout and its grace period; only extensions move it."""
    total_at: float = inf
    """The end of the total timeout, after which the handler has its grace period for clean-up."""
    soft_at: float | None = None
    """When the handler is asked to stop at its execution timeout; ``None`` before it has begun."""
    stop_reason: str | None = None
    """Why the handler was asked to stop."""
    stopped_at: float | None = None
    kill_reason: str | None = None
    heard_at: float | None = None
    """When the last heartbeat was sent that arrived; ``None`` unless the job stops on a partition."""
    act_at: float | None = None
    """While its row is being read again: when the enforcer acts without the answer."""


@dataclass(slots=True, eq=False)
class LeasedJob:
    """A claimed job on its way through an executor; times are on :func:`boottime`.

    ``seen_at`` is the last sign of life: a liveness byte or, in manual mode, the handler's heartbeat.
    The enforcer writes ``deadlines`` and ``job`` (which an extension replaces), the dispatcher and the
    pool write the rest, all in the supervisor's main thread.
    """

    job: JobRow
    lease: str
    received_at: float
    deadlines: Deadlines
    text_bytes: int = 0
    """The approximate size of the job's text."""
    seen_at: float = 0.0
    given_at: float = 0.0
    began_at: float | None = None
    manual: bool = False
    lost: bool = False
    why_lost: str = "lost"
    log: LogTail | None = None
    """What it has logged, if it has logged something (``OJS["LOGS"]``)."""
    asked_back_at: float | None = None
    """When its executor was asked to give it back unbegun."""

    @property
    def job_id(self) -> UUID:
        """The id of the job."""
        return self.job.id

    @property
    def held(self) -> Lease:
        """The lease in the form that the services take."""
        assert self.job.lease_id is not None
        return Lease(self.job.id, self.job.lease_id)


LeaseTable = dict[str, LeasedJob]
"""The jobs whose leases this worker holds, by lease."""
