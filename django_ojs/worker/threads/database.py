"""Database threads: statements for the supervisor, so that the supervisor never waits for them.

One makes calls, writes outcomes and claims jobs on one connection. On PostgreSQL and MariaDB, but not
with a node of a Galera cluster, claims have a thread and a connection of their own (ADR 54).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from django_ojs import clock
from django_ojs.domain.exposition import Durations
from django_ojs.domain.job import JobRow
from django_ojs.services.leases import Progress
from django_ojs.store.batches import OUTAGE
from django_ojs.store.contention import is_held
from django_ojs.store.dialect import dialect
from django_ojs.worker.threads.base import STATEMENT_SECONDS, ConnectedThread, MainLoop
from django_ojs.worker.threads.connection import Availability, ConnectionState
from django_ojs.worker.threads.fetcher import Claims, Fetcher
from django_ojs.worker.threads.outcomes import OutcomeWriter, Pending
from django_ojs.worker.threads.progress import ProgressWriter

logger = logging.getLogger("django_ojs.worker")
_AGAIN = 0.25
_Call = tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]


class DatabaseThread(ConnectedThread):
    """Runs calls, outcomes and claims, one at a time.

    Claims nothing without ``claims``. The first are for executors of one job, the second, if there are
    any, for the slots of one that is shared. ``availability`` is shared with another thread.
    """

    def __init__(
        self,
        loop: MainLoop,
        using: str,
        claims: Sequence[Claims] = (),
        *,
        name: str | None = None,
        availability: Availability | None = None,
    ) -> None:
        super().__init__(name or "ojs-database", using)
        self._loop = loop
        self._changed = threading.Condition()
        self._state = ConnectionState(using, availability)
        self._progress = ProgressWriter(self._state, using)
        self._outcomes = OutcomeWriter(loop, self._state, self._progress, using)
        self.claims_took, self.settlements_took = Durations(STATEMENT_SECONDS), self._outcomes.took
        self._fetchers = [
            Fetcher(each, loop, self._state, self._changed, self.claims_took, using) for each in claims
        ]
        self._calls: deque[_Call] = deque()
        self._later: list[tuple[float, _Call]] = []
        self._closing = False
        self.connected = self._state.availability.connected
        self.turn_took = 0.0
        """Seconds of the last turn that wrote outcomes or claimed."""

    # Called by the supervisor.

    def want(self, jobs: int, immediate: int, shared: int = 0) -> None:
        """Set how many jobs the supervisor can take now, how many of them can begin at once, and how
        many it can take for shared slots.
        """
        wanted = ((jobs, immediate), (shared, shared))
        for fetcher, (most, at_once) in zip(self._fetchers, wanted, strict=False):
            fetcher.want(most, at_once)

    def wake(self, queue: str = "", job_type: str = "", *, alone: bool = True) -> None:
        """Look soon: a job of this type may be available in this queue; empty for any. ``alone``: no
        other can be before it.
        """
        for fetcher in self._fetchers:
            fetcher.wake(queue, job_type, alone=alone)

    def settle(self, outcomes: Sequence[Pending]) -> None:
        """Queue outcomes; each is kept until it is written or its time has passed."""
        with self._changed:
            self._outcomes.add(outcomes)
            self._changed.notify()

    def progress(self, progress: Progress) -> None:
        """Queue progress: written within half a second, and before the attempt's outcome."""
        if self._progress.add(progress):
            with self._changed:
                self._changed.notify()

    def call(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Run ``work`` in this thread; ``then(value, error)`` runs in the supervisor's main loop."""
        with self._changed:
            self._calls.append((work, then))
            self._changed.notify()

    @property
    def unwritten(self) -> int:
        """The number of outcomes that are not durable yet."""
        return len(self._outcomes)

    @property
    def outages(self) -> int:
        """How often the database stopped answering."""
        return self._state.availability.outages

    def held_up(self) -> list[JobRow]:
        """The jobs whose outcome is not written yet: this worker still holds their leases."""
        with self._changed:
            return self._outcomes.jobs()

    def close(self) -> None:
        """Claim nothing more, finish what is queued, then end."""
        with self._changed:
            self._closing = True
            for fetcher in self._fetchers:
                fetcher.stop()
            self._changed.notify()

    # The thread.

    def work(self) -> None:
        """Work until closed and everything is written."""
        running = True
        while running:
            try:
                running = self._turn()
            except OUTAGE as error:
                self._state.failed(error)
            except Exception:
                logger.exception("the database thread failed")
                clock.pause(1.0)

    def _turn(self) -> bool:
        with self._changed:
            self._rest(self._idle_for())
            now = clock.boottime()
            calls = list(self._calls)
            self._calls.clear()
            again = [call for at, call in self._later if at <= now]
            self._later = [one for one in self._later if one[0] > now]
            progress = self._progress.ready(now)
            outcomes = self._outcomes.ready(now)
            if self._closing and not (calls or again or self._unfinished()):
                return False
            wanted = [(fetcher, *fetcher.wanted()) for fetcher in self._fetchers]
        began = clock.boottime()
        self._make(calls)
        if progress:
            self._progress.write_due(progress)
        # Feed idle executors first; outcomes can wait for one claim.
        for fetcher, want, immediate in wanted:
            if want and immediate:
                fetcher.look(want, immediate)
        if outcomes:
            self._outcomes.write(outcomes)
        for fetcher, want, immediate in wanted:
            if want and not immediate:
                fetcher.look(want, immediate)
        self._make(again)
        if outcomes or any(want for _, want, _ in wanted):
            self.turn_took = clock.boottime() - began
        return True

    def _make(self, calls: Sequence[_Call]) -> None:
        """Make calls; if one meets a lock, retry it and the rest later, so that reports go first."""
        for index, call in enumerate(calls):
            if not self._answer(*call):
                at = clock.boottime() + _AGAIN
                with self._changed:
                    self._later += [(at, one) for one in (*calls[index + 1 :], call)]
                return

    def _idle_for(self) -> float:
        """Seconds until there is something to do; infinite to wait for another thread."""
        done = self._closing and not self._unfinished()
        due_at = self._outcomes.due_at() + self._progress.due_at()
        if self._calls or done or not all(due_at):
            return 0.0
        waits = [at - clock.boottime() for at in due_at + [at for at, _ in self._later]]
        pauses = [] if self._closing else [fetcher.pause() for fetcher in self._fetchers]
        return min(waits + [pause for pause in pauses if pause is not None], default=inf)

    def _unfinished(self) -> bool:
        return bool(self._outcomes or self._later or self._progress)

    def _rest(self, pause: float) -> None:
        """Wait so long, for another thread, or until a schedule sees a change. The lock is held."""
        if pause <= 0:
            return
        watched = [one for fetcher in self._fetchers if (one := fetcher.watched()) is not None]
        now = clock.boottime()
        until = now + pause
        while now < until:
            longest = min([until - now, *(schedule.check_after(now) for schedule in watched)])
            if self._changed.wait(None if longest == inf else longest):
                return
            if any(schedule.changed() for schedule in watched):
                return
            now = clock.boottime()

    def _answer(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> bool:
        """Make a call and hand over its answer; return False if its row is locked elsewhere."""
        value: Any = None
        error: Exception | None = None
        try:
            value = work()
        except Exception as trouble:
            error = trouble
        if error is not None and is_held(error):
            return False
        # Answer before pausing: during an outage the supervisor acts on what it knows.
        self._loop.call_soon(lambda: then(value, error))
        if isinstance(error, OUTAGE):
            self._state.failed(error)
        return True


def database_threads(loop: MainLoop, using: str, claims: Sequence[Claims]) -> list[DatabaseThread]:
    """The threads of a worker: the first claims, the last writes outcomes and makes calls."""
    if not dialect(using).claims_apart():
        return [DatabaseThread(loop, using, claims)]
    shared = Availability()
    claimer = DatabaseThread(loop, using, claims, name="ojs-claims", availability=shared)
    return [claimer, DatabaseThread(loop, using, availability=shared)]


def end(threads: Sequence[DatabaseThread], seconds: float) -> None:
    """Have them claim nothing more and finish what is queued; wait for so many seconds."""
    until = clock.boottime() + seconds
    for thread in threads:
        thread.close()
    for thread in threads:
        thread.join(max(0.0, until - clock.boottime()))
