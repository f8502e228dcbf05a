"""How long jobs take, so that the worker claims what it will start soon and no more."""

from __future__ import annotations

from dataclasses import dataclass

SHORT = 0.005
_WINDOW = 0.02
_FEW = 200
"""What may be claimed ahead before the worker knows how fast it is."""
_MOST = 2000


@dataclass(slots=True)
class _Type:
    mean: float
    slow_share: float = 1.0
    seen: int = 0


class Estimate:
    """Moving figures of durations, per type and over all, and of the rate at which jobs end.

    ``horizon`` is how far ahead the worker claims, in seconds; 0 for not at all.
    """

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._types: dict[str, _Type] = {}
        self._mean = 0.0
        self._seen = 0
        self._rate = 0.0
        self._window_from = 0.0
        self._in_window = 0

    def add(self, job_type: str, seconds: float, now: float) -> None:
        """One finished job, ``now`` (:func:`clock.boottime`)."""
        known = self._types.setdefault(job_type, _Type(seconds))
        known.mean += 0.05 * (seconds - known.mean)
        known.seen += 1
        known.slow_share += max(0.02, 1 / (known.seen + 1)) * ((seconds > SHORT) - known.slow_share)
        self._seen += 1
        self._mean += max(0.05, 1 / self._seen) * (seconds - self._mean)
        self._in_window += 1
        passed = now - self._window_from
        if passed >= _WINDOW:
            self._rate = self._in_window / passed
            self._window_from, self._in_window = now, 0

    def prefetch(self, slots: int) -> int:
        """Jobs that ``slots`` executors will start within the horizon, beyond those that they run.

        By the time that jobs take, and by how many did end of late: a busy machine starts fewer.
        """
        if self._seen < 4:
            return 0
        fitting = slots * self._horizon / max(self._mean, 0.0001)
        return int(min(fitting, max(_FEW, self._rate * self._horizon), _MOST)) if fitting else 0

    def depth(self, job_type: str) -> int:
        """Frames of this type that may wait in an executor behind the running one.

        One, and more only if fewer than one in a hundred of the type take over 5 ms; none where
        nothing is claimed ahead.
        """
        if not self._horizon:
            return 0
        known = self._types.get(job_type)
        if known is None or known.slow_share > 0.01:
            return 1
        return max(1, min(32, int(0.02 / max(known.mean, 0.0002))))
