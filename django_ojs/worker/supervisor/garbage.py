"""Garbage collections of the supervisor: rare, since its jobs are freed without them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 10_000
"""Objects by which this process may grow before the young ones are searched for garbage.

Python's own 700 are the objects of a hundred jobs. A worker holds thousands of jobs, none of them in a
cycle, and each search goes through all that have come since the last one.
"""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Search for garbage after :data:`COLLECT_AFTER` objects, in this process only: executors have been
    forked before, or start afresh, and collect as Python does. A project that searches more rarely, or
    not at all, keeps its own threshold.
    """
    before = gc.get_threshold()
    if 0 < before[0] < COLLECT_AFTER:
        gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
