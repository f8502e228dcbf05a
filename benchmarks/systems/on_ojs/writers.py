"""Many sessions that enqueue at a time, one job and one commit each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from benchmarks.harness.load import Load, arriving, together
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs import conf


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

    spans = together(sessions, write)
    took = max(ended for _, ended in spans) - min(began for began, _ in spans)
    return {"rate": sessions * each / took}


def writers_pickup(adapter: Adapter, *, sessions: int, seconds: float, rate: float) -> dict[str, Any]:
    """Milliseconds from an enqueue's return to its handler's start while ``sessions`` enqueue ``rate``
    jobs a second together, at random moments: ``p50``, ``p99``, ``most``.
    """
    if why := _unknown():
        return {"missing": why}
    records = adapter.records()
    adapter.start_workers(4)
    try:
        with arriving(adapter, Load(rate, seconds, sessions), records) as load:
            sent = load.sent()
        records.wait(sent.records, 60)
    finally:
        adapter.workers.stop()
    return sent.pickups(records.starts()).figures()


def _unknown() -> str:
    try:
        conf.current()
    except ImproperlyConfigured as error:
        return f"this version does not know the setting: {error}"
    return ""
