"""What a worker is asked to do, and what it says when it is done."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from django_ojs import __version__, clock
from django_ojs.handlers import registry
from django_ojs.services import claim
from django_ojs.services.workers import WorkerInfo
from django_ojs.store.sources import Sources

EXIT_OK, EXIT_ERROR, EXIT_RECYCLE, EXIT_INTERRUPTED = 0, 1, 75, 130


@dataclass(frozen=True, slots=True)
class Config:
    """What ``runworker`` was asked to do. ``queues`` empty means all but ``exclude``."""

    worker_id: str
    queues: Sequence[str] = ()
    exclude: Sequence[str] = ()
    concurrency: int = 1
    drain: bool = False
    once: bool = False
    max_jobs: int | None = None
    max_runtime: float | None = None
    max_rss: float | None = None
    shutdown_timeout: float = 25.0
    maintenance: bool = True
    using: str = "default"

    def identity(self) -> WorkerInfo:
        """What the worker's row says of it."""
        return WorkerInfo(
            id=self.worker_id,
            incarnation=clock.new_lease(),
            hostname=socket.gethostname(),
            pid=os.getpid(),
            concurrency=self.concurrency,
            queues=tuple(self.queues),
            types=tuple(registry.types()),
            version=f"django-ojs {__version__}",
        )

    def sources(self) -> Sources:
        """Where to claim from. Without queue names: all queues, those that are created later too."""
        named = [name for name in self.queues if name not in self.exclude] if self.queues else None
        return claim.sources(named, registry.types(), excluded=self.exclude)


@dataclass(slots=True)
class Summary:
    """What a worker did in its life."""

    jobs: int = 0
    seconds: float = 0.0
    statements: int = 0
    exit_code: int = EXIT_OK


def default_worker_id() -> str:
    """Host, process and a little chance: unique enough, and readable."""
    return f"{socket.gethostname()}-{os.getpid()}-{clock.new_lease().hex[:6]}"
