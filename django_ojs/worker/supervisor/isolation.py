"""While no heartbeat reaches the database, claim nothing and check which leases still hold.

The server may have given the jobs to other workers, and no answer to a heartbeat can report it. The
check uses the connection of the database thread. During an outage it fails too, and the jobs go on.
"""

from __future__ import annotations

import logging

from django_ojs import conf
from django_ojs.domain.leases import RenewedLease
from django_ojs.services import leases
from django_ojs.worker.supervisor.dispatcher import Dispatcher
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.heartbeat import HeartbeatThread

logger = logging.getLogger("django_ojs.worker")
_SHORT = 0.5


class PartitionGuard:
    """Watches the heartbeats from the main loop; sets ``claims_suspended`` while none arrives."""

    def __init__(
        self,
        heartbeat: HeartbeatThread,
        database: DatabaseThread,
        dispatcher: Dispatcher,
        *,
        using: str,
    ) -> None:
        self._heartbeat = heartbeat
        self._database = database
        self._dispatcher = dispatcher
        self._using = using
        self._asked = False
        self._ask_at = 0.0
        self.claims_suspended = False

    def check(self, now: float) -> None:
        """Suspend or resume claiming. Called in every turn of the loop."""
        silent = self._heartbeat.silent_for(now)
        if silent < _SHORT:
            if self.claims_suspended and not silent:
                self.claims_suspended = False
                logger.info("heartbeats reach the database again: claiming resumes")
            return
        held = list(self._dispatcher.leases.values())
        default = conf.current().limits.heartbeat_timeout_ms or 0
        # The next claim may bring a job with the default, however long the others may be silent.
        timeout = min([default, *(running.job.heartbeat_timeout_ms for running in held)]) / 1000
        if not self.claims_suspended and silent > timeout / 2:
            self.claims_suspended = True
            logger.error("no heartbeat reaches the database: claiming is suspended (%.1f s)", silent)
        if self.claims_suspended and held and not self._asked and now >= self._ask_at:
            self._ask_at = now + timeout / 4
            self._ask()

    def _ask(self) -> None:
        held = [running.held for running in self._dispatcher.leases.values()]
        self._asked = True

        def then(kept: list[RenewedLease] | None, error: Exception | None) -> None:
            self._asked = False
            if kept is not None:
                self._dispatcher.enforcer.renewed([lease.lease_id.hex for lease in held], kept)

        self._database.call(lambda: leases.holds(held, using=self._using), then)
