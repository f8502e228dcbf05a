"""Whether a report came in time: by the total and the execution deadline only.

A heartbeat or visibility lease that has lapsed does not matter: the report shows that its sender is
alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import TimeoutKind, out_of_time
from django_ojs.services import reaper
from django_ojs.store import selectors


class Judge:
    """Decides which reports of one transaction are late, under the locks of their jobs.

    Reads the server's clock and the reaper's record once, and only when a report seems late.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._read: datetime | None = None

    @property
    def now(self) -> datetime:
        """The server's clock, read in this transaction."""
        if self._read is None:
            self._read = clock.read(self._using)
        return self._read

    def is_late(self, job: JobRow, tried_at: datetime) -> bool:
        """Whether the time of the attempt was up at ``tried_at``, when the report was first tried.

        During an outage that no scan has recorded yet, no report is late for its execution deadline,
        which the scan will extend (decision T9). The total timeout is not extended.
        """
        if out_of_time(job, tried_at) is None:
            return False
        clock_of = out_of_time(job, min(tried_at, self.now))
        if clock_of is None:
            return False
        return clock_of is TimeoutKind.TOTAL or reaper.reaper_is_current(
            now=self.now, using=self._using
        )


def in_time(
    kept: Sequence[RenewedLease],
    now: datetime,
    *,
    tried_at: Mapping[UUID, datetime] = MappingProxyType({}),
    using: str,
) -> list[RenewedLease]:
    """The leases whose deadline has not passed at ``now``; reads nothing while none seems late.

    ``tried_at`` has the times by which to judge reports that have waited for a lock, by lease id.
    """
    late = {
        lease.job_id: tried_at.get(lease.lease_id, now)
        for lease in kept
        if lease.deadline_at <= tried_at.get(lease.lease_id, now)
    }
    if not late:
        return list(kept)
    judge, jobs = Judge(using), selectors.jobs(late, using=using)
    # The attempt may have been ended since the lease was read.
    alive = {job.lease_id for job in jobs.values() if not judge.is_late(job, late[job.id])}
    return [lease for lease in kept if lease.job_id not in late or lease.lease_id in alive]
