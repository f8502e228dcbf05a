"""When to claim next: after a notification, after a change of the SQLite file, and by polling."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from math import inf

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock
from django_ojs.engines import EngineFamily, family_of
from django_ojs.store.notifications import Notifier

_PACE = 50
"""Seconds of idleness for each second of a pause."""
_RESTS = 5
"""A pause is at least so many times as long as a look takes."""
_LOOKS = 4
_EARLY = 0.003
"""Seconds within which a job is found early, the commit of its enqueue included."""
_LONGER = 1.1
"""By how much each job that was found early makes pauses longer; any other halves them."""
_LONGEST = 20.0
"""By how much they are longer at most."""


class PollSchedule(ABC):
    """When a worker looks for jobs: at once when it is woken, else after a pause."""

    def __init__(self) -> None:
        self._active_at = clock.boottime()
        self._next = 0.0
        self._woken = threading.Event()

    def wake(self) -> None:
        """Claim at the next opportunity."""
        self._woken.set()

    def pause(self) -> float:
        """Seconds until the next claim; 0 for now."""
        return 0.0 if self._woken.is_set() else max(0.0, self._next - clock.boottime())

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether to claim now. Clears a wake-up."""
        if self._woken.is_set():
            self._woken.clear()
            return True
        return clock.boottime() >= self._next

    def active(self) -> None:
        """A job has ended: the worker is no longer idle."""
        self._active_at = clock.boottime()

    def check_after(self, now: float) -> float:
        """Seconds until :meth:`changed` should be called, while there is no claim to make."""
        return inf

    def changed(self) -> bool:
        """Whether there may be jobs before the pause is over. Costs next to nothing."""
        return False

    @abstractmethod
    def record(self, got: int, took: float = 0.0, waited: float = inf) -> None:
        """Adapt the pause to the number of jobs that a claim got, to the seconds that it took, and to
        those that its first job had waited.
        """


class IdlenessSchedule(PollSchedule):
    """Polling that is quick after work and slows down without (ADR 51).

    Between two looks the worker waits for a fiftieth of the seconds for which it has been idle,
    after the first second for a fiftieth of its square; from ``fastest`` to ``slowest``. It is idle
    since a job was claimed or has ended. It waits longer while jobs are found so early that others
    must be looking too, and always five times as long as a look takes, but no longer than ``slowest``.
    """

    fastest = 0.004
    slowest = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._took = deque([0.0] * _LOOKS, maxlen=_LOOKS)
        self._stretch = 1.0
        self._paused = False

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether to claim now. Clears a wake-up."""
        if self._woken.is_set():
            self._paused = False
        return super().due(connection)

    def active(self) -> None:
        """A job has ended: the worker is no longer idle."""
        super().active()
        self._next = min(self._next, self._active_at + self._interval(self._active_at))

    def record(self, got: int, took: float = 0.0, waited: float = inf) -> None:
        """Adapt the pause to all of that."""
        now = clock.boottime()
        if got:
            self._active_at, self._next = now, 0.0
            if self._paused:
                # Only such a job may have been found by chance; others are early without that.
                longer, shorter = min(_LONGEST, self._stretch * _LONGER), max(1.0, self._stretch / 2)
                self._stretch = longer if waited < _EARLY else shorter
            self._paused = False
            return
        self._paused = True
        self._took.append(took)
        self._next = now + self._interval(now) * _jitter()

    def _interval(self, now: float) -> float:
        idle = now - self._active_at
        by_idleness = self._stretch * max(self.fastest, idle * max(1.0, idle) / _PACE)
        # The quickest of the last looks: one may be slow by chance.
        return min(self.slowest, max(by_idleness, _RESTS * min(self._took)))


class SafetyNet(PollSchedule):
    """Polling beside something that notifies of work: with pauses that double, and end at 2 s."""

    fastest = 0.02
    slowest = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._pause = self.fastest

    def record(self, got: int, took: float = 0.0, waited: float = inf) -> None:
        """Adapt the pause to the number of jobs that a claim got."""
        now = clock.boottime()
        if got:
            self._active_at, self._pause, self._next = now, self.fastest, 0.0
            return
        self._next = now + self._pause * _jitter()
        self._pause = min(self.slowest, self._pause * 2)


class NotifiedSchedule(SafetyNet):
    """PostgreSQL with LISTEN: polls even less while the notifier listens."""

    _net = 0.25

    def __init__(self, listening: threading.Event) -> None:
        super().__init__()
        self._listening = listening

    def record(self, got: int, took: float = 0.0, waited: float = inf) -> None:
        """Adapt the pause to the number of jobs that a claim got."""
        if not got and self._listening.is_set():
            self._pause = max(self._pause, self._net)
        super().record(got, took, waited)


class FileChangeSchedule(SafetyNet):
    """SQLite: check the file every 5 to 200 ms (the longer idle, the slower), and claim only after a
    commit of another connection.
    """

    _fastest_look = 0.005
    _slowest_look = 0.2
    _settles = 1.0
    """Seconds after a write to the file until its commit is visible to other connections."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path, self._log = path, f"{path}-wal"
        self._version = -1
        self._file: tuple[int, int] | None = None
        self._file_at = 0.0
        self._settled = self._written = False

    def check_after(self, now: float) -> float:
        """Seconds until the next check of the file."""
        return min(self._slowest_look, max(self._fastest_look, (now - self._active_at) / _PACE))

    def changed(self) -> bool:
        """Whether the file may have been written to since the last :meth:`due`."""
        self._written = self._written or self._is_written()
        return self._written

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether another connection has committed since the last call, or a poll is due."""
        foreign = self.changed() and self._is_foreign(connection)
        self._written = False
        return super().due(connection) or foreign

    def _is_written(self) -> bool:
        """Whether the file may have been written to since the last call."""
        try:
            try:
                file = os.stat(self._log)
            except FileNotFoundError:
                # Without a write-ahead log, commits go to the file itself.
                file = os.stat(self._path)
        except OSError:
            return True
        now, seen = clock.boottime(), (file.st_mtime_ns, file.st_size)
        if seen != self._file:
            self._file, self._file_at, self._settled = seen, now, False
            return True
        if self._settled:
            return False
        self._settled = now - self._file_at > self._settles
        return True

    def _is_foreign(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether another connection has committed since the last call."""
        try:
            connection.ensure_connection()
            ((version,),) = connection.connection.execute("PRAGMA data_version").fetchall()
        except Exception:
            # The claim will raise the same error and handle it.
            return True
        known, self._version = self._version, int(version)
        return known != self._version


def _jitter() -> float:
    """A factor that keeps workers from looking in step."""
    return 0.75 + 0.5 * clock.jitter()


def poll_schedule_for(using: str, notifier: Notifier | None = None) -> PollSchedule:
    """The schedule for the database ``using``; ``notifier`` is its notifier, if there is one."""
    if family_of(connections[using]) is EngineFamily.SQLITE:
        return FileChangeSchedule(str(connections[using].settings_dict["NAME"]))
    return IdlenessSchedule() if notifier is None else NotifiedSchedule(notifier.listening)
