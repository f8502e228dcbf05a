"""Long and short jobs in one queue: who waits for whom."""

from __future__ import annotations

import random
import time
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from benchmarks.harness import config
from benchmarks.harness.workloads import quantiles
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs import conf

SLOTS = 4
LONG, SHORT = 2.0, 0.001
ONE_IN = 100
LOAD = 0.65
"""Arriving work as a part of what the slots can do."""
_OVERHEAD = 0.0005
_WARM = 8


def mixed(adapter: Adapter, *, seconds: float) -> dict[str, Any]:
    """``short_p50`` and ``short_p99``: milliseconds from the enqueue to the start of a short job.

    ``unstarted_most`` is the longest time between a claim and the handler's first instruction (or the
    claim's return to the queue), on one clock; ``released`` counts such returns, per 1,000 jobs.
    Arrivals are open and random, the same for every setting of the same round.
    """
    from benchmarks.systems.on_ojs.jobs import mixed as handler

    try:
        conf.current()
    except ImproperlyConfigured as error:
        return {"missing": f"this version does not know the setting: {error}"}
    plan = arrivals(seconds, seed=config.ROUND)
    records = adapter.records()
    adapter.start_workers(SLOTS)
    try:
        for number in range(-_WARM, 0):
            adapter.enqueue(number)
        records.wait(_WARM, 60)
        time.sleep(1.0)
        began, returned, late = time.monotonic(), [], 0.0
        for number, (at, length) in enumerate(plan):
            pause = began + at - time.monotonic()
            late = max(late, -pause)
            if pause > 0:
                time.sleep(pause)
            handler.enqueue(number, length)
            returned.append(time.monotonic())
        records.wait(len(plan) + _WARM, 60)
        until = time.monotonic() + 30
        while adapter.remaining():
            if time.monotonic() > until:
                raise TimeoutError(f"{adapter.remaining()} jobs did not end")
            time.sleep(0.05)
        seen = records.read()
    finally:
        adapter.workers.stop()
    started = {start.number: start.when for start in seen}
    waits = [
        1000 * (started[number] - returned[number])
        for number, (_, length) in enumerate(plan)
        if length == SHORT
    ]
    unstarted, released = _claims(started)
    short = quantiles(waits)
    return {
        "short_p50": short["p50"],
        "short_p99": short["p99"],
        "unstarted_most": 1000 * max(unstarted),
        "released": 1000 * released / len(plan),
        "jobs": len(plan),
        "enqueue_late_ms": 1000 * late,
        "ran_twice": len(seen) - len(started),
        "lost": len(plan) + _WARM - len(started),
    }


def arrivals(seconds: float, seed: int) -> list[tuple[float, float]]:
    """When each job arrives, and how long it takes; one of every hundred is long."""
    dice = random.Random(seed)
    mean = (LONG + (ONE_IN - 1) * SHORT) / ONE_IN + _OVERHEAD
    rate = LOAD * SLOTS / mean
    found: list[tuple[float, float]] = []
    at = 0.0
    while at < seconds:
        long = dice.randrange(ONE_IN)
        for place in range(ONE_IN):
            at += dice.expovariate(rate)
            found.append((at, LONG if place == long else SHORT))
    return found


def _claims(started: dict[int, float]) -> tuple[list[float], int]:
    """Seconds from each claim to its beginning or its end without one; how many had none."""
    offset = _database_offset()
    waits, released = [], 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (j.args->>0)::int, a.outcome, extract(epoch FROM a.started_at),"
            " extract(epoch FROM a.ended_at) FROM django_ojs_attempt a"
            " JOIN django_ojs_job j ON j.id = a.job_id WHERE j.type = 'bench.mixed'"
        )
        for number, outcome, claimed, ended in cursor.fetchall():
            if outcome == "released":
                released += 1
                waits.append(float(ended - claimed))
            else:
                waits.append(started[number] - (float(claimed) - offset))
    return waits, released


def _database_offset() -> float:
    """The database's clock minus this machine's monotonic one, in seconds; the quickest of a few."""
    best = (float("inf"), 0.0)
    with connection.cursor() as cursor:
        for _ in range(20):
            before = time.monotonic()
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            told = float(cursor.fetchone()[0])
            after = time.monotonic()
            best = min(best, (after - before, told - (before + after) / 2))
    return best[1]
