"""How long jobs take and how large they are, so that the worker claims what it will start soon."""

from __future__ import annotations

from dataclasses import dataclass

from django_ojs.worker.prefork.leased import LONG
from django_ojs.worker.threads.fetcher import AHEAD_BYTES

SHORT = 0.005
QUEUED_BYTES = 256 << 10
"""What waits in an executor, behind the first, may hold no more than so much."""
_LONG_AHEAD = 0.2
"""How many long ones may be expected among the jobs claimed ahead: behind them the others go back."""
_MOST = 2000
_WELL_KNOWN = 100


@dataclass(slots=True)
class _Type:
    mean: float
    slow_share: float
    seen: int = 0


class PrefetchPolicy:
    """Moving figures of durations, per type and over all, of the time that executors need, of sizes.

    ``horizon`` is how far ahead the worker claims, in seconds; 0 for not at all.
    """

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._types: dict[str, _Type] = {}
        self._every = _Type(0.0, 1.0)
        self._long_share = 0.0
        self._needed = self._count = 0.0
        self._bytes = 1.0

    def claimed(self, text_bytes: int) -> None:
        """A job was claimed: how much text it holds."""
        self._bytes = max(float(text_bytes), 0.98 * self._bytes)

    def add(self, job_type: str, seconds: float, needed: float) -> None:
        """One finished job: how long its handler ran, and how long it kept its executor from the next.

        The latter is more where the job is large or the machine busy, and while jobs that are claimed
        wait for the runner.
        """
        known = self._types.get(job_type)
        if known is None:
            known = self._types[job_type] = _Type(seconds, 0.0)
        # Of all jobs it is remembered for long: one in a hundred is enough to have all executors stuck
        # again and again.
        for one, memory in ((known, 0.02), (self._every, 0.002)):
            one.seen += 1
            one.mean += max(0.05, 1 / one.seen) * (seconds - one.mean)
            weight = max(memory, 1 / (one.seen + 1))
            one.slow_share += weight * ((seconds > SHORT) - one.slow_share)
        self._long_share += weight * ((seconds > LONG) - self._long_share)
        self._needed = 0.98 * self._needed + needed
        self._count = 0.98 * self._count + 1

    def prefetch(self, slots: int, going: int) -> int:
        """Jobs that ``slots`` executors will start within the horizon, beyond those that they run.

        By the time that jobs need and by their size, no more than can be expected not to be stuck
        behind long ones, and no more than have been seen. ``going`` is how many of the executors are
        not in a long job now.
        """
        if self._every.seen < 4:
            return 0
        each = self._needed / self._count
        fitting = slots * self._horizon / max(each, 0.0001)
        free_of_long = _LONG_AHEAD * going / slots / max(self._long_share, 0.0001)
        fitting = min(fitting, free_of_long, AHEAD_BYTES / self._bytes)
        return int(min(fitting, self._every.seen, _MOST))

    def queue_depth(self, job_type: str) -> int:
        """Frames of this type that may wait in an executor behind the running one.

        One, and more only if fewer than one in a hundred of the type take over 5 ms, and of all jobs
        while the type is not well known; none where nothing is claimed ahead.
        """
        if not self._horizon:
            return 0
        known = self._types.get(job_type, self._every)
        judges = (known, self._every) if known.seen < _WELL_KNOWN else (known,)
        if any(judge.slow_share > 0.01 for judge in judges):
            return 1
        return max(1, min(32, int(0.02 / max(known.mean, 0.0002))))
