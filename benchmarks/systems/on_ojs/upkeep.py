"""What enforcing costs: a pass of the reaper, a beat of a busy worker, a tick with nothing to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.systems.on_ojs.adapter import Adapter
from benchmarks.systems.on_ojs.filling import copy, uuid7
from benchmarks.systems.on_ojs.replay import statements_of
from django_ojs import hooks
from django_ojs.domain.leases import Lease
from django_ojs.models import Job
from django_ojs.services import claim, leases, promote, reaper
from django_ojs.services.reap import ReapResult

_WHERE = claim.sources(["default"])
_QUEUE = "bench-active"
_RARE = 30.0
_CADENCE = timedelta(seconds=10)
"""What is made between two passes takes less, so that it is no pause of the scans."""
_LEFT = ("retryable", "available", "discarded")
"""States of what a pass has ended."""


def reap_pass(adapter: Adapter, *, active: int, due: int, passes: int) -> dict[str, Any]:
    """``ms`` and ``statements`` of a pass of ``reap_timeouts``: all that enforces, commits included.

    Half of the jobs that are due have run into their execution timeout, the others have not beaten.
    """
    _forget(adapter, *_LEFT, "active")
    running = claim.claim(_WHERE, limit=1, worker_id="bench-worker", beats=True)[0]
    template = f"id = '{running.id}'"
    fresh = {
        "id": uuid7("statement_timestamp()", "n + 500000000"),
        "lease_id": "gen_random_uuid()",
        "queue": f"'{_QUEUE}'",
        "worker_id": "'bench-worker-' || (n % 10)",
        "heartbeat_at": "statement_timestamp()",
        "heartbeat_armed": "true",
        "deadline_at": "statement_timestamp() + INTERVAL '20 minutes'",
    }
    # One moment for all: of silences that begin later, less may lie in time that a scan has seen.
    silent = f"timestamptz '{datetime.now(UTC) - timedelta(minutes=5)}'"
    minutes = "CASE n % 2 WHEN 1 THEN 20 ELSE -1 END"
    overdue = {
        **fresh,
        "heartbeat_at": f"CASE n % 2 WHEN 1 THEN {silent} ELSE statement_timestamp() END",
        "deadline_at": f"statement_timestamp() + INTERVAL '1 minute' * {minutes}",
    }
    _judge(adapter, template, overdue)
    copy(adapter, Job, template, active - due, fresh)
    adapter.sql("ANALYZE django_ojs_job")
    took, counts = [], []
    for number in range(passes):
        again = {**overdue, "id": uuid7("statement_timestamp()", f"n + {(number + 1) * 100_000}")}
        copy(adapter, Job, template, due, again)
        reaped: list[ReapResult] = []
        began = time.perf_counter()
        statements = statements_of(lambda found=reaped: found.append(_pass()))  # type: ignore[misc]
        took.append(1000 * (time.perf_counter() - began))
        counts.append(len(statements))
        if len(reaped[0].jobs) != due:
            raise RuntimeError(f"{len(reaped[0].jobs)} jobs were reaped, {due} were due")
        _forget(adapter, *_LEFT)  # else the next pass may promote them too
    _forget(adapter, *_LEFT, "active")
    _give_back(adapter, "bench-worker")
    return {
        "ms": statistics.median(took),
        "most_ms": max(took),
        "statements": statistics.median(counts),
    }


def _judge(adapter: Adapter, template: str, overdue: dict[str, str]) -> None:
    """Pass until what is overdue is ended, as if nobody had scanned before: after a pause of the scans
    the living get time first, up to a minute. The only one that runs beats meanwhile.
    """
    adapter.sql("DELETE FROM django_ojs_maintenancerun WHERE name = 'reap'")
    beat = f"UPDATE django_ojs_job SET heartbeat_at = statement_timestamp() WHERE {template}"
    copy(adapter, Job, template, 2, {**overdue, "id": uuid7("statement_timestamp()", "n + 90000")})
    left, until = 2, time.monotonic() + 90
    while left > 0:
        if time.monotonic() > until:
            raise TimeoutError("what is overdue is not ended")
        left -= len(_pass().jobs)
        adapter.sql(beat)
        time.sleep(0.2)
    _forget(adapter, *_LEFT)


def _pass() -> ReapResult:
    """What ``reap_timeouts`` does in each pass; not what it does every half a minute."""
    reaped = reaper.scan(cadence=_CADENCE, ran_by="benchmark")
    for task in hooks.maintenance_tasks():
        if task.enforces and task.every < _RARE:
            task.run("default")
    return reaped


def beats(adapter: Adapter, *, active: int, beats: int) -> dict[str, Any]:
    """``ms`` and ``statements`` of a beat for all jobs of a worker; ``hot_percent`` of its updates."""
    _give_back(adapter, "bench-worker")
    claimed = claim.claim(_WHERE, limit=active, worker_id="bench-worker", beats=True)
    if len(claimed) != active:
        raise RuntimeError(f"{len(claimed)} of {active} jobs were claimed")
    held = [Lease(job.id, job.lease_id) for job in claimed if job.lease_id]
    before = _updates(adapter)
    took, counts = [], []
    for _ in range(beats):
        began = time.perf_counter()
        statements = statements_of(lambda: leases.beat(held))
        took.append(1000 * (time.perf_counter() - began))
        counts.append(len(statements))
    updated, hot = (new - old for new, old in zip(_updates(adapter), before, strict=True))
    if updated != beats * active:
        raise RuntimeError(f"{updated} rows were updated by {beats} beats of {active} jobs")
    _give_back(adapter, "bench-worker")
    return {
        "ms": statistics.median(took),
        "most_ms": max(took),
        "statements": max(counts),
        "hot_percent": 100 * hot / updated,
    }


def idle_tick(adapter: Adapter) -> dict[str, Any]:
    """Statements of ``claim``, ``promote`` and ``reap`` when there is nothing to do."""
    loop = reaper.ReaperLoop(interval=0.2, ran_by="benchmark", using="default")
    maintenance: dict[str, Callable[[], object]] = {
        "claim": lambda: claim.claim(_WHERE, limit=2, worker_id="bench-worker", beats=True),
        "promote": promote.promote,
        "reap": loop.tick,
    }
    for work in maintenance.values():
        work()
    return {name: len(statements_of(work)) for name, work in maintenance.items()}


def _updates(adapter: Adapter) -> tuple[int, int]:
    """Updates of the job table so far, and those of them that touched no index."""
    from django.db import connection

    connection.close()  # what a session did is counted when it ends, at the latest
    seen = (-1, -1)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        time.sleep(0.5)
        row = adapter.sql(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'django_ojs_job'"
        )[0]
        if row == seen:
            break
        seen = (int(row[0]), int(row[1]))
    return seen


def _forget(adapter: Adapter, *states: str) -> None:
    """Delete the jobs of these measurements that are in such a state, and their attempts."""
    mine = f"queue = '{_QUEUE}' AND state = ANY(%s)"
    adapter.sql(
        f"DELETE FROM django_ojs_attempt WHERE job_id IN (SELECT id FROM django_ojs_job WHERE {mine})",
        (list(states),),
    )
    adapter.sql(f"DELETE FROM django_ojs_job WHERE {mine}", (list(states),))


def _give_back(adapter: Adapter, worker: str) -> None:
    """Put what was claimed back into the backlog, as if nothing had happened."""
    adapter.sql(
        "UPDATE django_ojs_job SET state = 'available', lease_id = NULL, worker_id = NULL,"
        " started_at = NULL, heartbeat_at = NULL, deadline_at = NULL, attempt = 0"
        " WHERE state = 'active' AND worker_id = %s",
        (worker,),
    )
