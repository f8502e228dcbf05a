"""How long jobs take, so that the worker claims what it will start soon and no more."""

from __future__ import annotations

from dataclasses import dataclass

SHORT = 0.005
_HORIZON = 0.1
_MOST = 500


@dataclass(slots=True)
class _Type:
    mean: float
    slow_share: float = 1.0


class Estimate:
    """Moving figures of durations, per type and over all."""

    def __init__(self) -> None:
        self._types: dict[str, _Type] = {}
        self._mean = 0.0
        self._seen = 0

    def add(self, job_type: str, seconds: float) -> None:
        """One finished job."""
        known = self._types.setdefault(job_type, _Type(seconds))
        known.mean += 0.05 * (seconds - known.mean)
        known.slow_share += 0.02 * ((seconds > SHORT) - known.slow_share)
        self._seen += 1
        self._mean += max(0.05, 1 / self._seen) * (seconds - self._mean)

    def prefetch(self, slots: int) -> int:
        """Jobs that ``slots`` executors will start within about 100 ms, beyond those that they run."""
        if self._seen < 4:
            return 0
        return min(_MOST, int(slots * _HORIZON / max(self._mean, 0.0001)))

    def depth(self, job_type: str) -> int:
        """Frames of this type that may wait in an executor behind the running one.

        One, and more only if fewer than one in a hundred of the type take over 5 ms.
        """
        known = self._types.get(job_type)
        if known is None or known.slow_share > 0.01:
            return 1
        return max(1, min(32, int(0.02 / max(known.mean, 0.0002))))
