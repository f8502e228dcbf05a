"""What only a worker knows about itself: metrics of its process, for ``/metrics`` of its health port.

Each number has one writer, and is read without a lock: those of one answer may be a moment apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from django_ojs import clock
from django_ojs.domain.exposition import Durations, Family
from django_ojs.services.settle import Report
from django_ojs.worker.prefork.child import Child, Phase
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.supervisor.dispatcher import Dispatcher
from django_ojs.worker.supervisor.recycling import Recycler
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.heartbeat import HeartbeatThread
from django_ojs.worker.threads.receivers import Receivers

_REPORTS = {Report.ACK: "completed", Report.FAIL: "failed", Report.RELEASE: "released"}
_PHASES = {Phase.STARTING: "starting", Phase.LEAVING: "ending", Phase.DYING: "ending"}


class Parts(NamedTuple):
    """The parts of a worker that count."""

    pool: Pool
    dispatcher: Dispatcher
    claimer: DatabaseThread
    database: DatabaseThread
    heartbeat: HeartbeatThread
    receivers: Receivers
    recycler: Recycler


def families(parts: Parts) -> list[Family]:
    """All metrics of a worker, in a fixed order; families without samples too."""
    pool, dispatcher, claimer, database, heartbeat, receivers, recycler = parts
    enforcer = dispatcher.enforcer
    reports = {name: dispatcher.reported[report] for report, name in _REPORTS.items()}
    executors = Counter(dict.fromkeys(("starting", "idle", "busy", "ending"), 0))
    executors.update(_phase(child) for child in list(pool))
    return [
        _counter("jobs_claimed", "Jobs that this worker claimed.", dispatcher.claimed),
        _counts("jobs_reported", "Jobs that it reported or gave back.", "report", reports),
        _counts("soft_stops", "Handlers that were asked to stop.", "reason", enforcer.soft_stops),
        _counts("kills", "Handlers that were killed.", "reason", enforcer.kills),
        _seconds(
            "loop_blocked",
            "Time for which coroutines held up others.",
            dispatcher.blocked,
        ),
        _gauge("leases", "Jobs that it holds a lease of.", len(dispatcher.leases)),
        _gauge("reports_waiting", "Reports that are not written yet.", database.unwritten),
        Family(
            "ojs_worker_executors",
            "gauge",
            "Executors by what they do.",
            ("phase",),
            {(phase,): float(count) for phase, count in executors.items()},
        ),
        _counts("executors_recycled", "Executors that were replaced.", "reason", recycler.recycled),
        _durations("claim_seconds", "How long claims took.", claimer.claims_took),
        _durations(
            "settle_seconds", "How long it took to write a batch of reports.", database.settlements_took
        ),
        _counter("heartbeat_failures", "Heartbeats that could not be written.", heartbeat.failures),
        _gauge(
            "heartbeat_silence_seconds",
            "For how long heartbeats have failed, or the current one has not returned.",
            heartbeat.silent_for(clock.boottime()),
        ),
        _counter("outages", "Times that the database stopped answering.", database.outages),
        _gauge("events_waiting", "Events that wait for receivers of signals.", receivers.waiting),
        _counter(
            "events_dropped",
            "Events that were dropped, as receivers did not keep up.",
            receivers.dropped,
        ),
    ]


def _phase(child: Child) -> str:
    return _PHASES.get(child.phase) or ("busy" if child.is_busy else "idle")


def _counter(name: str, text: str, value: int) -> Family:
    return Family(f"ojs_worker_{name}_total", "counter", text, (), {(): value})


def _counts(name: str, text: str, label: str, values: Mapping[str, int]) -> Family:
    found: dict[tuple[str, ...], float] = {(key,): value for key, value in dict(values).items()}
    return Family(f"ojs_worker_{name}_total", "counter", text, (label,), {**found})


def _seconds(name: str, text: str, value: float) -> Family:
    return Family(f"ojs_worker_{name}_seconds_total", "counter", text, (), {(): value})


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(f"ojs_worker_{name}", "gauge", text, (), {(): value})


def _durations(name: str, text: str, took: Durations) -> Family:
    return Family(f"ojs_worker_{name}", "histogram", text, (), {(): took.histogram()})
