"""Replace executors that are due for it, and start those that are missing."""

from __future__ import annotations

import logging
from collections import Counter

from django_ojs import conf
from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.pool import START_TIMEOUT, Phase, Pool, Replacement
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.supervisor.shutdown import Shutdown

logger = logging.getLogger("django_ojs.worker")

_CHECK_EVERY = 0.5
"""Seconds between checks of the memory and the monitors of executors."""


class Recycler:
    """Keeps the pool full of executors that may run jobs. Runs in the supervisor's main thread."""

    def __init__(self, pool: Pool, shutdown: Shutdown, config: Config) -> None:
        self._pool = pool
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
            elif child.running is None and child.phase is Phase.READY:
                if child.jobs_done >= conf.current().executor_max_jobs:
                    child.recycle = Replacement("max_jobs", "it has run EXECUTOR_MAX_JOBS jobs")
                if child.recycle and not child.queued:
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
            self._pool.fill(self._config.concurrency, now)
