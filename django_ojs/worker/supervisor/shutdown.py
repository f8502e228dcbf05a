"""Whether the worker goes on: the runner writes it, the others read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkerPhase(StrEnum):
    """What a worker is about, as its row says."""

    RUNNING = "running"
    QUIET = "quiet"
    TERMINATE = "terminate"


@dataclass(slots=True)
class Shutdown:
    """The phase, and when (boottime) everything that still runs is killed; ``None`` before that is
    known.
    """

    phase: WorkerPhase = WorkerPhase.RUNNING
    kill_at: float | None = None

    @property
    def begun(self) -> bool:
        """Whether the worker is stopping."""
        return self.phase is WorkerPhase.TERMINATE
