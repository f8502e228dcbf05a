"""While no heartbeat reaches the database, claim nothing and ask what this worker still holds.

The server may have given the jobs to other workers, and the answer to a heartbeat cannot say so. The
question goes through the database thread, on another connection. During an outage it has no answer,
and the jobs go on.
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
    """Watches the heartbeats from the main loop. ``claims_suspended`` while nothing may be claimed."""

    def __init__(
        self, beats: HeartbeatThread, database: DatabaseThread, dispatcher: Dispatcher, *, using: str
    ) -> None:
        self._beats = beats
        self._database = database
        self._dispatcher = dispatcher
        self._using = using
        self._asked = False
        self._ask_at = 0.0
        self.claims_suspended = False

    def look(self, now: float) -> None:
        """Called in every turn of the loop."""
        silent = self._beats.silent_for(now)
        if silent < _SHORT:
            if self.claims_suspended and not silent:
                self.claims_suspended = False
                logger.info("heartbeats arrive again")
            return
        held = list(self._dispatcher.leases.values())
        default = conf.current().limits.heartbeat_timeout_ms or 0
        # What is claimed next may have the default, however patient those at hand are.
        timeout = min([default, *(running.job.heartbeat_timeout_ms for running in held)]) / 1000
        if not self.claims_suspended and silent > timeout / 2:
            self.claims_suspended = True
            logger.error("no heartbeat has arrived for %.1f s: nothing is claimed", silent)
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
