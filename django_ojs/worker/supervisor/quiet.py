"""Suspended claiming: by a signal, by a directive, or by both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from django_ojs.worker.supervisor.shutdown import Shutdown, WorkerPhase

logger = logging.getLogger("django_ojs.worker")


class QuietBy(Enum):
    """What can make a worker quiet."""

    SIGNAL = "signal"
    DIRECTIVE = "directive"


class Quiet:
    """Suspends claiming for as long as one of the origins asks for it. Runs in the main thread."""

    def __init__(self, shutdown: Shutdown, on_change: Callable[[], None]) -> None:
        self._shutdown = shutdown
        self._on_change = on_change
        self._wanted_by: set[QuietBy] = set()

    def begin(self, origin: QuietBy) -> None:
        """Claim nothing more; running jobs go on."""
        self._wanted_by.add(origin)
        if self._shutdown.phase is WorkerPhase.RUNNING:
            self._shutdown.phase = WorkerPhase.QUIET
            logger.info("quiet: claiming is suspended")
            self._on_change()

    def end(self, origin: QuietBy) -> None:
        """Claim again, unless stopping or while the other origin still asks for quiet."""
        self._wanted_by.discard(origin)
        if not self._wanted_by and self._shutdown.phase is WorkerPhase.QUIET:
            self._shutdown.phase = WorkerPhase.RUNNING
            logger.info("running again: claiming resumes")
            self._on_change()
