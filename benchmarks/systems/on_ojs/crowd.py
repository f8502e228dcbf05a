"""Many queues, many types and many workers on one server: what it costs to rest, and to work."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from benchmarks.harness.processes import pss_mib, spent_seconds
from benchmarks.harness.records import Records
from benchmarks.harness.server import Server
from benchmarks.harness.workloads import quantiles
from benchmarks.systems.on_ojs.adapter import Adapter
from benchmarks.systems.on_ojs.claims import analyze, store
from django_ojs.models import Queue, Worker
from django_ojs.services import claim

_PATIENCE = 180
_REST = 10.0
_LOOK = 0.02
_TURNS = 2


def crowd(
    adapter: Adapter, *, queues: int, types: int, workers: int, jobs: int, seconds: float
) -> dict[str, Any]:
    """All of them on one server: so many ``runworker`` of concurrency 1, each for all queues and types.

    Idle, over so many seconds: ``statements`` a second of the server, ``server_percent`` and
    ``workers_percent`` of a processor, ``pss_mib`` of all workers. Busy, in turns over one queue and
    one type (``one_...``) and over all: ``rate`` of a drain in jobs per second, ``server_us`` of the
    server's processor for a job, ``claim_p50`` and ``claim_p99``, in milliseconds, of a claim that one
    more session makes meanwhile and rolls back.
    """
    os.environ["BENCH_TYPES"] = str(types)
    server, began = Server(adapter), datetime.now(UTC)
    names = [f"bench-{number}" for number in range(queues)]
    kinds = [f"bench.t{number}" for number in range(types)]
    Queue.objects.bulk_create(
        (Queue(name=name, created_at=began) for name in names), ignore_conflicts=True
    )
    adapter.processes = workers
    records = adapter.records()
    started = adapter.start_workers(1)
    try:
        _await(adapter, workers, began)
        ready = time.monotonic() - started
        time.sleep(_REST)
        found = {"start_s": ready, **_idle(adapter, server, seconds)}
        busy = {"one_": _Busy(names[:1], kinds[:1]), "": _Busy(names, kinds)}
        # As a worker looks that was started without names of queues.
        where = claim.sources(None, kinds, resumes=True)
        for _ in range(_TURNS):
            for work in busy.values():
                work.drain(adapter, server, records, where, jobs)
    finally:
        adapter.workers.stop(60)
    return {**found, **{f"{kind}{k}": v for kind, work in busy.items() for k, v in work.told().items()}}


def _await(adapter: Adapter, count: int, since: datetime) -> None:
    """Until so many workers have said that they run."""
    until = time.monotonic() + _PATIENCE
    running = Worker.objects.filter(phase="running", started_at__gte=since)
    while (there := running.count()) < count:
        if ended := adapter.workers.ended():
            raise RuntimeError(f"workers ended by themselves: {ended}")
        if time.monotonic() > until:
            raise TimeoutError(f"{there} of {count} workers run after {_PATIENCE} s")
        time.sleep(0.25)


def _idle(adapter: Adapter, server: Server, seconds: float) -> dict[str, Any]:
    pids = adapter.workers.pids()
    statements, spent = server.statements(), server.cpu_seconds()
    own, since = spent_seconds(pids), time.monotonic()
    time.sleep(seconds)
    statements, spent = server.statements() - statements, server.cpu_seconds() - spent
    took = time.monotonic() - since
    return {
        "statements": statements / took,
        "server_percent": 100 * spent / took if server.is_here else None,
        "workers_percent": 100 * (spent_seconds(pids) - own) / took,
        "pss_mib": pss_mib(pids),
        "processes": len(pids),
    }


class _Busy:
    """Drains over some queues and types."""

    def __init__(self, queues: list[str], types: list[str]) -> None:
        self._queues, self._types = queues, types
        self._claims: list[float] = []
        self._jobs, self._took, self._spent = 0, 0.0, 0.0

    def drain(self, adapter: Adapter, server: Server, records: Records, where: Any, jobs: int) -> None:
        """All jobs appear at once; until all are recorded as done."""
        queues, types = self._queues, self._types
        before, now = records.count(), datetime.now(UTC)
        with transaction.atomic():
            store(jobs, lambda n: (queues[n % len(queues)], types[n % len(types)]), now)
            analyze()
        spent, until = server.cpu_seconds(), time.monotonic() + _PATIENCE
        while left := adapter.remaining():
            if time.monotonic() > until:
                raise TimeoutError(f"{left} of {jobs} jobs are left")
            self._claims.append(_claim(where))
            time.sleep(_LOOK)
        ended = time.monotonic()
        self._spent += server.cpu_seconds() - spent
        starts = records.read()[before:]
        if not len({start.number for start in starts}) == len(starts) == jobs:
            raise RuntimeError(f"{len(starts)} handlers began for {jobs} jobs")
        self._took += ended - min(start.when for start in starts)
        self._jobs += jobs

    def told(self) -> dict[str, Any]:
        """The figures of all drains."""
        claims = quantiles(self._claims)
        return {
            "rate": self._jobs / self._took,
            "claim_p50": claims["p50"],
            "claim_p99": claims["p99"],
            "claims": claims["samples"],
            "server_us": 1e6 * self._spent / self._jobs,
        }


def _claim(where: Any) -> float:
    began = time.perf_counter()
    with transaction.atomic():
        claim.claim(where, limit=2, worker_id="bench-worker", beats=True)
        transaction.set_rollback(True)
    return 1000 * (time.perf_counter() - began)
