"""Schedules as clients receive them."""

from __future__ import annotations

import json
from typing import Any

from django_ojs.domain.durations import format_iso
from django_ojs.domain.limits import NAMES, Limits
from django_ojs.http.responses import JsonObject, moment
from django_ojs.models import Schedule, ScheduleRun
from django_ojs.services.schedules import rows


def schedule(row: Schedule) -> JsonObject:
    """A schedule, under the names of all dialects."""
    template = job_template(row)
    shape: JsonObject = {
        "name": row.name,
        "expression": row.expression,
        "cron": row.expression,
        "schedule": row.expression,
        "timezone": row.timezone,
        **template,
        "job_template": template,
        "queue": row.queue,
        "overlap_policy": row.overlap,
        "catch_up": row.catch_up,
        "catch_up_within": format_iso(row.catch_up_within_ms),
        "jitter": format_iso(row.jitter_ms),
        "enabled": rows.is_on(row),
        "status": "active" if rows.is_on(row) else "paused",
        "source": row.source,
        "description": row.description,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
        "last_run_at": moment(row.last_run_at),
        "last_job_id": None if row.last_job_id is None else str(row.last_job_id),
        "next_run_at": moment(rows.next_run(row)),
        "run_count": row.run_count,
    }
    for name in ("starts_at", "ends_at", "paused_at"):
        if (at := getattr(row, name)) is not None:
            shape[name] = moment(at)
    return shape


def job_template(row: Schedule) -> JsonObject:
    """The request for the jobs: ``type``, ``args``, ``meta`` and ``options``."""
    envelope = rows.envelope_of(row)
    options: dict[str, Any] = {
        "queue": row.queue,
        "priority": envelope.priority,
        "retry": envelope.retry,
        "tags": list(envelope.tags) or None,
        **(envelope.extra or {}),
        **_limits(envelope.limits),
    }
    return {
        "type": row.type,
        "args": json.loads(envelope.args_json),
        "meta": json.loads(envelope.meta_json),
        "options": {name: value for name, value in options.items() if value is not None},
    }


def _limits(limits: Limits) -> dict[str, Any]:
    """The limits in seconds and in milliseconds, but the timeout only in the unit in which it was
    given: sent back in the other one it would have another grace period (decision T3)."""
    found: dict[str, Any] = {}
    for name in NAMES:
        if (ms := getattr(limits, f"{name}_ms")) is None:
            continue
        seconds: int | str = format_iso(ms) if ms % 1000 else ms // 1000
        if name != "timeout" or not limits.timeout_given_in_ms:
            found[name] = seconds
        if name != "timeout" or limits.timeout_given_in_ms:
            found[f"{name}_ms"] = ms
    return found


def answer(row: Schedule, **more: Any) -> JsonObject:
    """The answer about one schedule."""
    shape = schedule(row)
    return {"cron": shape, "cron_job": shape, **more}


def run(found: ScheduleRun) -> JsonObject:
    """What became of a tick."""
    return {
        "scheduled_at": moment(found.tick),
        "outcome": found.outcome,
        "reason": found.reason or None,
        "job_id": None if found.job_id is None else str(found.job_id),
        "count": found.count,
        "by": found.by or None,
        "created_at": moment(found.created_at),
    }
