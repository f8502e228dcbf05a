"""The audit: every action of a person or a client leaves a row, in the action's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobEvent
from django_ojs.models import AuditEntry

_SOURCES = frozenset({"api", "http", "admin", "command"})
_OWN = frozenset({"source", "actor", "reason", "address", "job_id"})
_BY = frozenset({"cancelled_by", "paused_by", "resumed_by"})
"""Fields of events that mostly say again who acted."""
_DOUBLED = frozenset({Kind.DEAD_LETTER_RETRIED})
"""Kinds that accompany another event about the same action."""
_TARGETS = (
    ("job_id", "job"),
    ("workflow_id", "workflow"),
    ("worker_id", "worker"),
    ("queue", "queue"),
)
"""The fields of an event that name what the action was about, the most specific first."""


def record(job_events: Iterable[JobEvent], *, now: datetime, using: str) -> None:
    """Write a row for each event with an actor; others cost nothing."""
    rows = [
        _row(job_event, now)
        for job_event in job_events
        if job_event.payload.get("source") in _SOURCES and job_event.kind not in _DOUBLED
    ]
    if rows:
        AuditEntry.objects.using(using).bulk_create(rows)


def _row(job_event: JobEvent, now: datetime) -> AuditEntry:
    data = job_event.data
    who = (data.get("actor"), data["source"])
    target_type, target_id = _target(data)
    return AuditEntry(
        created_at=now,
        action=job_event.kind,
        source=data["source"],
        actor=str(data.get("actor", ""))[:255],
        address=str(data.get("address", ""))[:64],
        reason=str(data.get("reason", "")),
        target_type=target_type,
        target_id=target_id,
        data={
            key: value
            for key, value in data.items()
            if key not in _OWN and not (key in _BY and value in who)
        },
    )


def _target(data: Any) -> tuple[str, str]:
    for name, kind in _TARGETS:
        if data.get(name):
            return kind, str(data[name])[:255]
    return "", ""


def note(
    action: str,
    actor: Actor,
    *,
    target: tuple[str, str],
    result: str = "done",
    using: str | None = None,
    **data: Any,
) -> None:
    """Write a row for what causes no event: a token that is made, a refusal."""
    using = using or conf.current().database
    AuditEntry.objects.using(using).create(
        created_at=clock.now(using),
        action=action,
        result=result,
        source=actor.source,
        actor=actor.name[:255],
        address=actor.address[:64],
        reason=actor.reason,
        target_type=target[0],
        target_id=target[1][:255],
        data=data,
    )
