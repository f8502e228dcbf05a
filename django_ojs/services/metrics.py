"""Metrics for monitoring: totals of the roll-up, and gauges that are read when they are asked for.

The same whichever process answers. Totals arrive minute by minute, 90 to 150 seconds late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min

from django_ojs import clock
from django_ojs.domain.exposition import Family, Histogram
from django_ojs.domain.histogram import BUCKETS
from django_ojs.domain.states import State
from django_ojs.models import (
    Job,
    MaintenanceRun,
    Queue,
    RateLimit,
    Schedule,
    Total,
    Worker,
    Workflow,
)
from django_ojs.services import reading, reaper, totals, workers
from django_ojs.services.totals import Metric
from django_ojs.store import due_times, rate_limit_keys, selectors

MOST_QUEUES = 200
"""The queues with gauges of their own: the first by name."""
HTTP_FETCHED = timedelta(seconds=60)
"""A client over HTTP serves a queue for so long after its last request."""
RAN = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000)
RAN_LONG = (*RAN, 600_000, 1_800_000, 3_600_000)
WAITED = (
    10,
    50,
    100,
    500,
    1_000,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
)
"""Bounds in milliseconds, all among those of the stored histograms (OJS observability 4)."""
_LATE = "By whole minutes, 90 to 150 s late."
_JOB = ("queue", "type")
_COUNTS: Mapping[Metric, tuple[str, str]] = {
    Metric.ENQUEUED: ("ojs_job_enqueued_total", "Jobs that were enqueued."),
    Metric.COMPLETED: ("ojs_job_completed_total", "Jobs that completed."),
    Metric.DISCARDED: ("ojs_job_failed_total", "Jobs that were discarded."),
    Metric.RETRIED: ("ojs_job_retried_total", "Failed attempts after which the job is retried."),
    Metric.CANCELLED: ("ojs_job_cancelled_total", "Jobs that were cancelled."),
    Metric.EXPIRED: ("ojs_job_expired_total", "Jobs that expired before they started."),
}


def collect(*, using: str | None = None) -> list[Family]:
    """All metrics of a database, in a fixed order; families without samples too.

    Without ``using`` those of ``OJS["DATABASE"]``, read from its replica if there is one.
    """
    if using is None:
        return reading.on_replica(lambda: collect(using=reading.database()))
    now = clock.now(using)
    return [*_totals(totals.read(using=using)), *_gauges(now, using)]


def _totals(rows: Iterable[Total]) -> list[Family]:
    counts = {
        metric: Family(name, "counter", f"{text} {_LATE}", _JOB)
        for metric, (name, text) in _COUNTS.items()
    }
    timeouts = Family(
        "ojs_job_timeout_count_total",
        "counter",
        f"Timeouts that fired, by kind. {_LATE}",
        ("timeout_kind", "queue", "job_type"),
    )
    deduplicated = Family(
        "ojs_job_deduplicated_total",
        "counter",
        f"Unique jobs that met an equal one, where job.deduplicated is stored. {_LATE}",
        ("queue", "type", "on_conflict"),
    )
    duration = Family(
        "ojs_job_duration_seconds",
        "histogram",
        f"How long attempts ran, of completed and of failed ones. {_LATE}",
        ("queue", "type", "state"),
    )
    execution = Family(
        "ojs_job_execution_duration_seconds",
        "histogram",
        f"How long attempts ran, by their outcome. {_LATE}",
        ("queue", "job_type", "outcome"),
    )
    first = Family(
        "ojs_job_enqueue_wait_time_seconds",
        "histogram",
        f"How long jobs were available before their first start. {_LATE}",
        ("queue",),
    )
    waited = Family(
        "ojs_job_queue_time_seconds",
        "histogram",
        f"How long jobs were available before each start. {_LATE}",
        _JOB,
    )
    by_state: dict[tuple[str, str, str], totals.Amount] = {}
    for row in rows:
        metric = Metric(row.metric)
        if metric in counts:
            counts[metric].values[row.queue, row.type] = row.count
        elif metric is Metric.TIMEOUT:
            timeouts.values[row.label, row.queue, row.type] = row.count
        elif metric is Metric.DEDUPLICATED:
            deduplicated.values[row.queue, row.type, row.label] = row.count
        elif metric is Metric.EXECUTION:
            execution.values[row.queue, row.type, row.label] = _histogram(row, RAN_LONG)
            state = "completed" if row.label == "completed" else "failed"
            whole = by_state.setdefault((row.queue, row.type, state), totals.Amount())
            whole.add(row.count, row.sum_ms, row.buckets or ())
        elif metric is Metric.WAIT:
            waited.values[row.queue, row.type] = _histogram(row, WAITED)
        else:
            first.values[row.queue,] = _histogram(row, WAITED)
    for key, whole in by_state.items():
        duration.values[key] = _histogram(whole, RAN)
    return [*counts.values(), timeouts, deduplicated, duration, execution, first, waited]


def _histogram(row: Total | totals.Amount, bounds: Sequence[int]) -> Histogram:
    below, so_far, wanted = [], 0, set(bounds)
    for bound, count in zip(BUCKETS, row.buckets or (), strict=False):
        so_far += count
        if bound in wanted:
            below.append((bound / 1000, so_far))
    return Histogram(below, row.count, row.sum_ms / 1000)


def _gauges(now: datetime, using: str) -> list[Family]:
    rows = Queue.objects.using(using).order_by("name").values_list("name", "paused")
    paused = dict(rows[:MOST_QUEUES])
    names = list(paused)
    depth = Family(
        "ojs_queue_depth",
        "gauge",
        f"Jobs by state; available ones up to {selectors.DEPTH_CAP} of each queue, of the others those"
        f" among the first {selectors.AMONG_CAP} of their state.",
        ("queue", "state"),
    )
    waiting = Family(
        "ojs_queue_oldest_wait_seconds",
        "gauge",
        "How long the oldest of the counted available jobs has waited.",
        ("queue",),
    )
    for name, found in selectors.depths(names, using=using).items():
        for state, count in found.counts.items():
            depth.values[name, State(state).value] = count
        if found.oldest is not None:
            waiting.values[name,] = _age(found.oldest, now)
    stopped = Family("ojs_queue_paused", "gauge", "Whether the queue is paused.", ("queue",))
    stopped.values = {(name,): float(value) for name, value in paused.items()}
    return [
        depth,
        waiting,
        stopped,
        *_of_workers(names, now, using),
        _heartbeats(now, using),
        _overdue(now, using),
        *_maintenance(now, using),
        _workflows(using),
        *_rate_limits(using),
        _schedules(now, using),
        _lag(),
    ]


def _of_workers(names: Sequence[str], now: datetime, using: str) -> list[Family]:
    live = Worker.objects.using(using).filter(heartbeat_at__gt=now - workers.STALE)
    live = live.exclude(phase=Worker.Phase.STOPPED)
    serving = Family(
        "ojs_queue_workers",
        "gauge",
        "Live workers that claim from the queue, and HTTP clients that were heard of within 60 s.",
        ("queue",),
        dict.fromkeys([(name,) for name in names], 0.0),
    )
    active = Family("ojs_workers_active", "gauge", "Live workers.")
    busy = Family("ojs_workers_busy", "gauge", "Jobs that live workers run, by their heartbeats.")
    count, running = 0, 0
    for queues, jobs in live.values_list("queues", "running")[: 10 * MOST_QUEUES]:
        count, running = count + 1, running + jobs
        for name in queues or names:
            if (name,) in serving.values:
                serving.values[name,] = float(serving.values[name,]) + 1  # type: ignore[arg-type]
    active.values[()], busy.values[()] = count, running
    return [serving, active, busy]


def _heartbeats(now: datetime, using: str) -> Family:
    rows = selectors.in_state(Job.objects.using(using), State.ACTIVE)
    oldest = rows.values_list("queue").annotate(oldest=Min("heartbeat_at")).order_by()
    values: dict[tuple[str, ...], Any] = {
        (queue,): _age(moment, now) for queue, moment in oldest if moment is not None
    }
    text = "How long ago the running job that was silent for the longest time was heard of."
    return Family("ojs_job_heartbeat_age_seconds", "gauge", text, ("queue",), values)


def _overdue(now: datetime, using: str) -> Family:
    first = due_times.next_deadline(using=using)
    text = "By how much the oldest deadline is overdue: 0 while deadlines are kept."
    late = 0.0 if first is None else _age(first, now)
    return Family("ojs_overdue_seconds", "gauge", text, (), {(): late})


def _maintenance(now: datetime, using: str) -> list[Family]:
    runs = list(MaintenanceRun.objects.using(using).order_by("name"))
    ages = Family(
        "ojs_maintenance_age_seconds",
        "gauge",
        "How long ago each maintenance task ran, the reaper among them.",
        ("task",),
        {(run.name,): _age(run.last_run_at, now) for run in runs},
    )
    steps = Family(
        "ojs_clock_steps_total", "counter", "Steps of the database's clock that were applied."
    )
    outages = Family(
        "ojs_outages_total",
        "counter",
        "Times in which the database did not answer, as the reaper's scans found them.",
    )
    behind = Family(
        "ojs_maintenance_behind",
        "gauge",
        "Whether the last run of the task ended before its work: of prune, rows past their retention"
        " are left.",
        ("task",),
        {(run.name,): float(run.behind) for run in runs if run.name != reaper.NAME},
    )
    scans = [run for run in runs if run.name == reaper.NAME]
    steps.values[()] = sum(run.clock_steps for run in scans)
    outages.values[()] = sum(run.outages for run in scans)
    return [ages, behind, steps, outages]


def _workflows(using: str) -> Family:
    running = Workflow.objects.using(using).filter(
        state=Workflow.States.RUNNING, parent_id__isnull=True
    )
    text = f"Workflows that run, counted up to {selectors.COUNT_CAP}."
    return Family("ojs_workflows", "gauge", text, (), {(): selectors.capped(running)})


def _rate_limits(using: str) -> list[Family]:
    """Of the keys that jobs wait for; the others have nothing to tell."""
    text = "Jobs that wait for a place under the rate limit; of keys that are full"
    waiting = Family("ojs_rate_limit_waiting", "gauge", f"{text}, {MOST_QUEUES} at most.", ("key",))
    text = "Jobs that run under the rate limit, or are over and may still run; of the same keys."
    running = Family("ojs_rate_limit_running", "gauge", text, ("key",))
    rows = RateLimit.objects.using(using).filter(exceeded=True).order_by("key")
    keys = list(rows.values_list("key", flat=True)[:MOST_QUEUES])
    most = selectors.COUNT_CAP
    found = rate_limit_keys.crowds(keys, waiting=most, taken=most, using=using)
    for key, crowd in found.items():
        waiting.values[key,], running.values[key,] = crowd.waiting, crowd.running
    return [waiting, running]


def _lag() -> Family:
    text = "By how much the replica that is read is behind; without a sample where none is read."
    found = reading.current()
    lag = None if found is None else found.lag
    return Family("ojs_replica_lag_seconds", "gauge", text, (), {} if lag is None else {(): lag})


def _schedules(now: datetime, using: str) -> Family:
    text = f"How long ago the schedule was due: 0 while it is enqueued in time; {MOST_QUEUES} at most."
    family = Family("ojs_schedule_late_seconds", "gauge", text, ("schedule",))
    rows = Schedule.objects.using(using).filter(due_at__isnull=False).order_by("name")
    for name, due_at in rows.values_list("name", "due_at")[:MOST_QUEUES]:
        family.values[name,] = 0.0 if due_at is None else _age(due_at, now)
    return family


def _age(moment: datetime, now: datetime) -> float:
    return round(max(0.0, (now - moment).total_seconds()), 3)
