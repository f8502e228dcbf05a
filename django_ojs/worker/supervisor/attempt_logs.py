"""What handlers log, kept here until it is stored: it outlives the executor (``OJS["LOGS"]``)."""

from __future__ import annotations

from collections.abc import Mapping

from django_ojs.services.attempt_logs import LoggedAttempt
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.prefork.log_tail import LogTail
from django_ojs.worker.threads.logs import LogWriter

EVERY_S = 5.0
"""How often the logs of running attempts are stored, and after how long the first time."""
_PATIENCE_S = 2.0


class AttemptLogs:
    """Gathers lines of running attempts, and has them stored. Main thread of the supervisor only."""

    def __init__(self, using: str) -> None:
        self._writer = LogWriter(using)
        self._due = 0.0

    def take(self, running: LeasedJob, frame: Frame) -> None:
        """A handler has logged something."""
        if running.log is None:
            running.log = LogTail()
        running.log.add(frame["lines"], frame["count"])

    def ended(self, leased: LeasedJob) -> None:
        """This worker has nothing more to do with an attempt."""
        self._save(leased)

    def tick(self, now: float, leases: Mapping[str, LeasedJob]) -> None:
        """Store what attempts have logged that have been running for a while."""
        if now < self._due:
            return
        self._due = now + EVERY_S
        for leased in leases.values():
            if leased.log is not None and now - (leased.began_at or now) >= EVERY_S:
                self._save(leased)

    def _save(self, leased: LeasedJob) -> None:
        log = leased.log
        if log is None or log.count == log.saved:
            return
        log.saved = log.count
        lines = tuple(log.lines)
        self._writer.put(
            LoggedAttempt(leased.held, "\n".join(lines), len(lines), log.count - len(lines))
        )

    def close(self) -> None:
        """Store what is still to be stored, if that takes no longer than a moment."""
        self._writer.close(_PATIENCE_S)
