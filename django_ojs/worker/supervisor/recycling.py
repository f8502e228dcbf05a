"""Replace executors that are due for it, and start those that are missing."""

from __future__ import annotations

import logging
from collections import Counter

from django_ojs import conf
from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.child import Phase, Replacement
from django_ojs.worker.prefork.pool import START_TIMEOUT, Pool
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.supervisor.shutdown import Shutdown

logger = logging.getLogger("django_ojs.worker")

_STOPPING = 1.0
"""Seconds that a handler may take to stop until others get a new executor to share."""
_CHECK_EVERY = 0.5
"""Seconds between checks of the memory and the monitors of executors."""


class Recycler:
    """Keeps the pool full of executors that may run jobs. Runs in the supervisor's main thread."""

    def __init__(self, pool: Pool, shutdown: Shutdown, config: Config, shared: SharedTypes) -> None:
        self._pool = pool
        self._shared = shared
        self._shutdown = shutdown
        self._config = config
        self.due_at = 0.0
        """The time of the next check of memory and monitors (boottime)."""
        self.recycled: Counter[str] = Counter()
        """How many executors were replaced, by the code of the reason."""

    def check(self, now: float) -> None:
        """Kill what does not start, end what is to be replaced, start what is missing."""
        for child in list(self._pool):
            if child.phase is Phase.STARTING and now - child.started_at > START_TIMEOUT:
                logger.error("an executor did not start in time: %s s", START_TIMEOUT)
                self._pool.kill(child)
            elif child.phase is Phase.READY and (child.is_shared or not child.is_busy):
                if child.jobs_done >= conf.current().executor_max_jobs * child.size:
                    child.recycle = Replacement("max_jobs", "it has run EXECUTOR_MAX_JOBS jobs")
                elif child.is_shared and now - (child.stopping_since or now) > _STOPPING:
                    child.recycle = Replacement("stopping", "a handler does not stop")
                if child.recycle and not child.assigned:
                    logger.info("recycling an executor: %s", child.recycle.text)
                    self.recycled[child.recycle.code] += 1
                    self._pool.end(child)
        if now >= self.due_at:
            self.due_at = now + _CHECK_EVERY
            self._pool.check()
            most = self._config.max_rss
            for child in self._pool:
                if most is not None and child.pid and linux.rss_mib(child.pid) > most:
                    child.recycle = Replacement("memory", f"it uses more than {most:g} MiB")
        if not self._shutdown.begun:
            self._pool.fill(self._config.concurrency, self._slots, now)

    @property
    def missing(self) -> bool:
        """Whether an executor is yet to be started."""
        return bool(self._pool.missing(self._config.concurrency, self._slots))

    @property
    def _slots(self) -> int:
        return self._shared.slots if self._shared else 0
