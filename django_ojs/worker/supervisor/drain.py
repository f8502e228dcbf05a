"""When a worker is done: a drain with nothing left, one job, or a shutdown with all reports written.

A claim that commits while the runner leaves would keep its jobs until they are stalled, so the end is
decided by a call over the database thread, behind every claim that was made before it.
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
    """Asked by the runner after every turn in which nothing is held any more."""

    def __init__(
        self,
        database: DatabaseThread,
        dispatcher: Dispatcher,
        shutdown: Shutdown,
        where: Sources,
        *,
        promotes: bool,
        using: str,
    ) -> None:
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
        self._barrier: bool | None = None

    @property
    def near(self) -> bool:
        """Whether nothing may be claimed, since the end is being decided or has been."""
        return self._checking or self._drained

    def work_goes_on(self) -> None:
        """Something was claimed, or a job ended and may have made another."""
        self._empty = self._asked = False

    def queue_was_empty(self, left: bool) -> None:
        """A claim brought nothing; ``left`` if others hold what there is."""
        self._empty = not left
        self._asked = False

    def drained(self) -> bool:
        """Whether nothing is available any more, what is due included."""
        if self._database.unwritten:
            return False
        if not self._asked and not self._drained:
            self._asked = True
            if self._empty:
                self._look_again()
            else:
                self._database.wake()
        return self._drained

    def flush_barrier_passed(self) -> bool:
        """Whether everything that the database thread claimed has arrived at the runner."""
        if self._barrier is None:
            self._barrier = False

            def then(value: None, error: Exception | None) -> None:
                self._barrier = True

            self._database.want(0, 0)
            self._database.call(lambda: None, then)
        return self._barrier

    def gave_up(self) -> bool:
        """The database did not take the last reports in time: their leases will run out."""
        at = self._shutdown.kill_at
        return at is not None and clock.boottime() >= at + _PATIENCE

    def _look_again(self) -> None:
        """Promote what is due and look once more, while nothing is claimed."""

        def work() -> bool:
            if self._promotes:
                # What is left is available work all the same: the drain goes on.
                promote.promote(seconds=SLICE, using=self._using)
            # A handler may have made a queue since the last look, or a client that died before it
            # could say so.
            queues.discover(using=self._using)
            return has_work(self._where, using=self._using)

        def then(left: bool | None, error: Exception | None) -> None:
            self._checking = self._asked = False
            # Something may have been claimed, and released, since the database thread last found
            # nothing.
            self._drained = error is None and not left and not self._dispatcher.leases
            self._empty = self._empty and self._drained
            self._database.wake()

        self._checking = True
        self._database.want(0, 0)
        self._database.call(work, then)
