"""Handlers of lost leases that have ended: their places under rate limits are free."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from django_ojs.services.rate_limits import places
from django_ojs.services.rate_limits.policies import BITS
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.threads.database import DatabaseThread


class LostPlaces:
    """Gathers the leases, and has their places freed by the database thread."""

    def __init__(self, database: DatabaseThread, *, using: str) -> None:
        self._database = database
        self._using = using
        self._leases: list[UUID] = []

    def add(self, lost: LeasedJob) -> None:
        """The handler of this job has ended, or never began."""
        if lost.job.hooks & BITS:
            self._leases.append(lost.held.lease_id)

    def hand_over(self) -> None:
        """Free the places; if that fails, they are free when their grace period is over."""
        if self._leases:
            ended, self._leases = self._leases, []
            self._database.call(partial(places.ended, ended, using=self._using), _ignore)


def _ignore(value: object, error: Exception | None) -> None:
    """The answer changes nothing."""
