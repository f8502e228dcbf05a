"""The measurements that every system takes part in. Each returns its figures by name."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.adapter import BATCH, Adapter
from benchmarks.harness.processes import cpu_seconds, pss_mib
from benchmarks.harness.server import Processors

Figures = dict[str, Any]


def enqueue_one(adapter: Adapter, *, jobs: int) -> Figures:
    """``rate``: jobs per second of single calls, each its own commit."""
    for number in range(5):
        adapter.enqueue(number)
    began = time.perf_counter()
    for number in range(jobs):
        adapter.enqueue(number)
    return {"rate": jobs / (time.perf_counter() - began)}


def enqueue_bulk(adapter: Adapter, *, jobs: int) -> Figures:
    """``rate``: jobs per second of the bulk call, a thousand at a time."""
    adapter.enqueue_batch(range(BATCH))
    began = time.perf_counter()
    for first in range(0, jobs, BATCH):
        adapter.enqueue_batch(range(first, first + BATCH))
    return {"rate": jobs / (time.perf_counter() - began)}


def preload(adapter: Adapter, jobs: int) -> None:
    """Fill the queue, as fast as the system can; not measured."""
    if adapter.has_bulk:
        for first in range(0, jobs, BATCH):
            adapter.enqueue_batch(range(first, min(first + BATCH, jobs)))
    else:
        for number in range(jobs):
            adapter.enqueue(number)
    adapter.analyze()


def drain(adapter: Adapter, *, jobs: int, workers: int = 2, limit: float = 30) -> Figures:
    """``rate``: jobs per second from the first handler's start to the last job recorded as done.

    A system that does not get through in ``limit`` seconds is judged by what it did (``complete``
    is false). ``ran_twice`` counts handlers, ``lost`` jobs that are neither waiting nor ran.
    ``cpu_per_million``: seconds of processor for a million jobs, from the first handler's start.
    """
    records, processors = adapter.records(), Processors(adapter)
    if not adapter.keeps_rows:
        preload(adapter, jobs)
    before = adapter.remaining()
    began = adapter.start_workers(workers)
    try:
        until = time.monotonic() + limit
        spent, begun = 0.0, 0
        while records.count() < jobs and time.monotonic() < until:
            if not begun and (begun := records.count()):
                spent = processors.spent()
            if adapter.workers.ended():
                raise RuntimeError(f"a worker ended by itself: {adapter.workers.ended()}")
            time.sleep(0.01)
        complete = records.count() >= jobs
        while complete and adapter.remaining() > max(0, before - jobs):
            if time.monotonic() > until + 30:
                complete = False
            time.sleep(0.005)
        ended = time.monotonic()
        spent = processors.spent() - spent
        seen = [start for start in records.read() if start.when <= ended]
    finally:
        adapter.workers.stop()
    if not seen:
        raise TimeoutError(f"no job ran within {limit:g} s")
    first = min(start.when for start in seen)
    everything = records.read()
    ran = {start.number for start in everything}
    return {
        "rate": len(seen) / (ended - first),
        "jobs": len(seen),
        "complete": complete,
        "ran_twice": len(everything) - len(ran),
        "lost": jobs - len(ran) if complete and not adapter.keeps_rows else 0,
        "start_s": first - began,
        "cpu_per_million": processors.per_million(spent, len(seen) - begun) if begun else None,
    }


def pickup(adapter: Adapter, *, samples: int, workers: int = 2, gap: float = 0.1) -> Figures:
    """Milliseconds from the enqueue's return to the handler's start, on an idle worker.

    ``waits`` has every sample, ``p50``, ``p99`` and ``most`` their quantiles.
    """
    records = adapter.records()
    adapter.start_workers(workers)
    returned: dict[int, float] = {}
    try:
        for number in range(-5, 0):
            adapter.enqueue(number)
        records.wait(5, 60)
        time.sleep(1)
        next_at = time.monotonic()
        for number in range(samples):
            time.sleep(max(0.0, next_at - time.monotonic()))
            # Uneven, so that no poll interval of a worker can fall into step.
            next_at += gap * (0.75 + 0.5 * ((number * 7919) % 101) / 100)
            adapter.enqueue(number)
            returned[number] = time.monotonic()
        records.wait(samples + 5, 30)
        started = {start.number: start.when for start in records.read()}
    finally:
        adapter.workers.stop()
    waits = [1000 * (started[number] - when) for number, when in returned.items()]
    return {**quantiles(waits), "waits": [round(wait, 3) for wait in waits]}


_REST = 10.0
"""Seconds without work after which a worker counts as idle."""


def footprint(adapter: Adapter, *, seconds: float, workers: int = 2) -> Figures:
    """A worker that rests: ``pss_mib`` of all its processes, ``cpu_percent`` of one core.

    ``start_s`` is from the start of the command to the first handler.
    """
    records = adapter.records()
    adapter.enqueue(0)
    began = adapter.start_workers(workers)
    try:
        records.wait(1, 60)
        start_s = records.read()[0].when - began
        for number in range(1, 11):
            adapter.enqueue(number)
        records.wait(11, 60)
        time.sleep(_REST)
        pids = adapter.workers.pids()
        before, since = cpu_seconds(pids), time.monotonic()
        time.sleep(seconds)
        used = (cpu_seconds(pids) - before) / (time.monotonic() - since)
        memory = pss_mib(pids)
    finally:
        adapter.workers.stop()
    return {
        "pss_mib": memory,
        "cpu_percent": 100 * used,
        "processes": len(pids),
        "start_s": start_s,
    }


def quantiles(values: Sequence[float]) -> Figures:
    """``p50``, ``p99``, ``most`` and ``samples`` of values, which are not looked at otherwise."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p99": cuts[98], "most": max(values), "samples": len(values)}


COMMON = {work.__name__: work for work in (enqueue_one, enqueue_bulk, drain, pickup, footprint)}
