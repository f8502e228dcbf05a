"""Whether a report came in time: judged by the total and the execution deadline, and by nothing else.

A heartbeat or visibility lease that has lapsed is healed by the report: its sender is alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django_ojs import clock
from django_ojs.domain.job import JobRecord
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import TimeoutKind, out_of_time
from django_ojs.services import reaper
from django_ojs.store import selectors


class Judge:
    """Judges the reports of one transaction, under the locks of their jobs.

    The server's clock and the outage rule are asked once, and only when something seems late.
    """

    def __init__(self, now: datetime | None, using: str) -> None:
        self._given = now
        self._using = using
        self._read: datetime | None = None

    @property
    def now(self) -> datetime:
        """The server's clock, read in this transaction."""
        if self._read is None:
            self._read = self._given or clock.read(self._using)
        return self._read

    def is_late(self, job: JobRecord, tried_at: datetime) -> bool:
        """Whether the time of the attempt was up at ``tried_at``, when the report was first tried.

        After an outage that no scan has found yet, nothing is late for its execution deadline: that
        will be moved (decision T9). The total timeout gets no more time.
        """
        if out_of_time(job, tried_at) is None:
            return False
        clock_of = out_of_time(job, min(tried_at, self.now))
        if clock_of is None:
            return False
        return clock_of is TimeoutKind.TOTAL or reaper.reaper_is_current(
            now=self.now, using=self._using
        )


def in_time(kept: Sequence[RenewedLease], now: datetime, *, using: str) -> list[RenewedLease]:
    """Those of the leases whose time is not up at ``now``; reads nothing while none seems late."""
    late = {lease.job_id for lease in kept if lease.deadline_at <= now}
    if not late:
        return list(kept)
    judge, jobs = Judge(None, using), selectors.jobs(late, using=using)
    # Somebody may have ended the attempt since the lease was found.
    alive = {job.lease_id for job in jobs.values() if not judge.is_late(job, now)}
    return [lease for lease in kept if lease.job_id not in late or lease.lease_id in alive]
