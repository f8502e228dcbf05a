"""The maintenance thread: periodic work without deadlines (promotion, pruning, roll-ups)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from django.db import Error, connections

from django_ojs import clock, hooks
from django_ojs.hooks import MaintenanceTask
from django_ojs.store.sessions import close_broken
from django_ojs.worker.threads.base import ConnectedThread

logger = logging.getLogger("django_ojs.worker")

_AGAIN = 1.0
_SLOW = 0.5
"""A slice that takes longer finds it hard to see what is due (seconds)."""
_UNUSED_AFTER = 2.0
"""Seconds without work after which the connection is closed."""


class MaintenanceThread(ConnectedThread):
    """Runs registered maintenance tasks when they are due; those for scheduled jobs on request.

    Each gets one slice per turn, promotion first, so that none waits for the backlog of another. The
    thread pauses for as long as a turn took if the database has a single writer, or other tasks than
    promotion have more to do. With ``enforcing`` it runs the tasks of ``reap_timeouts`` only.
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
        """Set while the connection is closed because there is no work."""

    def promote(self) -> None:
        """Run the tasks for scheduled jobs now: some jobs are due. From any thread."""
        self._scheduled_due = True
        self._woken.set()

    def promoting(self) -> bool:
        """Whether promotion is behind, and goes on by itself. From any thread."""
        return bool(self._behind)

    def close(self) -> None:
        """End after the current slice."""
        self._closing.set()
        self._woken.set()

    def work(self) -> None:
        """Run tasks until closed."""
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
        """Run one slice of each task that is due; return the seconds until the next turn."""
        began = clock.boottime()
        scheduled_due, self._scheduled_due = self._scheduled_due, False
        only_promoted = True
        for task in hooks.maintenance_tasks():
            if self._closing.is_set() or (self._enforcing and not task.enforces):
                continue
            first = 0.0 if scheduled_due or not task.scheduled else float("inf")
            if began < self._due.get(task.name, first):
                continue
            more = self._run(task)
            only_promoted = only_promoted and (task.scheduled or not more)
        now = clock.boottime()
        next_at = min(self._due.values(), default=now + _AGAIN)
        if next_at <= now and not (only_promoted and self._has_row_locks()):
            # Not shortened by wake-ups, which would come again and again.
            self._closing.wait(now - began)
            return 0.0
        return max(0.0, next_at - now)

    def _has_row_locks(self) -> bool:
        return connections[self._using].features.has_select_for_update

    def _run(self, task: MaintenanceTask) -> bool:
        """Run one slice; return whether there is more. A failed one is retried, and blocks no other."""
        began = clock.boottime()
        try:
            done = task.run(self._using)
        except Exception as error:
            if isinstance(error, (Error, OSError)):
                logger.warning("a maintenance task failed: %s: %s", task.name, error)
                close_broken(self._using)
            else:
                logger.exception("a maintenance task failed: %s", task.name)
            self._due[task.name] = clock.boottime() + _AGAIN
            self._behind.discard(task.name)
            return False
        if done.counts.get("promoted"):
            self._on_promoted()
        # Finding nothing due can be slow too: meanwhile the reaper thread should not look as well.
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
