"""The last progress of each attempt, on its way to the database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django_ojs import clock
from django_ojs.domain.leases import Lease
from django_ojs.services import leases
from django_ojs.services.leases import Progress
from django_ojs.store.batches import OUTAGE, in_batches
from django_ojs.store.contention import is_held
from django_ojs.worker.threads.connection import ConnectionState

logger = logging.getLogger("django_ojs.worker")
_EVERY = 0.5
_BATCH = 500


class ProgressWriter:
    """Writes progress twice a second, and what is left of an attempt's before its outcome, so that the
    next attempt gets it.
    """

    def __init__(self, state: ConnectionState, using: str) -> None:
        self._state = state
        self._using = using
        self._lock = threading.Lock()
        self._unwritten: dict[UUID, Progress] = {}
        self._due_at = 0.0

    def __len__(self) -> int:
        return len(self._unwritten)

    def add(self, progress: Progress) -> bool:
        """Keep it until it is written, instead of an older one of the attempt; returns whether nothing
        else waits.
        """
        with self._lock:
            first = not self._unwritten
            self._unwritten[progress.lease.lease_id] = progress
        return first

    def due_at(self) -> list[float]:
        """When to write what is kept."""
        return [self._due_at] if self._unwritten else []

    def ready(self, now: float) -> list[Progress]:
        """What to write now."""
        if not self._unwritten or now < self._due_at:
            return []
        self._due_at = now + _EVERY
        with self._lock:
            return list(self._unwritten.values())

    def of(self, held: Iterable[Lease]) -> list[Progress]:
        """What is not written yet of these attempts."""
        if not self._unwritten:
            return []
        known = (self._unwritten.get(lease.lease_id) for lease in held)
        return [progress for progress in known if progress is not None]

    def write_due(self, updates: Sequence[Progress]) -> None:
        """Write; what an outage or a locked row holds up is kept. Database thread only."""
        try:
            self.write(updates)
        except OUTAGE as error:
            self._state.failed(error)

    def write(self, updates: Sequence[Progress]) -> None:
        """Write; what a locked row holds up is kept. Raises the errors of an outage."""
        in_batches(
            updates,
            self._write,
            refused=self._refuse,
            size=lambda update: len(update.data or "") + len(update.message),
            most=_BATCH,
            using=self._using,
        )

    def _write(self, updates: Sequence[Progress]) -> None:
        now = clock.now(self._using)
        try:
            kept = leases.progress(updates, wait=False, using=self._using)
        except OUTAGE as error:
            self._tried(updates, now if is_held(error) else None)
            raise
        held_up = {lease.lease_id for lease in kept if not lease.written}
        self._tried([update for update in updates if update.lease.lease_id in held_up], now)
        for update in updates:
            if update.lease.lease_id not in held_up:
                self._replace(update, None)

    def _tried(self, updates: Sequence[Progress], at: datetime | None) -> None:
        """As of outcomes: it waits for a lock since then; ``None`` after an outage."""
        for update in updates:
            first = None if at is None else update.tried_at or at
            self._replace(update, replace(update, tried_at=first))

    def _refuse(self, update: Progress, error: Exception) -> None:
        job_id = str(update.lease.job_id)
        text = "the database refused the progress of job %s: %s"
        logger.error(text, job_id, error, extra={"job_id": job_id})
        self._replace(update, None)

    def _replace(self, update: Progress, by: Progress | None) -> None:
        lease_id = update.lease.lease_id
        with self._lock:
            # A newer one may have come since it was read.
            if self._unwritten.get(lease_id) is not update:
                return
            if by is None:
                del self._unwritten[lease_id]
            else:
                self._unwritten[lease_id] = by
