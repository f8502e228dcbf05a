"""The fetcher: claims as many jobs as the supervisor can take."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connections

from django_ojs import clock
from django_ojs.domain.exposition import Durations
from django_ojs.domain.job import JobRow
from django_ojs.services.claim import claim, has_work
from django_ojs.store.batches import OUTAGE
from django_ojs.store.sources import Sources
from django_ojs.worker.threads.base import MainLoop
from django_ojs.worker.threads.connection import ConnectionState
from django_ojs.worker.threads.polling import PollSchedule

logger = logging.getLogger("django_ojs.worker")
AHEAD_BYTES = 8 << 20
"""Bytes of text of the jobs claimed ahead, at most."""
FOLLOWING_BYTES = 1 << 20
"""The same of a claim that follows another, whose jobs the supervisor has not measured yet."""
CLAIMED_AT_ONCE = 500
"""Jobs of one claim at most: executors get the first of them before the next are claimed."""
_TOGETHER = 0.05
"""Seconds within which two clocks are read at one moment."""
_LOOKS = 3


class Moment(NamedTuple):
    """One moment on the database's clock and on this process's clock."""

    database: datetime
    boottime: float

    def of(self, moment: datetime) -> float:
        """Convert ``moment``, a database time, to this process's clock."""
        return self.boottime + (moment - self.database).total_seconds()


@dataclass(slots=True)
class Claims:
    """What to claim, when to look, and the callbacks for the result.

    ``on_empty`` wakes the supervisor after every look that finds nothing: ``None`` if it need not know.
    """

    where: Sources
    schedule: PollSchedule
    worker_id: str
    on_claimed: Callable[[list[JobRow], Moment], None]
    on_empty: Callable[[bool], None] | None
    ends: bool = False


class Fetcher:
    """Claims the number of jobs that the supervisor wants. ``changed`` guards its state.

    The supervisor does not know of what is on its way to it, so that is part of what it wants. Until it
    has arrived only full claims follow.
    """

    def __init__(
        self,
        claims: Claims,
        loop: MainLoop,
        state: ConnectionState,
        changed: threading.Condition,
        took: Durations,
        using: str,
    ) -> None:
        self._claims = claims
        self._schedule = claims.schedule
        self._loop = loop
        self._state = state
        self._changed = changed
        self._using = using
        self._left = 0
        self._immediate = 0
        self._coming = 0
        self._empty = False
        self._passed_over = False
        self._announced: set[tuple[str, str]] = set()
        self._alone = True
        self._took = took

    # Called by the supervisor.

    def want(self, jobs: int, immediate: int) -> None:
        """Set how many jobs the supervisor can take now, and how many of them can begin at once."""
        with self._changed:
            left = max(0, jobs - self._coming)
            rises = left > self._left
            self._left, self._immediate = left, max(0, immediate - self._coming)
            if immediate and self._passed_over:
                # Jobs that may not be claimed ahead were passed over; now they can begin.
                self._passed_over, rises = False, True
                self._schedule.wake()
            if rises:
                self._schedule.active()
                self._changed.notify()

    def wake(self, queue: str = "", job_type: str = "", *, alone: bool = True) -> None:
        """As :meth:`DatabaseThread.wake`."""
        with self._changed:
            self._announced.add((queue, job_type))
            self._alone = self._alone and alone
            self._schedule.wake()
            self._changed.notify()

    # Called by the database thread.

    def stop(self) -> None:
        """Claim nothing more."""
        self._left = 0

    def wanted(self) -> tuple[int, int]:
        """Return how many jobs to claim, and how many of them can begin at once."""
        waits = self._coming and self._left < CLAIMED_AT_ONCE
        return (0 if waits else min(self._left, CLAIMED_AT_ONCE)), self._immediate

    def pause(self) -> float | None:
        """Seconds until the next look; ``None`` while nothing is wanted."""
        return self._schedule.pause() if self.wanted()[0] else None

    def watched(self) -> PollSchedule | None:
        """What to check during the pause; ``None`` while nothing is wanted."""
        return self._schedule if self.pause() is not None else None

    def look(self, want: int, immediate: int) -> None:
        """Claim if a look is due."""
        if self._schedule.due(connections[self._using]):
            self._claim(self._claims, want, immediate)

    def _where(self, where: Sources) -> tuple[Sources | None, bool]:
        """Return where to claim from, if anywhere, and whether to look first.

        If the last look at all sources found nothing, later jobs were announced. A single announced
        type and queue is claimed from without a look, unless others may be before it, or the front of
        its range is slow to read.
        """
        with self._changed:
            announced, self._announced = self._announced, set()
            alone, self._alone = self._alone, True
        if not self._empty or not announced or any("" in place for place in announced):
            return where, True
        named = [place for place in announced if where.serves(*place)]
        if len(named) > 1 or (named and (not alone or where.resumed.is_slow)):
            return where, True
        return (where.narrowed(*named[0]) if named else None), False

    def _claim(self, claims: Claims, want: int, immediate: int) -> None:
        try:
            where, probe = self._where(claims.where)
            if where is None:
                # The notification was for a queue or a type that this worker does not serve.
                return
            began = clock.boottime()
            jobs = claim(
                where,
                probe=probe,
                limit=want,
                immediate=immediate,
                ahead_bytes=FOLLOWING_BYTES if self._coming else AHEAD_BYTES,
                worker_id=claims.worker_id,
                beats=True,
                using=self._using,
            )
            took = clock.boottime() - began
            self._took.add(took)
            # Only a draining worker needs to know whether others hold the remaining jobs.
            left = claims.ends and not jobs
            left = left and has_work(claims.where, using=self._using)
            at = _moment(self._using)
        except Exception as error:
            if not isinstance(error, OUTAGE):
                logger.exception("claiming failed")
            self._empty = False
            self._schedule.wake()
            self._state.failed(error)
            return
        self._state.succeeded()
        self._passed_over = not jobs and not immediate
        if jobs or probe:
            # An empty claim of what was announced does not postpone the look at everything.
            self._empty = not jobs and not self._passed_over
            with self._changed:
                self._schedule.record(len(jobs), took, _waited(jobs))
        if not jobs:
            if (on_empty := claims.on_empty) is not None:
                self._loop.call_soon(lambda: on_empty(left))
            return
        with self._changed:
            self._coming += len(jobs)
            self._left = max(0, self._left - len(jobs)) if len(jobs) == want else 0
            self._immediate = max(0, self._immediate - len(jobs))
        self._loop.call_soon(lambda: self._deliver(claims, jobs, at))

    def _deliver(self, claims: Claims, jobs: list[JobRow], at: Moment) -> None:
        """Hand jobs to the supervisor, in its main loop, which sets what else it wants."""
        with self._changed:
            self._coming -= len(jobs)
            if self._left < CLAIMED_AT_ONCE:
                self._left = 0
        claims.on_claimed(jobs, at)


def _waited(jobs: Sequence[JobRow]) -> float:
    """Seconds from the enqueue to the claim of the first of these jobs; 0 if there is none."""
    if not jobs or jobs[0].started_at is None or jobs[0].enqueued_at is None:
        return 0.0
    return (jobs[0].started_at - jobs[0].enqueued_at).total_seconds()


def _moment(using: str) -> Moment:
    """The present. Read again if this process was suspended between the two clocks."""
    for _ in range(_LOOKS):
        before = clock.boottime()
        at = Moment(clock.now(using), before)
        if clock.boottime() - before < _TOGETHER:
            break
    return at
