"""A batch of many jobs with one callback, beside as many jobs without a workflow."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness.workloads import drain
from benchmarks.systems.on_ojs.adapter import Adapter


def batch_enqueue(adapter: Adapter, *, jobs: int, rounds: int) -> dict[str, Any]:
    """``rate`` of a batch and ``plain_rate`` of ``enqueue_many``, jobs per second, in turns."""
    from benchmarks.systems.on_ojs.jobs import noop
    from django_ojs import batch

    calls = [(number, "two") for number in range(jobs)]
    took, plain = 0.0, 0.0
    for turn in range(rounds + 1):
        began = time.perf_counter()
        noop.enqueue_many(calls)
        between = time.perf_counter()
        batch(noop.steps(calls), on_success=noop.step(jobs, "two")).enqueue()
        if turn:
            plain += between - began
            took += time.perf_counter() - between
    return {"rate": rounds * jobs / took, "plain_rate": rounds * jobs / plain}


def batch_drain(adapter: Adapter, *, jobs: int) -> dict[str, Any]:
    """``rate``: jobs per second of the members of one batch and its callback."""
    from benchmarks.systems.on_ojs.jobs import noop
    from django_ojs import batch, get_workflow

    made = batch(
        noop.steps([(number, "two") for number in range(jobs)]), on_success=noop.step(jobs, "two")
    ).enqueue()
    adapter.analyze()
    adapter.keeps_rows = True
    figures = drain(adapter, jobs=jobs + 1, limit=120)
    ended = get_workflow(made)
    if (ended.state, ended.completed) != ("completed", jobs):
        raise RuntimeError(f"the batch is {ended.state} with {ended.completed} of {jobs} jobs")
    return figures
