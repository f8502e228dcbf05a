"""Read-only views of jobs, queues and workers, and the health of the system."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connections

from django_ojs import clock, conf
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import no_job
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.domain.workflow import WorkflowState
from django_ojs.models import Attempt, AttemptLog, Job, MaintenanceRun, Queue, Worker, Workflow
from django_ojs.services import attempt_logs, backlog, workers
from django_ojs.services import health as health_checks
from django_ojs.services.stream import any_of
from django_ojs.store import due_times, selectors
from django_ojs.store.columns import JSON_COLUMNS

MOST_LOGS = 100
"""The last attempts of a job whose logs are read."""
_HIDDEN = frozenset({"lease_id", "lease_principal", "digest", "state", "hooks"})


def find(job_id: UUID, *, using: str | None = None) -> JobRow:
    """The record of a job. Raises :class:`NotFound`."""
    using = using or conf.current().database
    job = selectors.jobs([job_id], using=using).get(job_id)
    if job is None:
        raise no_job(job_id)
    return job


def describe(job: JobRow) -> dict[str, Any]:
    """A job as plain JSON values, without the lease, which is its holder's secret."""
    answer: dict[str, Any] = {"id": str(job.id), "state": job.state}
    for name, value in zip(JobRow._fields, job, strict=True):
        if name in _HIDDEN or name == "id" or value is None:
            continue
        if name in JSON_COLUMNS:
            answer[name] = json.loads(str(value))
        else:
            answer[name] = format_instant(value) if isinstance(value, datetime) else value
    return answer


def attempts_of(job: JobRow, *, using: str | None = None) -> list[dict[str, Any]]:
    """The ended attempts of a job, oldest first, as plain JSON values, with what they have logged."""
    using = using or conf.current().database
    rows = Attempt.objects.using(using).filter(job_id=job.id)
    logs = attempt_logs.of_job(job.id, most=MOST_LOGS, using=using)
    return [
        {
            "lease_seq": row.lease_seq,
            "attempt": row.attempt,
            "worker_id": row.worker_id,
            "started_at": format_instant(row.started_at),
            "ended_at": format_instant(row.ended_at),
            "seconds": round((row.ended_at - row.started_at).total_seconds(), 3),
            "outcome": row.outcome,
            "error": row.error,
            "late_report": row.late_report,
            "log": _log(logs.get(row.lease_id)),
        }
        for row in rows.order_by("lease_seq")
    ]


def log_of(job: JobRow, *, using: str | None = None) -> dict[str, Any] | None:
    """What the running attempt of a job has logged so far, ``None`` if nothing."""
    logs = attempt_logs.of_job(job.id, most=1, using=using or conf.current().database)
    return None if job.lease_id is None else _log(logs.get(job.lease_id))


def _log(log: AttemptLog | None) -> dict[str, Any] | None:
    return None if log is None else {"lines": log.text.split("\n"), "dropped": log.dropped}


def status(*, using: str | None = None) -> dict[str, Any]:
    """Jobs by state and queue, workers, last_runs, for ``ojs status``; counts up to a cap."""
    using = using or conf.current().database
    now = clock.now(using)
    counts = selectors.counts_by_state(using=using)
    rows = list(Queue.objects.using(using).order_by("name").only("name", "paused"))
    queues = [
        queue for start in range(0, len(rows), 200) for queue in _full(rows[start : start + 200], using)
    ]
    workers = [
        {
            "id": worker.name,
            "client": worker.principal or None,
            "phase": worker.phase,
            "running": worker.running,
            "concurrency": worker.concurrency,
            "heartbeat_age_seconds": round((now - worker.heartbeat_at).total_seconds(), 1),
        }
        for worker in Worker.objects.using(using)
        .exclude(phase=Worker.Phase.STOPPED)
        .order_by("name", "principal")[:100]
    ]
    last_runs = {
        run.name: format_instant(run.last_run_at) for run in MaintenanceRun.objects.using(using).all()
    }
    waiting = backlog.backlog(now=now, using=using)
    troubles = health_checks.problems(now=now, using=using) if any(counts.values()) else []
    troubles += health_checks.of_keys(using)
    outermost = Workflow.objects.using(using).filter(parent_id__isnull=True)
    failed = outermost.filter(state=WorkflowState.FAILED, finished_at__gt=now - timedelta(hours=1))
    return {
        "jobs": counts,
        "queues": queues,
        "workflows": {
            "running": selectors.capped(outermost.filter(state=WorkflowState.RUNNING)),
            "failed_last_hour": selectors.capped(failed),
        },
        "workers": workers,
        "last_runs": last_runs,
        "backlog": {name: one._asdict() for name, one in waiting.items()},
        "troubles": [problem.as_json() for problem in troubles],
        "count_cap": selectors.COUNT_CAP,
    }


