"""Jobs with options that cost something, beside plain ones."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness.workloads import drain
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs import enqueue_many

OPTIONS: dict[str, dict[str, Any]] = {
    "unique": {"unique": True},
    "limited": {"rate_limit": {"key": "bench", "concurrency": 100_000}},
}


def option_enqueue(adapter: Adapter, *, option: str, jobs: int, rounds: int) -> dict[str, Any]:
    """``rate`` with the option and ``plain_rate`` without, jobs per second, each enqueued by itself, in
    turns.
    """
    from benchmarks.systems.on_ojs.jobs import noop

    took, number = {True: 0.0, False: 0.0}, 0
    calls = {True: noop.using(**OPTIONS[option]).enqueue, False: noop.enqueue}
    for turn in range(rounds + 1):
        for ours in (turn % 2 == 0, turn % 2 == 1):
            began = time.perf_counter()
            for _ in range(jobs):
                number += 1
                calls[ours](number, "two")
            took[ours] += (time.perf_counter() - began) if turn else 0.0
    return {"rate": rounds * jobs / took[True], "plain_rate": rounds * jobs / took[False]}


def limited_drain(adapter: Adapter, *, at_once: int, jobs: int) -> dict[str, Any]:
    """``rate``: jobs per second of a key of which so many may run at once."""
    from benchmarks.systems.on_ojs.jobs import noop

    limited = noop.using(rate_limit={"key": "bench", "concurrency": at_once})
    limited.enqueue_many([(number, "two") for number in range(jobs)])
    adapter.analyze()
    adapter.keeps_rows = True
    return drain(adapter, jobs=jobs)


def slots_drain(adapter: Adapter, *, jobs: int) -> dict[str, Any]:
    """``rate``: coroutines per second in the shared slots of one process."""
    enqueue_many("bench.coroutine", [(number, "two") for number in range(jobs)])
    adapter.analyze()
    adapter.keeps_rows = True
    return drain(adapter, jobs=jobs)
