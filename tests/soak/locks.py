"""Locks that somebody holds for a while, on a connection and in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import Error, connection, transaction

from tests.support import lock_job_table

_PATIENCE = 5.0


class Hold:
    """One lock: from :meth:`begin` for ``seconds``, or until :meth:`end`."""

    def __init__(self, lock: Callable[[], list[str]], seconds: float) -> None:
        self._lock, self._seconds = lock, seconds
        self._held: list[str] = []
        self._has_it, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> list[str]:
        """What is held; nothing if it could not be had."""
        self._thread.start()
        self._has_it.wait(_PATIENCE)
        return self._held

    def end(self) -> None:
        """Let go."""
        self._over.set()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            with transaction.atomic():
                self._held = self._lock()
                self._has_it.set()
                if self._held:
                    self._over.wait(self._seconds)
                transaction.set_rollback(True)
        except Error:  # the database may be away for another fault
            self._held = []
        finally:
            self._has_it.set()
            connection.close()


def running_jobs() -> list[str]:
    """A few of the jobs that run, by id."""
    from django_ojs.models import Job

    running = Job.objects.filter(state="active").select_for_update(skip_locked=True)
    return [str(job.pk) for job in running.only("pk")[:5]]


def job_table() -> list[str]:
    """The table of the jobs, against writing: reading goes on."""
    lock_job_table(patience_s=2)
    return ["django_ojs_job"]
