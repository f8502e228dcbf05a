"""What the main thread of a worker asks the database, once, before its other threads do."""

from __future__ import annotations

import logging

from django.db import connections

from django_ojs import clock
from django_ojs.services.workers import WorkerInfo, register

logger = logging.getLogger("django_ojs.worker")


def register_worker(info: WorkerInfo, *, using: str) -> None:
    """Register the worker, warn of a clock that is off, and give the connection back.

    On a new session: one that was opened earlier has none of the limits of a worker's sessions.
    """
    connections[using].close()
    register(info, using=using)
    if (off := clock.disagreement(using)) is not None:
        text = "the clock of the database is off this host's: %+.1f s"
        logger.warning(text, off.total_seconds())
    connections[using].close()
