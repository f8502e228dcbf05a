"""How many jobs to claim ahead: estimated from how long recent jobs took and how large they were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django_ojs.worker.prefork.leased import LONG
from django_ojs.worker.threads.fetcher import AHEAD_BYTES

SHORT = 0.005
QUEUED_BYTES = 256 << 10
"""Bytes of text that may be queued in an executor behind its first job."""
_LONG_AHEAD = 0.2
"""Long jobs to expect, at most, among those claimed ahead: jobs behind them are given back."""
_MOST = 2000
_WELL_KNOWN = 100
_QUEUED_SECONDS = 0.02
"""Work that may be queued in an executor behind its first job."""
_DEEPEST = 128
"""Jobs that may be."""
_FIRST = 30
_AHEAD_PER_SEEN = 4
_SEEN_PER_QUEUED = 4
"""How a worker begins: jobs claimed ahead for each that has been seen, after the first, among which
a long one would have been; jobs seen for each queued.

A drain of thousands of short jobs is over within a second: what is learned slowly is learned too late.
"""
_LEAST_SHARE = 1 / 16
_RECOVERS = 1.0002
"""By how much the share grows with each job: it doubles with 3,500."""


@dataclass(slots=True)
class _Type:
    mean: float
    slow_share: float
    seen: int = 0

    def add(self, seconds: float, slow: bool, memory: float) -> float:
        """Count a job; returns its weight in the share of slow ones."""
        seen = self.seen = self.seen + 1
        self.mean += (0.05 if seen > 20 else 1 / seen) * (seconds - self.mean)
        weight = 1 / (seen + 1)
        if weight < memory:
            weight = memory
        self.slow_share += weight * (slow - self.slow_share)
        return weight


class PrefetchPolicy:
    """Moving averages of durations (by type and overall), executor time and sizes.

    ``horizon`` is how many seconds ahead the worker claims; 0 turns that off.
    """

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._types: dict[str, _Type] = {}
        self._every = _Type(0.0, 0.0)
        self._long_share = 0.0
        self._needed = self._count = 0.0
        self._bytes = 1.0
        self._share = 1.0

    def claimed(self, sizes: Iterable[int]) -> None:
        """Record the sizes of claimed jobs, in bytes of text."""
        largest = self._bytes
        for size in sizes:
            largest *= 0.98
            if size > largest:
                largest = float(size)
        self._bytes = largest

    def not_begun(self) -> None:
        """Record that jobs claimed ahead did not begin in time: from now on half as many are.

        What executors need is no measure of a database, or a machine, that is slower than they are; a
        job that is given back costs it more than one that is done.
        """
        self._share = max(_LEAST_SHARE, self._share / 2)

    def add(self, job_type: str, seconds: float, needed: float) -> None:
        """Record how long the handler of a finished job ran, and how long its executor was taken.

        ``needed`` is the longer for large jobs, on a busy machine, and when the supervisor is late.
        """
        known = self._types.get(job_type)
        if known is None:
            known = self._types[job_type] = _Type(seconds, 0.0)
        slow = seconds > SHORT
        known.add(seconds, slow, 0.02)
        # Long memory for the overall share: one slow job in a hundred suffices to block executors.
        weight = self._every.add(seconds, slow, 0.002)
        self._long_share += weight * ((seconds > LONG) - self._long_share)
        self._needed = 0.95 * self._needed + needed
        self._count = 0.95 * self._count + 1
        self._share = min(1.0, self._share * _RECOVERS)

    def prefetch(self, slots: int, going: int) -> int:
        """Estimate how many jobs ``slots`` executors will start within the horizon.

        Limited by the size of jobs, by how many will not wait behind long ones, and by how many have
        been seen. ``going`` is the number of executors that are not in a long job now.
        """
        if self._every.seen < 4:
            return 0
        each = self._needed / self._count
        fitting = self._share * slots * self._horizon / max(each, 0.0001)
        free_of_long = _LONG_AHEAD * going / slots / max(self._long_share, 0.0001)
        fitting = min(fitting, free_of_long, AHEAD_BYTES / self._bytes)
        seen = self._every.seen
        return int(min(fitting, seen if seen < _FIRST else _AHEAD_PER_SEEN * seen, _MOST))

    def queue_depth(self, job_type: str) -> int:
        """How many jobs of this type may be queued in an executor behind the running one.

        0 without prefetching. More than one only if fewer than one in a hundred take over 5 ms: of the
        type, and of all jobs too while the type is little known.
        """
        if not self._horizon:
            return 0
        known = self._types.get(job_type, self._every)
        judges = (known, self._every) if known.seen < _WELL_KNOWN else (known,)
        if any(judge.slow_share > 0.01 for judge in judges):
            return 1
        fitting = int(_QUEUED_SECONDS / max(known.mean, 0.0001))
        return max(1, min(fitting, self._every.seen // _SEEN_PER_QUEUED, _DEEPEST))
