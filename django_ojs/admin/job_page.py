"""The page of one job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ojs import clock
from django_ojs.admin import outcome, recent_runs
from django_ojs.admin.bulk import describe_order
from django_ojs.admin.cells import attempt_of
from django_ojs.admin.charts import at_least, plain
from django_ojs.admin.clock_bars import bar
from django_ojs.admin.clocks import clocks
from django_ojs.admin.outcome import OutcomeNote
from django_ojs.admin.recent_runs import RecentRun
from django_ojs.admin.redaction import pretty, redacted
from django_ojs.admin.timeline import picture, spans
from django_ojs.admin.verdict import of_application, verdict
from django_ojs.domain.events import Kind
from django_ojs.domain.job import JobRow, ran_for
from django_ojs.domain.reserved import RETRIED_FROM
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Attempt, AttemptLog, Event, Job
from django_ojs.services import attempt_logs, bulk, inspect, unique
from django_ojs.services.explain import explained
from django_ojs.services.phrases import humanize_duration
from django_ojs.store import line, selectors

MOST_ATTEMPTS = 50
MOST_LOGS = 10
"""Each has up to 32 KiB."""
MOST_EVENTS = 100
MOST_RELATED = 10
MOST_PROGRESS = 20
_UNCOUNTED = ("released", "requeued")
"""How attempts end that do not count: the next one has their number."""
RELATED_WINDOW = 5_000
_RAN = (State.ACTIVE, State.COMPLETED, State.DISCARDED)
"""The states in which the time of the last attempt tells something."""


def job_page(job_id: UUID, *, shows_args: bool, using: str) -> dict[str, Any]:
    """The variables of the page: facts, timeouts, timeline, attempts, data, history, related jobs."""
    job = inspect.find(job_id, using=using)
    now = clock.now(using)
    attempts = list(
        Attempt.objects.using(using).filter(job_id=job.id).order_by("-lease_seq")[:MOST_ATTEMPTS]
    )[::-1]
    events = Event.objects.using(using).filter(job_id=job.id).order_by("-id")
    # Apart: a job that reports each second would bury the rest of its history.
    progress = events.filter(kind=Kind.PROGRESS)[:MOST_PROGRESS] if job.progress is not None else []
    logs: dict[UUID, AttemptLog] = {}
    if shows_args and (attempts or job.lease_id is not None):
        logs = attempt_logs.of_job(job.id, most=MOST_LOGS, using=using)
    running = None if job.lease_id is None else logs.get(job.lease_id)
    why = explained(job, now, using)
    lived = spans(job, attempts, now)
    return {
        "job": job,
        "state": Job.States(job.state).label,
        "now": now,
        "ended": job.state in TERMINAL,
        "facts": _facts(job, shows_args),
        "equals": unique.other_holders(job, using=using)[:MOST_RELATED],
        "clocks": [
            {
                "clock": item,
                "limit": humanize_duration(item.limit),
                "used": humanize_duration(item.used),
                "left": humanize_duration(item.left),
                "bar": bar(item, timedelta(milliseconds=job.grace_period_ms)),
            }
            for item in clocks(job, now)
        ],
        "spans": lived,
        "picture": picture(lived),
        "attempts": [
            _attempt(row, before, logs.get(row.lease_id))
            for row, before in zip(attempts, [None, *attempts], strict=False)
        ],
        "log": None if running is None else _log(running),
        "data": _data(job) if shows_args else [],
        "shows_args": shows_args,
        "progress": job.progress,
        "progress_percent": None if job.progress is None else round(job.progress * 100),
        "progress_message": job.progress_message,
        "history": [_event(row) for row in events.exclude(kind=Kind.PROGRESS)[:MOST_EVENTS]],
        "reported": [(row.created_at, row.data.get("progress_percent")) for row in progress],
        "why": why,
        "became": _became(job, using),
        "place": _place(job, using),
        "verdict": verdict(job, attempts),
        "related": _related(job, now, using),
    }


def _facts(job: JobRow, shows_args: bool) -> list[tuple[str, Any]]:
    ordered = (
        describe_order(job.id, job.json("args"), shows_args=shows_args)
        if job.type == bulk.TYPE
        else None
    )
    pairs = [
        (_("order"), ordered),
        (_("id"), job.id),
        (_("type"), job.type),
        (_("queue"), job.queue),
        (_("priority"), job.priority),
        (_("attempt"), attempt_of(job)),
        (_("worker"), job.worker_id),
        (_("client"), job.lease_principal),
        (_("created"), job.created_at),
        (_("enqueued"), job.enqueued_at),
        (_("scheduled"), job.scheduled_at),
        (_("expires"), job.expires_at),
        (_("started"), job.started_at),
        (_("finished"), job.finished_at),
        (_("tags"), ", ".join(job.json("tags"))),
        (_("dead letter"), _("yes") if job.dead_letter else None),
        (_("unique key"), job.unique_key),
        (_("incident"), job.incident),
    ]
    return [(name, value) for name, value in pairs if value not in (None, "")]


def _data(job: JobRow) -> list[tuple[str, str]]:
    columns = ["args", "meta", "result", "checkpoint", "progress_data", "retry", "extra"]
    if job.type == bulk.TYPE:
        # The signed order is shown in words among the facts.
        columns.remove("args")
    return [
        (column, pretty(redacted(value)))
        for column in columns
        if (value := job.json(column)) not in (None, {}, [])
    ]


def _attempt(row: Attempt, before: Attempt | None, log: AttemptLog | None) -> dict[str, Any]:
    error = row.error or {}
    again = before is not None and before.outcome not in _UNCOUNTED and row.attempt <= before.attempt
    trace = error.get("backtrace") or []
    return {
        "row": row,
        "lasted": humanize_duration(row.ended_at - row.started_at),
        "type": error.get("type", ""),
        "message": error.get("message", ""),
        "application": of_application(trace),
        "trace": trace,
        "late": row.late_report,
        "again": again,
        "log": None if log is None else _log(log),
    }


def _log(log: AttemptLog) -> dict[str, Any]:
    title = ngettext("Log, %s line", "Log, %s lines", log.lines) % log.lines
    dropped = ngettext(
        "%s line before it is not kept.", "%s lines before it are not kept.", log.dropped
    )
    return {
        "key": f"ojs-log-{log.pk}",
        "title": title,
        "dropped": dropped % plain(log.dropped) if log.dropped else "",
        "text": log.text,
    }


def _event(row: Event) -> dict[str, Any]:
    data = row.data
    return {
        "time": row.created_at,
        "kind": row.kind,
        "actor": data.get("actor", ""),
        "source": data.get("source", ""),
        "reason": data.get("reason", ""),
        "detail": ", ".join(
            f"{name}: {data[name]}"
            for name in ("worker_id", "timeout_kind", "elapsed_seconds", "changed", "next_retry_at")
            if data.get(name) not in (None, "")
        ),
    }


def _related(job: JobRow, now: datetime, using: str) -> dict[str, Any]:
    rows = Job.objects.using(using)
    meta = job.json("meta")
    origin = meta.get(RETRIED_FROM) if isinstance(meta, dict) else None
    # There is no index by type: only jobs created shortly before are read.
    first = selectors.newest_before(job.id, RELATED_WINDOW, using=using)
    made = rows.filter(pk__lt=job.id, pk__gte=first)
    queued = made.filter(queue=job.queue, type=job.type).order_by("-pk")
    columns = ("pk", "state", "started_at", "finished_at", "enqueued_at", "scheduled_at")
    runs = [RecentRun(*row) for row in queued.values_list(*columns)[: recent_runs.MOST]]
    lasted = ran_for(job, now)
    return {
        "origin": origin,
        "before": runs,
        "picture": recent_runs.picture(runs),
        "beside": recent_runs.beside(lasted, runs) if job.state in _RAN else "",
    }


def _became(job: JobRow, using: str) -> OutcomeNote | None:
    """What became of the jobs of bulk work that has ended."""
    meta = job.json("meta")
    if job.type != bulk.TYPE or job.state not in TERMINAL or not isinstance(meta, dict):
        return None
    return outcome.note(job.id, str(meta.get("operation")), job.json("checkpoint"), using=using)


def _place(job: JobRow, using: str) -> str:
    """How many jobs are before one that waits for a worker."""
    if job.state != State.AVAILABLE or job.held:
        return ""
    ahead = line.ahead_of(job, using=using)
    if not ahead:
        return _("It is the next of its queue.")
    said = ngettext("%s job of its queue is before it.", "%s jobs of its queue are before it.", ahead)
    return said % (at_least(ahead) if ahead >= line.MOST else plain(ahead))
