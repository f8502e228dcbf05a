"""A context that is looked at before each use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django_ojs.handlers.context import JobContext


class WatchedContext(JobContext):
    """Calls :meth:`_before_use` before each call of the handler; its coroutines make the same calls."""

    def _before_use(self) -> None:
        """Raise what the handler is to get instead of an answer."""
        raise NotImplementedError

    @property
    def cancelled(self) -> bool:
        """Whether the handler was asked to stop."""
        self._before_use()
        return super().cancelled

    def check(self) -> None:
        """Raise :class:`SoftStop` if the handler was asked to stop."""
        self._before_use()
        super().check()

    def heartbeat(self) -> None:
        """Send a sign of life."""
        self._before_use()
        super().heartbeat()

    def progress(self, fraction: float, message: str = "", data: Any = None) -> None:
        """Report progress."""
        self._before_use()
        super().progress(fraction, message, data)

    def checkpoint(self, state: Any) -> None:
        """Save where the next attempt resumes."""
        self._before_use()
        super().checkpoint(state)

    def extend_timeout(self, by: int | str | timedelta) -> datetime:
        """Add time to this attempt."""
        self._before_use()
        return super().extend_timeout(by)
