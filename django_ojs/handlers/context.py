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


class Line(Protocol):
    """How a context reaches the runner."""

    def tell(self, frame: dict[str, Any]) -> None:
        """Say something without waiting."""

    def ask(self, frame: dict[str, Any]) -> Any:
        """Say something and wait until it is done; raises :class:`LeaseGone`."""


class JobContext:
    """The running attempt, for a handler that has a parameter of this type.

    ``id``, ``type``, ``queue``, ``attempt`` (1 for the first), ``max_attempts``, ``meta`` and
    ``last_checkpoint`` (what an earlier attempt saved, or ``None``) are plain values.
    """

    def __init__(
        self,
        line: Line,
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
        self._line = line
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
        """Whether the handler has been told to stop."""
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
        """Raise :class:`SoftStop` if the handler has been told to stop: for loops and threads."""
        if self._reason is not None:
            raise SoftStop(self._reason)

    def heartbeat(self) -> None:
        """A sign of life; needed only with ``heartbeat="manual"``."""
        self._line.tell({"op": "heartbeat"})

    def progress(self, fraction: float, message: str = "", data: Any = None) -> None:
        """How far the job is, from 0 to 1; also a sign of life. Stored with the next beat.

        ``data`` is any JSON value up to 64 KiB. Raises :class:`InvalidRequest` if it is not.
        """
        text = None
        if data is not None:
            text = jsonvalue.encode(data, "data", max_bytes=MAX_PROGRESS_BYTES)
        clipped = min(1.0, max(0.0, float(fraction)))
        self._line.tell(
            {
                "op": "progress",
                "fraction": clipped,
                "message": jsonvalue.sanitise_text(message, 1024),
                "data": text,
            }
        )

    def checkpoint(self, state: Any) -> None:
        """Save where the next attempt resumes (``last_checkpoint``); durable when it returns.

        Any JSON value up to 1 MiB. Independent of the handler's own transaction, and allowed while
        cleaning up after :class:`SoftStop`: what is saved after the total timeout is kept for a manual
        retry. Raises :class:`InvalidRequest`, :class:`LeaseGone`.
        """
        text = jsonvalue.encode(state, "checkpoint", max_bytes=MAX_CHECKPOINT_BYTES)
        self._line.ask({"op": "call", "verb": "checkpoint", "state": text})
        self.last_checkpoint = state

    def extend_timeout(self, by: int | str | timedelta) -> datetime:
        """Add time to this attempt: seconds, ``timedelta``, ``"10s"`` or ISO 8601.

        Returns the new moment of the soft signal when both the row and the runner have it: as much
        was granted as the total timeout leaves. Raises :class:`Conflict` when that is nothing,
        :class:`LeaseGone`.
        """
        by_ms = parse_seconds_ms(by, "by")
        soft = self._line.ask({"op": "call", "verb": "extend", "by_ms": by_ms})
        self._deadline = datetime.fromisoformat(soft)
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
