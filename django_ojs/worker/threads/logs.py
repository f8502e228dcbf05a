"""The thread that stores what attempts have logged: it delays no report, beat or deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from itertools import islice

from django.db import connections

from django_ojs.domain.leases import Lease
from django_ojs.services import attempt_logs
from django_ojs.services.attempt_logs import LoggedAttempt
from django_ojs.store.batches import OUTAGE, in_batches
from django_ojs.store.sessions import close_broken
from django_ojs.worker.threads.base import ConnectedThread

logger = logging.getLogger("django_ojs.worker")

LIMIT = 2_000
"""Attempts whose logs may wait to be stored, with up to 32 KiB each."""
_BATCH = 100
_PAUSE_S = 0.25
"""Seconds between two statements, so that many short jobs do not cost one each."""
_AGAIN_S = 1.0
_UNUSED_S = 2.0


class LogWriter(ConnectedThread):
    """Stores logs in batches, the newest of each attempt; starts with the first one.

    They are kept while the database is away, up to ``LIMIT``; the oldest are dropped then. Its
    connection is closed when there is nothing to do.
    """

    def __init__(self, using: str) -> None:
        super().__init__("ojs-logs", using)
        self._changed = threading.Condition()
        self._waiting: dict[Lease, LoggedAttempt] = {}
        self._closing = False
        self.dropped = 0
        """Attempts whose logs were not stored."""

    def put(self, log: LoggedAttempt) -> None:
        """Queue what an attempt has logged so far."""
        with self._changed:
            self._waiting[log.lease] = log
            if len(self._waiting) > LIMIT:
                del self._waiting[next(iter(self._waiting))]
                self._drop(1)
            self._changed.notify()
            if self.ident is None:
                self.start()

    def close(self, patience: float) -> None:
        """Store what is queued; wait for that, so many seconds at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self.ident is not None:
            self.join(patience)

    # The thread.

    def work(self) -> None:
        """Store logs until closed and everything is stored, or the database is away."""
        while batch := self._next():
            failed = False
            try:
                in_batches(
                    batch, self._write, refused=self._refuse, size=_size, most=_BATCH, using=self._using
                )
            except OUTAGE as error:
                logger.info("logs of attempts are stored later: %s", error)
                close_broken(self._using)
                failed = True
            except Exception:
                logger.exception("logs of attempts could not be stored")
                for log in batch:
                    self._refuse(log, None)
            with self._changed:
                if self._closing and failed:
                    self._drop(len(self._waiting))
                    return
                self._changed.wait_for(lambda: self._closing, _AGAIN_S if failed else _PAUSE_S)

    def _next(self) -> list[LoggedAttempt]:
        """The logs to store next; none when the thread is to end."""
        with self._changed:
            unused: float | None = _UNUSED_S
            while not self._waiting and not self._closing:
                if not self._changed.wait(unused):
                    connections[self._using].close()
                    unused = None
            return list(islice(self._waiting.values(), _BATCH))

    def _write(self, logs: Sequence[LoggedAttempt]) -> None:
        attempt_logs.write(logs, using=self._using)
        self._done(logs)

    def _refuse(self, log: LoggedAttempt, error: Exception | None) -> None:
        if error is not None:
            about = {"job_id": str(log.lease.job_id)}
            logger.warning(
                "the database refused a log: job %s: %s", log.lease.job_id, error, extra=about
            )
        self._done([log])

    def _done(self, logs: Sequence[LoggedAttempt]) -> None:
        with self._changed:
            for log in logs:
                # There may be a newer one by now.
                if self._waiting.get(log.lease) is log:
                    del self._waiting[log.lease]

    def _drop(self, number: int) -> None:
        if number and not self.dropped:
            logger.warning("logs of attempts are dropped: the database does not keep up")
        self.dropped += number


def _size(log: LoggedAttempt) -> int:
    return len(log.text)
