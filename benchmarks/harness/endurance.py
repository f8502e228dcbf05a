"""A load that goes on for long: does a system hold it, and what does it grow to; every system on
PostgreSQL takes part.
"""

from __future__ import annotations

import time
from array import array
from typing import Any

from benchmarks.harness.adapter import Adapter
from benchmarks.harness.load import Load, Pickups, arriving
from benchmarks.harness.server import Processors, Server, Sizes
from benchmarks.harness.workloads import quantiles

_SAMPLES = 90
_BEHIND = 2.0
"""Seconds of its load that may wait before arrivals are put off."""


def day(adapter: Adapter, *, seconds: float, rate: float, batch: int) -> dict[str, Any]:
    """``rate`` jobs a second, ``batch`` with a call, for so long; where a system is slower, as many as
    it takes.

    ``rate`` is what passed, ``first`` and ``last`` what began a second in the first and the last third
    of the time, ``kept`` their ratio; so are ``p99``, ``p99_first``, ``p99_last`` and ``p99_ratio`` of
    the pickup, in milliseconds. ``mib`` is the most that tables and indexes took, ``grown`` the most of
    the last third beside that of the second. ``cpu_per_million``: seconds of processor for a million
    jobs: of those who enqueue, of the workers with all processes below them, of the server. ``course``
    and ``sizes`` tell how that went.
    """
    records, sizes, processors = adapter.records(), Sizes(Server(adapter)), Processors(adapter)
    adapter.start_workers(2)
    try:
        load = Load(rate, seconds, batch=batch, most_waiting=int(_BEHIND * rate))
        with arriving(adapter, load, records) as arrivals:
            records.wait(1, 60)
            before, began = processors.spent(), time.monotonic()
            while not arrivals.wait(max(1.0, seconds / _SAMPLES)):
                sizes.take(time.monotonic() - began)
            sent = arrivals.sent()
        records.wait(sent.records, 60)
        _await_end(adapter)
        used = sent.cpu_seconds + processors.spent() - before
        sizes.take(time.monotonic() - began)
    finally:
        adapter.workers.stop()
    found = sent.pickups(records.starts())
    third = seconds / 3
    first, _, last = (
        found.within(sent.began + place * third, sent.began + (place + 1) * third) for place in range(3)
    )
    if min(len(first.waits), len(last.waits)) < 2:
        return {"missing": "no job began in the first or the last third of the time"}
    waits = {"first": first.figures(), "last": last.figures()}
    begin = sent.began - began
    second, after = (sizes.bytes(begin + n * third, begin + (n + 1) * third) for n in (1, 2))
    return {
        **found.figures(),
        "rate": len(found.waits) / (max(found.moments) - sent.began),
        "first": len(first.waits) / third,
        "last": len(last.waits) / third,
        "kept": len(last.waits) / len(first.waits),
        **{f"{name}_{part}": told[name] for part, told in waits.items() for name in ("p50", "p99")},
        "p99_ratio": waits["last"]["p99"] / waits["first"]["p99"],
        "seconds": seconds,
        "mib": sizes.bytes(0, seconds + 120) / (1 << 20),
        "grown": after / second,
        "cpu_per_million": processors.per_million(used, sent.jobs),
        "course": course(found, sent.began, seconds),
        "sizes": sizes.columns(),
    }


def course(found: Pickups, began: float, seconds: float) -> dict[str, list[float]]:
    """In equal steps of the time (``at``, the middle of each): jobs that began in a second, and the
    p99 of their waits.
    """
    step = seconds / _SAMPLES
    waits: list[array[float]] = [array("d") for _ in range(_SAMPLES)]
    for moment, wait in zip(found.moments, found.waits, strict=True):
        place = int((moment - began) // step)
        if 0 <= place < _SAMPLES:
            waits[place].append(wait)
    return {
        "at": [round((place + 0.5) * step, 1) for place in range(_SAMPLES)],
        "rate": [round(len(some) / step, 1) for some in waits],
        "p99": [round(quantiles(some)["p99"], 2) if len(some) > 1 else 0.0 for some in waits],
    }


def _await_end(adapter: Adapter) -> None:
    """Until everything that began is recorded as done."""
    until = time.monotonic() + 60
    while left := adapter.remaining():
        if time.monotonic() > until:
            raise TimeoutError(f"{left} jobs did not end")
        time.sleep(0.05)
