"""The desk that claims: how many jobs the runner could take, and when to look for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connections

from django_ojs import clock
from django_ojs.domain.job import JobRecord
from django_ojs.services.claim import claim, has_work
from django_ojs.store.batches import OUTAGE
from django_ojs.store.notifications import PollSchedule
from django_ojs.store.sources import Sources
from django_ojs.worker.threads.database import Desk, Inbox, Pending

logger = logging.getLogger("django_ojs.worker")
AHEAD_BYTES = 8 << 20
"""What is claimed ahead may hold no more than so much text."""


class Moment(NamedTuple):
    """One moment on the database's clock and on this process's own."""

    database: datetime
    boottime: float

    def of(self, moment: datetime) -> float:
        """``moment``, a database time, on this process's clock."""
        return self.boottime + (moment - self.database).total_seconds()


@dataclass(slots=True)
class Claims:
    """How the desk is to claim."""

    where: Sources
    watcher: PollSchedule
    worker_id: str
    on_claimed: Callable[[list[JobRecord], Moment], None]
    on_empty: Callable[[bool], None]
    ends: bool = False


class Intake(Desk):
    """A desk that claims too, for a runner that says how many jobs it wants."""

    def __init__(self, inbox: Inbox, claims: Claims, using: str) -> None:
        super().__init__(inbox, using, "ojs-intake")
        self._claims = claims
        self._watcher = claims.watcher
        self._want = 0
        self._immediate = 0
        self._delivered = True
        self._empty = False
        self._passed_over = False
        self._announced: set[tuple[str, str]] = set()

    # Called by the runner.

    def want(self, jobs: int, immediate: int) -> None:
        """How many jobs the runner could take now, and how many of them it could begin at once."""
        with self._changed:
            rises = jobs > self._want
            self._want, self._immediate = jobs, immediate
            if immediate and self._passed_over:
                # What may not be claimed ahead was left lying; now it can be begun at once.
                self._passed_over, rises = False, True
                self._watcher.hint()
            if rises:
                self._changed.notify()

    def delivered(self) -> None:
        """The runner has counted what was claimed: what it wants from now on, it wants more."""
        with self._changed:
            self._delivered = True
            self._want = 0

    def wake(self, queue: str = "", job_type: str = "") -> None:
        """Something may have become available: of this type in this queue; empty for any."""
        with self._changed:
            self._announced.add((queue, job_type))
            self._watcher.hint()
            self._changed.notify()

    def close(self) -> None:
        """Claim nothing more, write what there is and end."""
        with self._changed:
            self._want = 0
        super().close()

    # The thread.

    def _pause(self) -> float | None:
        return self._watcher.pause() if self._want > 0 and self._delivered else None

    def _serve(self, outcomes: Sequence[Pending]) -> None:
        with self._changed:
            want, immediate = (self._want if self._delivered else 0), self._immediate
        # Idle executors come first; the others have something to do meanwhile.
        if not (want and immediate):
            super()._serve(outcomes)
        if want > 0 and self._watcher.due(connections[self._using]):
            self._claim(want, immediate)
        if want and immediate:
            super()._serve(outcomes)

    def _where(self) -> tuple[Sources | None, bool]:
        """Where to claim from, if anywhere, and whether to look first.

        Where there was nothing at the last look at everything, what came since was announced: if that
        is one type of one queue, it is gone to at once.
        """
        where = self._claims.where
        with self._changed:
            told, self._announced = self._announced, set()
        if not self._empty or not told or any("" in place for place in told):
            return where, True
        named = [place for place in told if where.serves(*place)]
        if len(named) > 1:
            return where, True
        return (where.narrowed(*named[0]) if named else None), False

    def _claim(self, want: int, immediate: int) -> None:
        try:
            where, probe = self._where()
            if where is None:
                # The notification was for a queue or a type that this worker does not serve.
                return
            jobs = claim(
                where,
                probe=probe,
                limit=want,
                immediate=immediate,
                ahead_bytes=AHEAD_BYTES,
                worker_id=self._claims.worker_id,
                beats=True,
                using=self._using,
            )
            # Only a worker that is to end must know whether others hold what there is.
            left = self._claims.ends and not jobs
            left = left and has_work(self._claims.where, using=self._using)
            at = Moment(clock.now(self._using), clock.boottime())
        except Exception as error:
            if not isinstance(error, OUTAGE):
                logger.exception("claiming failed")
            self._empty = False
            self._watcher.hint()
            self._broken(error)
            return
        self._works()
        self._passed_over = not jobs and not immediate
        if jobs or probe:
            # A look at what was announced puts off no look at everything.
            self._empty = not jobs and not self._passed_over
            self._watcher.claimed(len(jobs), want)
        if not jobs:
            self._inbox.post(lambda: self._claims.on_empty(left))
            return
        with self._changed:
            self._delivered = False
        self._inbox.post(lambda: self._claims.on_claimed(jobs, at))
