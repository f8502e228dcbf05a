"""A drain of one size: so many workers, so much waiting, so much finished, arguments so large."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.workloads import drain
from benchmarks.systems.on_ojs.adapter import Adapter
from benchmarks.systems.on_ojs.filling import fill


def scaled_drain(
    adapter: Adapter,
    *,
    processes: int,
    concurrency: int,
    backlog: int,
    history: int,
    payload: int,
    jobs: int,
) -> dict[str, Any]:
    """``rate``: jobs per second of ``processes`` workers over the first ``jobs`` of a backlog."""
    fill(adapter, history, backlog, payload)
    adapter.keeps_rows = True
    adapter.processes = processes
    return drain(adapter, jobs=min(jobs, backlog), workers=concurrency, limit=60)
