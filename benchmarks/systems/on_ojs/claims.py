"""What claiming costs where there are many kinds of work, and large ones; on every database."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from benchmarks.harness.workloads import drain, quantiles
from benchmarks.systems.on_ojs.adapter import Adapter
from benchmarks.systems.on_ojs.replay import statements_of
from django_ojs import clock
from django_ojs.models import Job, Queue
from django_ojs.services import claim

_CLAIM: dict[str, Any] = {"worker_id": "bench-worker", "beats": True}
_MIB = 1 << 20


def claim_pairs(adapter: Adapter, *, queues: int, types: int, foreign: int = 0) -> dict[str, Any]:
    """``ms`` and ``statements`` of a claim of 2, each pair having work; ``idle_ms`` where none has.

    ``foreign`` jobs of three types that are not claimed are older than all the others.
    """
    names = [f"bench-{number}" for number in range(queues)]
    kinds = [f"bench.t{number}" for number in range(types)]
    Queue.objects.all().delete()
    Queue.objects.bulk_create(Queue(name=name, created_at=datetime.now(UTC)) for name in names)
    where = claim.sources(names, kinds, ranked=False)
    old = datetime.now(UTC) - timedelta(days=1)
    store(foreign, lambda n: (names[0], f"foreign.t{n % 3}"), old)
    analyze()

    def once() -> list[Any]:
        with transaction.atomic():
            got = claim.claim(where, limit=2, **_CLAIM)
            transaction.set_rollback(True)
        return got

    idle = _median(once)
    store(
        max(2000, queues * types), lambda n: (names[n % queues], kinds[n // queues % types]),
        old + timedelta(hours=1),
    )  # fmt: skip
    analyze()
    if len(once()) != 2:
        raise RuntimeError("2 jobs were to be claimed")
    return {"ms": _median(once), "idle_ms": idle, "statements": len(statements_of(once))}


def claim_locks(adapter: Adapter, *, queues: int, limit: int = 200) -> dict[str, Any]:
    """``locked`` rows and ``log_kib`` written by one claim out of many queues (PostgreSQL's log)."""
    names = [f"bench-{number}" for number in range(queues)]
    store(limit * queues, lambda n: (names[n % queues], "bench.noop"), datetime.now(UTC))
    analyze()
    where = claim.sources(names, ["bench.noop", "bench.mixed"], ranked=False)
    free = "SELECT id FROM django_ojs_job WHERE state = 'available' FOR UPDATE SKIP LOCKED"
    other = connection.copy()
    with transaction.atomic():
        began = time.perf_counter()
        got = claim.claim(where, limit=limit, **_CLAIM)
        took = 1000 * (time.perf_counter() - began)
        with other.cursor() as cursor:
            cursor.execute(free)
            locked = limit * queues - len(cursor.fetchall())
        transaction.set_rollback(True)
    other.close()
    if len(got) != limit:
        raise RuntimeError(f"{len(got)} of {limit} jobs were claimed")
    found = {"locked": locked, "ms": took}
    if connection.vendor == "postgresql":
        before = adapter.sql("SELECT pg_current_wal_insert_lsn()")[0][0]
        claim.claim(where, limit=limit, **_CLAIM)
        written = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)"
        found["log_kib"] = int(adapter.sql(written, (before,))[0][0]) / 1024
    return found


