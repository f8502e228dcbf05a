"""An executor process and its slots, as the supervisor sees them."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from django_ojs.worker.prefork.frames import FrameReader
from django_ojs.worker.prefork.journal import ENOUGH, LOOK_AT_LONG, LOOK_EVERY, Journal
from django_ojs.worker.prefork.leased import LONG, LeasedJob


class Phase(Enum):
    """The phase of an executor's life."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """Asked to end; it runs what was registered with ``before_exit``."""
    DYING = "dying"


class Replacement(NamedTuple):
    """Why an executor is to be replaced: ``code`` for metrics, ``text`` for the log."""

    code: str
    text: str


@dataclass(eq=False, slots=True)
class Slot:
    """A place in an executor: one job at a time runs in it."""

    child: Child
    running: LeasedJob | None = None
    queued: deque[LeasedJob] = field(default_factory=deque)
    done_at: float = 0.0
    """When its last job ended."""

    @property
    def assigned(self) -> list[LeasedJob]:
        """The jobs that it has, begun or not."""
        return [*([self.running] if self.running else []), *self.queued]

    @property
    def free(self) -> bool:
        """Whether a job could begin here at once."""
        return not self.running and not self.queued and self.child.takes_jobs

    def is_long(self, now: float) -> bool:
        """Whether its job has been running for long already."""
        return self.running is not None and now - (self.running.began_at or now) > LONG


@dataclass(eq=False, slots=True)
class Child:
    """One executor process: of one slot, or shared by ``size`` coroutines."""

    channel: socket.socket
    control: socket.socket
    liveness: int
    started_at: float
    phase: Phase = Phase.STARTING
    pid: int = 0
    monitor: int = 0
    size: int = 1
    slots: tuple[Slot, ...] = ()
    jobs_done: int = 0
    asked_to_end_at: float = 0.0
    recycle: Replacement | None = None
    outbox: list[str] = field(default_factory=list)
    """Frames as JSON text, not packed yet."""
    unsent: bytearray = field(default_factory=bytearray)
    limiting: float | None = None
    """The limit that its monitor has yet to set; until then nothing is sent to the executor."""
    wake_pending: bool = False
    """Whether the wake-up signal must be repeated once everything is written."""
    journal: Journal | None = None
    """Where it leaves frames while it has enough to do."""
    reader: FrameReader = field(default_factory=FrameReader)
    control_reader: FrameReader = field(default_factory=FrameReader)
    status: int | None = None
    closed: bool = False
    """Whether its descriptors are closed. One turn may find several of them ready: check this first."""

    def __post_init__(self) -> None:
        self.slots = tuple(Slot(self) for _ in range(self.size))

    @property
    def is_shared(self) -> bool:
        """Whether several coroutines run in it at a time."""
        return self.size > 1

    @property
    def takes_jobs(self) -> bool:
        """Whether it may be given another job.

        A shared one gets none while a handler in it is to stop, since that may cost the process.
        """
        if self.phase is not Phase.READY or self.recycle is not None:
            return False
        return not self.is_shared or self.stopping_since is None

    def look_within(self, now: float) -> float | None:
        """Within how many seconds to look for frames in its journal; ``None`` if it may leave none."""
        if self.journal is None or self.phase is not Phase.READY:
            return None
        (slot,) = self.slots
        if len(slot.queued) < ENOUGH:
            return None
        return LOOK_AT_LONG if slot.is_long(now) else LOOK_EVERY

    @property
    def stopping_since(self) -> float | None:
        """Since when a handler in it has been asked to stop, and runs on (boottime)."""
        moments = [slot.running.deadlines.stopped_at for slot in self.slots if slot.running]
        return min((at for at in moments if at is not None), default=None)

    @property
    def assigned(self) -> list[LeasedJob]:
        """The jobs that this executor has, begun or not."""
        return [job for slot in self.slots for job in slot.assigned]

    @property
    def is_busy(self) -> bool:
        """Whether a job runs in it."""
        return any(slot.running is not None for slot in self.slots)

    def slot_of(self, lease: object) -> Slot | None:
        """The slot that has the job with this lease; of a single slot that slot."""
        if not self.is_shared:
            return self.slots[0]
        for slot in self.slots:
            if slot.running is not None and slot.running.lease == lease:
                return slot
            if slot.queued and any(job.lease == lease for job in slot.queued):
                return slot
        return None
