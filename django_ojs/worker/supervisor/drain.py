"""Decide when a worker is done: nothing left to drain, or all reports written at a shutdown.

Jobs of a claim that commits while the supervisor exits would be held until they stall. The decision is
therefore made by a call on the thread that claims, after every claim that was made before.
"""

from __future__ import annotations

from django_ojs import clock
from django_ojs.hooks import SLICE
from django_ojs.services import promote, queues
from django_ojs.services.claim import has_work
from django_ojs.store.sources import Sources
from django_ojs.worker.supervisor.dispatcher import Dispatcher
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads.database import DatabaseThread

_PATIENCE = 5.0


class DrainController:
    """Asked by the supervisor in every turn in which the worker holds no job."""

    def __init__(
        self,
        claimer: DatabaseThread,
        database: DatabaseThread,
        dispatcher: Dispatcher,
        shutdown: Shutdown,
        where: Sources,
        *,
        promotes: bool,
        using: str,
    ) -> None:
        self._claimer = claimer
        self._database = database
        self._dispatcher = dispatcher
        self._shutdown = shutdown
        self._where = where
        self._promotes = promotes
        self._using = using
        self._empty = False
        self._asked = False
        self._checking = False
        self._drained = False
        self._changes = 0
        """How often work went on."""
        self._barrier: bool | None = None

    @property
    def near(self) -> bool:
        """Whether nothing may be claimed, because the end is being or has been decided."""
        return self._checking or self._drained

    def work_goes_on(self) -> None:
        """Something was claimed, or a job ended and may have enqueued another."""
        self._empty = self._asked = False
        self._changes += 1

    def queue_was_empty(self, left: bool) -> None:
        """A claim found nothing; ``left`` if there are jobs, but others hold them."""
        self._empty = not left
        self._asked = False

    def drained(self) -> bool:
        """Whether nothing is available any more, and nothing scheduled is due."""
        if self._database.unwritten:
            return False
        if not self._asked and not self.near:
            self._asked = True
            if self._empty:
                self._look_again()
            else:
                self._claimer.wake()
        return self._drained

    def flush_barrier_passed(self) -> bool:
        """Whether everything that was claimed has arrived here."""
        if self._barrier is None:
            self._barrier = False

            def then(value: None, error: Exception | None) -> None:
                self._barrier = True

            self._claimer.want(0, 0)
            self._claimer.call(lambda: None, then)
        return self._barrier

    def gave_up(self) -> bool:
        """Whether the database did not take the last reports in time: their leases will expire."""
        at = self._shutdown.kill_at
        return at is not None and clock.boottime() >= at + _PATIENCE

    def _look_again(self) -> None:
        """Promote what is due and look again, while nothing is claimed."""
        before = self._changes

        def work() -> bool:
            if self._promotes:
                # One slice. If more is due, what was promoted keeps the drain going.
                promote.promote(seconds=SLICE, using=self._using)
            # A handler, or a client that died before its notification, may have created a queue.
            queues.discover(using=self._using)
            return has_work(self._where, using=self._using)

        def then(left: bool | None, error: Exception | None) -> None:
            self._checking = self._asked = False
            # Jobs may have been claimed and released since the last empty claim; one that has ended
            # since the look may have enqueued another.
            idle = self._changes == before and not self._dispatcher.leases
            self._drained = error is None and not left and idle
            self._empty = self._empty and self._drained
            self._claimer.wake()

        self._checking = True
        self._claimer.want(0, 0)
        # After the calls that are queued for the other thread: places that they free let jobs in.
        self._database.call(lambda: None, lambda value, error: self._claimer.call(work, then))
