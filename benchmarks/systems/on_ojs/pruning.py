"""Millions of jobs are deleted while others run."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from benchmarks.harness import config
from benchmarks.harness.load import Load, Pickups, arriving
from benchmarks.harness.server import Server
from benchmarks.systems.on_ojs.adapter import Adapter
from benchmarks.systems.on_ojs.filling import fill

_TABLE = "django_ojs_job"
_KEEP = 3600
"""The retention, in seconds, with which a worker is to delete the history."""
_NEARLY = 0.99
"""The newest of the history, of six days, are younger than that."""


def prune_load(
    adapter: Adapter, *, history: int, rate: float, batch: int, seconds: float, limit: float
) -> dict[str, Any]:
    """``undisturbed_p99`` of the pickup, in milliseconds, of ``rate`` jobs a second over a history that
    is kept, for so many seconds; then ``p99`` while a worker deletes it, for at most ``limit``;
    ``ratio``.

    ``deleted`` jobs, each with its attempt, ``per_minute`` from the first to the last; the worker's
    settings are the default ones but for the retention. ``progress`` has how many at which second.
    """
    fill(adapter, history, 0)
    server = Server(adapter)
    try:
        undisturbed, _ = _run(adapter, Load(rate, seconds, batch=batch), server, to_delete=0)
        # For the workers, which read it when they start.
        own = {**config.OJS, "RETENTION": {"completed": _KEEP}}
        os.environ["BENCH_OJS"] = json.dumps(own)
        to_delete = int(_NEARLY * history)
        disturbed, seen = _run(adapter, Load(rate, limit, batch=batch), server, to_delete=to_delete)
    finally:
        # Else who measures here next has the space that they took.
        adapter.reset()
    counts = [count for _, count in seen]
    first = len(counts) - 1 - counts[::-1].index(counts[0])
    last = counts.index(counts[-1])
    (begin, before), (end, after) = seen[first], seen[last]
    found = {
        "deleted": after - before,
        "lost": undisturbed.lost + disturbed.lost,
        "ran_twice": undisturbed.ran_twice + disturbed.ran_twice,
        "progress": [[round(at - begin, 1), count - before] for at, count in seen],
    }
    meanwhile, plain = disturbed.within(begin, end), undisturbed.figures()
    if not counts[-1] > counts[0] or len(meanwhile.waits) < 2:
        return {**found, "missing": "nothing was deleted while jobs arrived"}
    waits = meanwhile.figures()
    return {
        **found,
        **{name: waits[name] for name in ("p50", "p99", "most")},
        **{f"undisturbed_{name}": plain[name] for name in ("p50", "p99", "most")},
        "ratio": waits["p99"] / plain["p99"],
        "per_minute": 60 * (after - before) / (end - begin),
    }


def _run(
    adapter: Adapter, load: Load, server: Server, to_delete: int
) -> tuple[Pickups, list[tuple[float, int]]]:
    """The pickups of a load, and how many rows had been deleted at which time; with ``to_delete`` it
    ends when so many are.
    """
    records = adapter.records()
    seen = [(time.monotonic(), server.deleted(_TABLE))]
    adapter.start_workers(2)
    try:
        with arriving(adapter, load, records) as arrivals:
            while not arrivals.wait(1.0):
                seen.append((time.monotonic(), server.deleted(_TABLE)))
                if to_delete and seen[-1][1] - seen[0][1] >= to_delete:
                    break
            arrivals.stop()
            sent = arrivals.sent()
        records.wait(sent.records, 60)
    finally:
        adapter.workers.stop()
    return sent.pickups(records.starts()), seen
