"""The state of a shutdown: written by the runner, read by its collaborators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkerPhase(StrEnum):
    """The phase of a worker, as stored on its row."""

    RUNNING = "running"
    QUIET = "quiet"
    TERMINATE = "terminate"


@dataclass(slots=True)
class Shutdown:
    """The phase, and when (boottime) running jobs are killed; ``None`` unless stopping."""

    phase: WorkerPhase = WorkerPhase.RUNNING
    kill_at: float | None = None

    @property
    def begun(self) -> bool:
        """Whether the worker is stopping."""
        return self.phase is WorkerPhase.TERMINATE
