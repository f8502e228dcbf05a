"""The thread that talks to the database for the supervisor, so that the supervisor never waits for it.

It writes outcomes, makes calls and claims jobs, in this order of creation, on one connection.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from django_ojs import clock
from django_ojs.domain.job import JobRecord
from django_ojs.store.batches import OUTAGE
from django_ojs.store.contention import is_held
from django_ojs.worker.threads.base import ConnectedThread, MainLoop
from django_ojs.worker.threads.connection import ConnectionState
from django_ojs.worker.threads.fetcher import Claims, Fetcher
from django_ojs.worker.threads.outcomes import OutcomeWriter, Pending

logger = logging.getLogger("django_ojs.worker")
_AGAIN = 0.25
_Call = tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]


class DatabaseThread(ConnectedThread):
    """Outcomes, calls and claims, one after the other. Without ``claims`` it claims nothing."""

    def __init__(self, loop: MainLoop, using: str, claims: Claims | None = None) -> None:
        super().__init__("ojs-database", using)
        self._loop = loop
        self._changed = threading.Condition()
        self._state = ConnectionState(using)
        self._outcomes = OutcomeWriter(loop, self._state, using)
        self._fetcher = Fetcher(claims, loop, self._state, self._changed, using)
        self._calls: deque[_Call] = deque()
        self._later: list[tuple[float, _Call]] = []
        self._closing = False
        self.connected = self._state.connected
        # What the supervisor asks of the fetcher.
        self.want = self._fetcher.want
        self.delivered = self._fetcher.delivered
        self.wake = self._fetcher.wake

    # Called by the supervisor.

    def settle(self, outcomes: Sequence[Pending]) -> None:
        """Write outcomes; each is kept until it is written or its time has passed."""
        with self._changed:
            self._outcomes.add(outcomes)
            self._changed.notify()

    def call(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Run ``work`` in this thread; ``then(value, error)`` runs in the supervisor's main loop."""
        with self._changed:
            self._calls.append((work, then))
            self._changed.notify()

    @property
    def unwritten(self) -> int:
        """Outcomes that are not durable yet."""
        return len(self._outcomes)

    def held_up(self) -> list[JobRecord]:
        """The jobs whose outcome is not written yet: this worker still holds their leases.

        The first attempt to write may wait too, behind other work that waits for a lock.
        """
        with self._changed:
            return self._outcomes.jobs()

    def close(self) -> None:
        """Claim nothing more, write what is queued, then end."""
        with self._changed:
            self._closing = True
            self._fetcher.stop()
            self._changed.notify()

    # The thread.

    def work(self) -> None:
        """Until closed and everything is written."""
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
            pause = self._idle_for()
            if pause is None or pause > 0:
                self._changed.wait(pause)
            now = clock.boottime()
            calls = list(self._calls)
            self._calls.clear()
            again = [call for at, call in self._later if at <= now]
            self._later = [one for one in self._later if one[0] > now]
            outcomes = self._outcomes.ready(now)
            if self._closing and not (calls or again or self._outcomes or self._later):
                return False
            want, immediate = self._fetcher.wanted()
        self._make(calls)
        # Executors without work come first; the outcomes of the others can wait for one claim.
        if want and immediate:
            self._fetcher.look(want, immediate)
        if outcomes:
            self._outcomes.write(outcomes)
        if want and not immediate:
            self._fetcher.look(want, immediate)
        self._make(again)
        return True

    def _make(self, calls: Sequence[_Call]) -> None:
        """Make calls until one waits in vain for a lock: reports must not wait behind them all."""
        for index, call in enumerate(calls):
            if not self._answer(*call):
                at = clock.boottime() + _AGAIN
                with self._changed:
                    self._later += [(at, one) for one in (*calls[index + 1 :], call)]
                return

    def _idle_for(self) -> float | None:
        """Seconds until there is something to do, ``None`` for until another thread notifies."""
        done = self._closing and not (self._outcomes or self._later)
        due_at = self._outcomes.due_at()
        if self._calls or done or not all(due_at):
            return 0.0
        waits = [at - clock.boottime() for at in due_at + [at for at, _ in self._later]]
        pause = None if self._closing else self._fetcher.pause()
        return min(waits + ([] if pause is None else [pause]), default=None)

    def _answer(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> bool:
        """Whether there was an answer: a call about a row that is locked elsewhere has none yet."""
        value: Any = None
        error: Exception | None = None
        try:
            value = work()
        except Exception as trouble:
            error = trouble
        if error is not None and is_held(error):
            return False
        # First the answer, then the pause: the supervisor acts on what it knows without a database.
        self._loop.call_soon(lambda: then(value, error))
        if isinstance(error, OUTAGE):
            self._state.failed(error)
        return True
