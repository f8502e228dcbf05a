"""A lease: the right of one worker to one attempt of a job."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Lease(NamedTuple):
    """A lease as its holder names it."""

    job_id: UUID
    lease_id: UUID


class RenewedLease(NamedTuple):
    """A lease that was found: when it was last heard of, until when the server waits for the attempt,
    by how much that was extended, and its visibility, if any: the one in force, and the one that the
    job itself asks for. ``written`` unless another transaction held the row.
    """

    job_id: UUID
    lease_id: UUID
    heartbeat_at: datetime
    deadline_at: datetime
    extended_ms: int
    lease_visibility_ms: int | None
    visibility_timeout_ms: int | None
    written: bool = True
