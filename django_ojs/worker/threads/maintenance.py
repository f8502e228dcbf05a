"""The thread that does the periodic work that no deadline waits for: promotion, pruning, roll-ups."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from django.db import Error, connections

from django_ojs import clock, hooks
from django_ojs.hooks import MaintenanceTask
from django_ojs.worker.threads.base import ConnectedThread

logger = logging.getLogger("django_ojs.worker")

_AGAIN = 1.0
_SLOW = 0.5
"""Seconds that a slice takes only if it is hard to find out what is due."""
_UNUSED_AFTER = 2.0
"""Seconds without work after which the connection is closed."""


class MaintenanceThread(ConnectedThread):
    """Runs every registered maintenance task when it is due; those for scheduled jobs when told to.

    In turns of one slice each, promotion first, so that none of them waits for another's backlog.
    Where the database has one writer at a time, and after everything but promotion, it rests as long
    as it has worked. With ``enforcing`` only maintenance tasks of ``reap_timeouts`` are run.
    """

    def __init__(self, on_promoted: Callable[[], None], *, using: str, enforcing: bool = False) -> None:
        super().__init__("ojs-maintenance", using)
        self._on_promoted = on_promoted
        self._enforcing = enforcing
        self._woken, self._closing = threading.Event(), threading.Event()
        self._scheduled_due = False
        self._due: dict[str, float] = {}
        self._behind: set[str] = set()
        self.disconnected = threading.Event()
        """Set while the connection is closed for want of work."""

    def promote(self) -> None:
        """Jobs are due: have those maintenance tasks run now. From any thread."""
        self._scheduled_due = True
        self._woken.set()

    def promoting(self) -> bool:
        """Whether more is due, or hard to find: this goes on by itself. From any thread."""
        return bool(self._behind)

    def close(self) -> None:
        """End after the slice in hand."""
        self._closing.set()
        self._woken.set()

    def work(self) -> None:
        """Until closed."""
        while not self._closing.is_set():
            wait = self._turn()
            if wait > _UNUSED_AFTER and not self._woken.wait(_UNUSED_AFTER):
                with suppress(Error, OSError):
                    connections[self._using].close()
                self.disconnected.set()
                self._woken.wait(wait - _UNUSED_AFTER)
                self.disconnected.clear()
            else:
                self._woken.wait(wait)
            self._woken.clear()

    def _turn(self) -> float:
        """One slice of whatever is due; seconds until the next turn."""
        began = clock.boottime()
        scheduled_due, self._scheduled_due = self._scheduled_due, False
        only_promoted = True
        for task in hooks.maintenance_tasks():
            if self._closing.is_set() or (self._enforcing and not task.enforces):
                continue
            told = 0.0 if scheduled_due or not task.scheduled else float("inf")
            if began < self._due.get(task.name, told):
                continue
            more = self._run(task)
            only_promoted = only_promoted and (task.scheduled or not more)
        now = clock.boottime()
        next_at = min(self._due.values(), default=now + _AGAIN)
        if next_at <= now and not (only_promoted and self._has_row_locks()):
            # A wake-up is no reason to rest less: it would come again and again.
            self._closing.wait(now - began)
            return 0.0
        return max(0.0, next_at - now)

    def _has_row_locks(self) -> bool:
        return connections[self._using].features.has_select_for_update

    def _run(self, task: MaintenanceTask) -> bool:
        """One slice; whether there is more. One that fails holds up no other, and is tried again."""
        began = clock.boottime()
        try:
            done = task.run(self._using)
        except Exception as error:
            if isinstance(error, (Error, OSError)):
                logger.warning("the maintenance task %s failed: %s", task.name, error)
                with suppress(Error, OSError):
                    connections[self._using].close()
            else:
                logger.exception("the maintenance task %s failed", task.name)
            self._due[task.name] = clock.boottime() + _AGAIN
            self._behind.discard(task.name)
            return False
        if done.counts.get("promoted"):
            self._on_promoted()
        # To find that nothing is due can take long itself: nobody else is to wait for that.
        took = clock.boottime() - began
        slow = task.scheduled and took > _SLOW
        if slow or (task.scheduled and done.more):
            self._behind.add(task.name)
        else:
            self._behind.discard(task.name)
        if done.more:
            self._due[task.name] = 0.0
        elif slow:
            self._due[task.name] = clock.boottime() + max(_AGAIN, took)
        elif task.scheduled:
            self._due.pop(task.name, None)
        else:
            self._due[task.name] = clock.boottime() + task.every
        return done.more
