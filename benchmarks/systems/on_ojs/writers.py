"""Many sessions that enqueue at a time, one job and one commit each."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from benchmarks.harness import config
from benchmarks.harness.workloads import quantiles
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs import conf

_FORK = multiprocessing.get_context("fork")
_PATIENCE = 120
_WARM = 3.0


def writers(adapter: Adapter, *, sessions: int, jobs: int) -> dict[str, Any]:
    """``rate``: jobs per second of all sessions together, each in a process of its own."""
    if why := _unknown():
        return {"missing": why}
    each = jobs // sessions

    def write(session: int, begin: Callable[[], None]) -> tuple[float, float]:
        adapter.enqueue(-1)
        begin()
        began = time.monotonic()
        for number in range(each):
            adapter.enqueue(session * each + number)
        return began, time.monotonic()

    spans = _together(sessions, write)
    took = max(ended for _, ended in spans) - min(began for began, _ in spans)
    return {"rate": sessions * each / took}


def writers_pickup(adapter: Adapter, *, sessions: int, seconds: float, rate: float) -> dict[str, Any]:
    """Milliseconds from an enqueue's return to its handler's start while ``sessions`` enqueue ``rate``
    jobs a second together, at random moments: ``p50``, ``p99``, ``most``.
    """
    if why := _unknown():
        return {"missing": why}
    records = adapter.records()
    each = int(seconds * rate / sessions)
    adapter.start_workers(4)

    def write(session: int, begin: Callable[[], None]) -> dict[int, float]:
        dice = random.Random(1000 * config.ROUND + session)
        adapter.enqueue(-1 - session)
        begin()
        # Until the worker has run these, and rests.
        time.sleep(_WARM)
        at, returned = time.monotonic(), {}
        for number in range(each):
            at += dice.expovariate(rate / sessions)
            time.sleep(max(0.0, at - time.monotonic()))
            adapter.enqueue(session * each + number)
            returned[session * each + number] = time.monotonic()
        return returned

    try:
        returned = {number: at for one in _together(sessions, write) for number, at in one.items()}
        records.wait(sessions * (each + 1), 60)
        started = {start.number: start.when for start in records.read()}
    finally:
        adapter.workers.stop()
    waits = [1000 * (started[number] - at) for number, at in returned.items()]
    return {**quantiles(waits), "jobs": len(waits), "lost": sessions * (each + 1) - len(started)}


def _unknown() -> str:
    try:
        conf.current()
    except ImproperlyConfigured as error:
        return f"this version does not know the setting: {error}"
    return ""


def _together(sessions: int, write: Callable[[int, Callable[[], None]], Any]) -> list[Any]:
    """Run ``write`` in as many processes; what it gets is called when it is ready, and returns when
    all are.
    """
    barrier: Barrier = _FORK.Barrier(sessions)
    results = _FORK.SimpleQueue()

    def run(session: int) -> None:
        results.put(write(session, lambda: barrier.wait(_PATIENCE) and None))

    connections.close_all()
    processes = [_FORK.Process(target=run, args=(session,)) for session in range(sessions)]
    for process in processes:
        process.start()
    try:
        return [_next(results, processes) for _ in processes]
    finally:
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.terminate()
                process.join()


def _next(results: Any, processes: list[Any]) -> Any:
    until = time.monotonic() + _PATIENCE
    while results.empty():
        failed = [process.exitcode for process in processes if process.exitcode]
        if failed or time.monotonic() > until:
            raise RuntimeError(f"a session that enqueues ended with {failed or 'nothing in time'}")
        time.sleep(0.01)
    return results.get()
