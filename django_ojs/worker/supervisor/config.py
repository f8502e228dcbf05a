"""The options of a worker, and the summary of its run."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from django_ojs import __version__, clock
from django_ojs.domain.options import HeartbeatMode
from django_ojs.handlers import registry
from django_ojs.services import claim
from django_ojs.services.workers import WorkerInfo
from django_ojs.store.sources import Sources

EXIT_OK, EXIT_ERROR, EXIT_RECYCLE, EXIT_INTERRUPTED = 0, 1, 75, 130


@dataclass(frozen=True, slots=True)
class Config:
    """The options of ``runworker``. Empty ``queues`` means all but ``exclude``."""

    worker_id: str
    queues: Sequence[str] = ()
    exclude: Sequence[str] = ()
    concurrency: int = 1
    async_slots: int = 0
    heartbeat: HeartbeatMode = "auto"
    drain: bool = False
    once: bool = False
    max_jobs: int | None = None
    max_runtime: float | None = None
    max_rss: float | None = None
    shutdown_timeout: float = 25.0
    maintenance: bool = True
    release: str = ""
    using: str = "default"

    def identity(self) -> WorkerInfo:
        """Describe the worker for its row."""
        return WorkerInfo(
            id=self.worker_id,
            incarnation=clock.new_lease(),
            hostname=socket.gethostname(),
            pid=os.getpid(),
            concurrency=self.concurrency + self.async_slots,
            queues=tuple(self.queues),
            types=tuple(registry.types()),
            labels={"release": self.release} if self.release else {},
            version=f"django-ojs {__version__}",
        )

    def sources(
        self, *, only: frozenset[str] | None = None, without: frozenset[str] = frozenset()
    ) -> Sources:
        """The sources of claims, of all types, ``only`` of some, or ``without`` some. Without queue
        names: all queues, including later ones.
        """
        named = [name for name in self.queues if name not in self.exclude] if self.queues else None
        types = registry.types() if only is None else only
        return claim.sources(
            named,
            (name for name in types if name not in without),
            excluded=self.exclude,
            resumes=True,
        )


@dataclass(slots=True)
class Summary:
    """What a worker did, from start to end."""

    completed: int = 0
    failed: int = 0
    """Attempts, of which some will be retried."""
    given_back: int = 0
    seconds: float = 0.0
    statements: int = 0
    exit_code: int = EXIT_OK

    @property
    def jobs(self) -> int:
        """How many jobs, or attempts of them, it has run."""
        return self.completed + self.failed
