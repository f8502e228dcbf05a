"""What a handler may ask of the worker that runs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Protocol

from django_ojs.domain import jsonvalue
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.handlers.exceptions import SoftStop

MAX_CHECKPOINT_BYTES = 1 << 20
MAX_PROGRESS_BYTES = 64 << 10


class Supervisor(Protocol):
    """What a context asks of the worker's supervisor; the last two raise :class:`LeaseGone`."""

    def heartbeat(self) -> None:
        """A sign of life."""

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """How far the job is; ``data`` is JSON text."""

    def checkpoint(self, state: str) -> None:
        """Save JSON text; returns when it is durable."""

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout; when the soft signal comes now."""


class JobContext:
    """The running attempt, for a handler that has a parameter of this type.

    ``id``, ``type``, ``queue``, ``attempt`` (1 for the first), ``max_attempts``, ``meta`` and
    ``last_checkpoint`` (what an earlier attempt saved, or ``None``) are plain values.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        id: str,
        type: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        meta: dict[str, Any],
        last_checkpoint: Any,
        deadline: datetime,
    ) -> None:
        self._supervisor = supervisor
        self.id = id
        self.type = type
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.meta = meta
        self.last_checkpoint = last_checkpoint
        self._deadline = deadline
        self._reason: str | None = None
        self._shields = 0
        self._raise_later = False

    @property
    def cancelled(self) -> bool:
        """Whether the handler has been asked to stop."""
        return self._reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why, as in :class:`SoftStop`: ``timeout``, ``total_timeout``, ``cancelled``, ``stalled``,
        ``shutdown`` or ``lost``.
        """
        return self._reason

    @property
    def deadline(self) -> datetime:
        """When the soft signal comes, as last known (aware, UTC)."""
        return self._deadline

    def check(self) -> None:
        """Raise :class:`SoftStop` if the handler has been asked to stop: for loops and threads."""
        if self._reason is not None:
            raise SoftStop(self._reason)

    def heartbeat(self) -> None:
        """A sign of life; needed only with ``heartbeat="manual"``."""
        self._supervisor.heartbeat()

    def progress(self, fraction: float, message: str = "", data: Any = None) -> None:
        """How far the job is, from 0 to 1; also a sign of life. Stored with the next beat.

        ``data`` is any JSON value up to 64 KiB. Raises :class:`InvalidRequest` if it is not.
        """
        text = None
        if data is not None:
            text = jsonvalue.encode(data, "data", max_bytes=MAX_PROGRESS_BYTES)
        clipped = min(1.0, max(0.0, float(fraction)))
        self._supervisor.progress(clipped, jsonvalue.sanitise_text(message, 1024), text)

    def checkpoint(self, state: Any) -> None:
        """Save where the next attempt resumes (``last_checkpoint``); durable when it returns.

        Any JSON value up to 1 MiB. Independent of the handler's own transaction, and allowed while
        cleaning up after :class:`SoftStop`: what is saved after the total timeout is kept for a manual
        retry. Raises :class:`InvalidRequest`, :class:`LeaseGone`.
        """
        text = jsonvalue.encode(state, "checkpoint", max_bytes=MAX_CHECKPOINT_BYTES)
        self._supervisor.checkpoint(text)
        self.last_checkpoint = state

    def extend_timeout(self, by: int | str | timedelta) -> datetime:
        """Add time to this attempt: seconds, ``timedelta``, ``"10s"`` or ISO 8601.

        Returns the new moment of the soft signal when both the row and the runner have it: as much
        was granted as the total timeout leaves. Raises :class:`Conflict` when that is nothing,
        :class:`LeaseGone`.
        """
        by_ms = parse_seconds_ms(by, "by")
        self._deadline = self._supervisor.extend(by_ms)
        return self._deadline

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Hold back :class:`SoftStop` until the end of the block; the hard kill comes all the same."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if self._raise_later and not self._shields:
                # Also when the block raised: the order to stop must not be lost with it.
                self._raise_later = False
                assert self._reason is not None
                raise SoftStop(self._reason)

    def _stop(self, reason: str) -> bool:
        """Note the order to stop; whether it may be raised right now."""
        self._reason = reason
        if self._shields:
            self._raise_later = True
            return False
        return True
