"""What a worker is asked to do, and what it says when it is done."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from django_ojs import clock

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
