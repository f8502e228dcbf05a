"""What becomes of work when a worker dies, a handler hangs, or somebody holds a snapshot; every system
takes part.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness import config
from benchmarks.harness.adapter import BATCH, Adapter
from benchmarks.harness.records import DIES, HANGS, HANGS_IN_C

Figures = dict[str, Any]
HANG_SECONDS = 2
"""The time limit of a job that hangs, where a system has one."""
_OTHER = 1


def killed_worker(adapter: Adapter, *, limit: float) -> Figures:
    """``seconds`` from the SIGKILL of a worker and all its processes, while it runs a job, until that
    job runs again; another worker is started at once.
    """
    records = adapter.records()
    adapter.start_workers(1)
    try:
        adapter.enqueue(DIES)
        records.wait(1, 60)
        # Whatever a worker says about itself when it begins a job, it has said by now.
        time.sleep(2)
        adapter.workers.kill()
        killed = time.monotonic()
        adapter.start_workers(1)
        if not _begun(records, 2, killed + limit):
            return {"missing": f"not within {limit:g} s"}
        return {"seconds": records.read()[1].when - killed}
    finally:
        adapter.workers.stop(1)


def hung_handler(adapter: Adapter, *, limit: float, in_c: bool = False) -> Figures:
    """``seconds`` from the time limit of a job that never ends until the next job begins, in a worker
    that runs one at a time. ``in_c``: it hangs within one call of the interpreter.
    """
    records = adapter.records()
    adapter.start_workers(1)
    try:
        adapter.enqueue_limited(HANGS_IN_C if in_c else HANGS, HANG_SECONDS)
        records.wait(1, 60)
        over = records.read()[0].when + HANG_SECONDS
        adapter.enqueue(_OTHER)
        if not _begun(records, 2, over + limit):
            return {"missing": f"not within {limit:g} s"}
        begun = next(start.when for start in records.read() if start.number == _OTHER)
        return {"seconds": max(0.0, begun - over)}
    finally:
        adapter.workers.stop(1)


def held_snapshot(adapter: Adapter, *, rounds: int, jobs: int, limit: float) -> Figures:
    """``first`` and ``last``: jobs per second of the first and the last fifth of the rounds, each of
    which enqueues and runs ``jobs``, while another session of PostgreSQL holds its snapshot; ``kept``
    is their ratio. ``passed`` jobs have run when ``limit`` seconds are over, or all.
    """
    import psycopg

    records, took = adapter.records(), list[float]()
    adapter.start_workers(2)
    with psycopg.connect(config.pg_dsn(adapter.dbname)) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")
        until = time.monotonic() + limit
        try:
            for number in range(rounds):
                began = time.monotonic()
                for first in range(0, jobs, BATCH):
                    adapter.enqueue_batch(range(first, first + BATCH))
                if not _begun(records, (number + 1) * jobs, until):
                    break
                took.append(time.monotonic() - began)
        finally:
            adapter.workers.stop()
    if len(took) < 2:
        return {"missing": f"fewer than {2 * jobs} jobs passed within {limit:g} s"}
    few = max(1, len(took) // 5)
    first, last = (few * jobs / sum(part) for part in (took[:few], took[-few:]))
    return {"first": first, "last": last, "kept": last / first, "passed": len(took) * jobs}


def _begun(records: Any, count: int, until: float) -> bool:
    try:
        records.wait(count, until - time.monotonic())
    except TimeoutError:
        return False
    return True
