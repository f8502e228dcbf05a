"""When to claim next: after a notification, after a change of the SQLite file, and by polling."""

from __future__ import annotations

import os
import threading

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock
from django_ojs.engines import EngineFamily, family_of
from django_ojs.store.notifications import Notifier


class PollSchedule:
    """Adaptive polling: at once after a claim that got jobs, otherwise with growing pauses."""

    fastest = 0.02
    slowest = 0.5

    def __init__(self) -> None:
        self._pause = self.fastest
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

    def record(self, got: int) -> None:
        """Adapt the pause to the number of jobs that a claim got."""
        if got:
            self._pause = self.fastest
            self._next = 0.0
            return
        self._next = clock.boottime() + self._pause * (0.75 + 0.5 * clock.jitter())
        self._pause = min(self.slowest, self._pause * 2)


class NotifiedSchedule(PollSchedule):
    """PostgreSQL with LISTEN: while the notifier listens, polling is only the safety net."""

    slowest = 2.0
    _net = 0.25

    def __init__(self, listening: threading.Event) -> None:
        super().__init__()
        self._listening = listening

    def record(self, got: int) -> None:
        """Adapt the pause to the number of jobs that a claim got."""
        if not got and self._listening.is_set():
            self._pause = max(self._pause, self._net)
        super().record(got)


class FileChangeSchedule(PollSchedule):
    """SQLite: check the file every 5 to 100 ms (the longer idle, the slower), and claim only after a
    commit of another connection.
    """

    slowest = 2.0
    _fastest_look = 0.005
    _slowest_look = 0.1
    _settles = 1.0
    """Seconds after a write to the file until its commit is visible to other connections."""

    def __init__(self) -> None:
        super().__init__()
        self._got_at = float("-inf")
        self._version = -1
        self._file: tuple[int, int] | None = None
        self._file_at = 0.0
        self._settled = False

    def pause(self) -> float:
        """Seconds until the next check of the file, or claim."""
        idle = clock.boottime() - self._got_at
        look = min(self._slowest_look, max(self._fastest_look, idle / 50))
        return min(look, super().pause())

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether another connection has committed since the last call, or a poll is due."""
        changed = self._is_written(connection) and self._is_foreign(connection)
        return super().due(connection) or changed

    def record(self, got: int) -> None:
        """Adapt the pause to the number of jobs that a claim got."""
        super().record(got)
        if got:
            self._got_at = clock.boottime()

    def _is_written(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the file may have been written to since the last call."""
        name = str(connection.settings_dict["NAME"])
        try:
            try:
                file = os.stat(f"{name}-wal")
            except FileNotFoundError:
                # Without a write-ahead log, commits go to the file itself.
                file = os.stat(name)
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


def poll_schedule_for(using: str, notifier: Notifier | None = None) -> PollSchedule:
    """The schedule for the database ``using``; ``notifier`` is its notifier, if there is one."""
    if family_of(connections[using]) is EngineFamily.SQLITE:
        return FileChangeSchedule()
    return PollSchedule() if notifier is None else NotifiedSchedule(notifier.listening)