def _full(rows: Sequence[Queue], using: str) -> list[dict[str, Any]]:
    """The number of jobs by state of each queue, in one statement."""
    cap, names = selectors.COUNT_CAP, [row.name for row in rows]
    depths = selectors.depths(names, cap=cap, among=cap, states=selectors.ALL_STATES, using=using)
    return [
        {
            "name": row.name,
            "paused": row.paused,
            **{str(state): depths[row.name].counts[state] for state in State},
        }
        for row in rows
    ]


def dead_letter_stats(queues: Sequence[str], *, using: str | None = None) -> dict[str, Any]:
    """The dead letter by queue, type and error type, from its newest 10,000 jobs.

    ``queues`` are names, or prefixes that end in ``*``, to look at.
    """
    using = using or conf.current().database
    rows = Job.objects.using(using).filter(state=State.DISCARDED, dead_letter=True)
    if "*" not in queues:
        rows = rows.filter(any_of("queue", queues))
    found = list(
        rows.order_by("-finished_at").values_list("queue", "type", "error__type", "finished_at")[
            : selectors.COUNT_CAP
        ]
    )
    by = [Counter(row[column] for row in found if row[column]) for column in range(3)]
    return {
        "total": len(found),
        "by_queue": dict(by[0]),
        "by_type": dict(by[1]),
        "by_error_type": dict(by[2]),
        "oldest_at": _written(found[-1][3] if found else None),
        "newest_at": _written(found[0][3] if found else None),
    }


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else format_instant(moment)


def backend(using: str | None = None) -> str:
    """``postgres``, ``mariadb`` or ``sqlite``."""
    connection = connections[using or conf.current().database]
    return {"postgresql": "postgres", "mysql": "mariadb"}.get(connection.vendor, connection.vendor)


def health(*, using: str | None = None) -> dict[str, Any]:
    """Whether timeouts are enforced and workers are alive; a handful of index probes.

    ``oldest_overdue_seconds`` is about fixed deadlines; ``troubles`` are also reported while anything
    runs.
    """
    using = using or conf.current().database
    now = clock.now(using)
    live = Worker.objects.using(using).filter(heartbeat_at__gt=now - workers.STALE)
    alive = live.exclude(phase=Worker.Phase.STOPPED).count()
    first = due_times.next_deadline(using=using)
    # Heartbeat and visibility deadlines have no index: any running job may be past one.
    needed = (first is not None and first < now) or _any_runs(using)
    problems = health_checks.enforcement(now, using) if needed else []
    overdue = 0 if first is None else max(0, int((now - first).total_seconds()))
    return {
        "workers": {"live": alive},
        "queues": {"total": Queue.objects.using(using).count()},
        "oldest_overdue_seconds": overdue,
        "troubles": [str(problem) for problem in problems],
    }


def _any_runs(using: str) -> bool:
    rows = selectors.in_state(Job.objects.using(using), State.ACTIVE)
    # In the order of the index: without, a planner could read the table until it has found one.
    return bool(rows.order_by("worker_id").values_list("worker_id")[:1])


def figures(queues: Sequence[str], principal: str, *, using: str | None = None) -> dict[str, Any]:
    """The number of queues, workers, jobs by state, and of jobs that ended lately; each up to a cap.

    ``queues`` are names, or prefixes that end in ``*``, to look at; unless that is all of them, only
    the workers of ``principal`` are counted.
    """
    using = using or conf.current().database
    names, workers = Queue.objects.using(using).all(), Worker.objects.using(using).all()
    rows = Job.objects.using(using).all()
    jobs: dict[str, int]
    if "*" in queues:
        jobs = selectors.counts_by_state(using=using)
    else:
        names, workers = names.filter(any_of("name", queues)), workers.filter(principal=principal)
        rows = rows.filter(any_of("queue", queues))
        jobs = {str(state): selectors.capped(selectors.in_state(rows, state)) for state in State}
    since = clock.now(using) - timedelta(minutes=1)
    ended = {
        state: selectors.capped(selectors.in_state(rows, state).filter(finished_at__gt=since))
        for state in (State.COMPLETED, State.DISCARDED)
    }
    return {
        "queues": names.count(),
        "workers": workers.exclude(phase=Worker.Phase.STOPPED).count(),
        "jobs": jobs,
        "throughput": {
            "processed_per_minute": ended[State.COMPLETED],
            "failed_per_minute": ended[State.DISCARDED],
        },
    }