def spread_drain(adapter: Adapter, *, queues: int, types: int, jobs: int) -> dict[str, Any]:
    """``rate`` of a drain over so many queues and types, of no-op jobs; ``released`` per 1,000 jobs."""
    os.environ["BENCH_TYPES"] = str(types)
    kinds = [f"bench.t{number}" for number in range(types)] if types > 1 else ["bench.noop"]
    Queue.objects.bulk_create(
        (Queue(name=f"bench-{n}", created_at=datetime.now(UTC)) for n in range(queues)),
        ignore_conflicts=True,
    )
    store(jobs, lambda n: (f"bench-{n % queues}", kinds[n // queues % types]), datetime.now(UTC))
    analyze()
    return _drain(adapter, jobs, limit=60)


def large_drain(adapter: Adapter, *, kib: int, jobs: int) -> dict[str, Any]:
    """``rate``, claims ``released`` per 1,000 jobs and ``peak_mib`` of the worker, with large jobs."""
    text = "x" * (kib * 1024)
    args = f'[{{n}}, "{text}"]'
    store(jobs, lambda n: ("bench-large", "bench.payload"), datetime.now(UTC), args)
    return _drain(adapter, jobs, limit=120)


def mixed_drain(adapter: Adapter, *, long_ms: int, one_in: int, jobs: int) -> dict[str, Any]:
    """``rate`` and claims ``released`` per 1,000 jobs: one in so many is long, the others 0.2 ms."""
    dice = random.Random(1)
    lengths = [long_ms / 1000 if dice.random() < 1 / one_in else 0.0002 for _ in range(jobs)]
    store(
        jobs, lambda n: ("bench-mixed", "bench.mixed"), datetime.now(UTC), "[{n}, 0]",
        lambda n: f"[{n}, {lengths[n]}]",
    )  # fmt: skip
    return _drain(adapter, jobs, limit=120)


def new_queue(adapter: Adapter, *, queues: int) -> dict[str, Any]:
    """Milliseconds from the enqueue to the start of a job in a queue that no worker has heard of, and
    of one in a queue that it knows: ``p50``, ``p99``, ``known_p50``, ``known_p99``.
    """
    from benchmarks.systems.on_ojs.jobs import noop

    records = adapter.records()
    noop.using(queue="bench-known").enqueue(0, "two")
    adapter.start_workers(2)
    returned: dict[int, float] = {}
    dice = random.Random(2)
    try:
        records.wait(1, 30)
        for number in range(1, 2 * queues + 1):
            time.sleep(0.3 + 0.4 * dice.random())
            queue = "bench-known" if number % 2 else f"bench-new-{number}"
            noop.using(queue=queue).enqueue(number, "two")
            returned[number] = time.monotonic()
            records.wait(number + 1, 30)
        started = {start.number: start.when for start in records.read()}
    finally:
        adapter.workers.stop()
    waits = {n: 1000 * (started[n] - at) for n, at in returned.items()}
    fresh = quantiles([wait for n, wait in waits.items() if n % 2 == 0])
    known = quantiles([wait for n, wait in waits.items() if n % 2])
    return {
        "p50": fresh["p50"],
        "p99": fresh["p99"],
        "known_p50": known["p50"],
        "known_p99": known["p99"],
        "ratio_p99": fresh["p99"] / known["p99"],
    }


def _drain(adapter: Adapter, jobs: int, *, limit: float) -> dict[str, Any]:
    adapter.keeps_rows = True
    figures = drain(adapter, jobs=jobs, workers=2, limit=limit)
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM django_ojs_attempt WHERE outcome = 'released'")
        released = int(cursor.fetchone()[0])
    return {**figures, "released": 1000 * released / jobs, "peak_mib": adapter.workers.peak_mib}


def _median(call: Callable[[], object], times: int = 11) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


def store(
    count: int,
    place: Callable[[int], tuple[str, str]],
    at: datetime,
    args: str = '[{n}, "two"]',
    args_of: Callable[[int], str] | None = None,
) -> None:
    """Available jobs, as an enqueue leaves them."""
    from django_ojs.domain.job import JobRow
    from django_ojs.store import inserting

    base = dict.fromkeys(JobRow._fields) | {
        "state": "available", "priority": 0, "attempt": 0, "max_attempts": 3, "lease_seq": 0,
        "created_at": at, "limits_from": at, "timeout_ms": 1_800_000, "grace_period_ms": 30_000,
        "heartbeat_timeout_ms": 60_000, "extended_ms": 0, "timeout_explicit": False,
        "heartbeat_explicit": False, "heartbeat_armed": False, "dead_letter": False,
        "retry": "{}", "meta": "{}", "tags": "[]", "errors": "[]", "extra": "{}",
        "progress_message": "", "checkpoint_seq": 0,
    }  # fmt: skip
    size = max(1, min(1000, 4 * _MIB // len(args)))
    for start in range(0, count, size):
        rows = []
        for number in range(start, min(count, start + size)):
            queue, kind = place(number)
            text = args_of(number) if args_of else args.replace("{n}", str(number))
            rows.append(
                JobRow(
                    **base
                    | {
                        "id": clock.new_id(),
                        "queue": queue,
                        "type": kind,
                        "args": text,
                        "enqueued_at": at + timedelta(microseconds=number),
                    }
                )
            )
        inserting.jobs(rows, using="default")


def analyze() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("ANALYZE TABLE django_ojs_job")
            cursor.fetchall()
        else:
            cursor.execute(f"ANALYZE {Job._meta.db_table}")
