"""The same function as a task of ``django.tasks``, beside a handler."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.workloads import drain
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs import enqueue_many
from django_ojs.tasks_backend import task


@task(type="bench.task")
def noop(number: int, label: str) -> None:
    records.note(number)


def task_enqueue(adapter: Adapter, *, jobs: int, rounds: int) -> dict[str, Any]:
    """``rate`` of a task and ``plain_rate`` of a handler, jobs per second, each enqueued by itself, in
    turns.
    """
    from benchmarks.systems.on_ojs.jobs import noop as plain

    took = {True: 0.0, False: 0.0}
    for turn in range(rounds + 1):
        for ours in (turn % 2 == 0, turn % 2 == 1):
            enqueue: Any = noop.enqueue if ours else plain.enqueue
            began = time.perf_counter()
            for number in range(jobs):
                enqueue(number, "two")
            took[ours] += (time.perf_counter() - began) if turn else 0.0
    return {"rate": rounds * jobs / took[True], "plain_rate": rounds * jobs / took[False]}


def task_drain(adapter: Adapter, *, jobs: int) -> dict[str, Any]:
    """``rate``: tasks per second."""
    enqueue_many("bench.task", [(number, "two") for number in range(jobs)])
    adapter.analyze()
    adapter.keeps_rows = True
    return drain(adapter, jobs=jobs)
