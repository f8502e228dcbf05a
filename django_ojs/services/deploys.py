"""Deployments as marks in time: what a command said, and what the versions of starting workers tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.errors import InvalidRequest
from django_ojs.models import DeployMark, Worker
from django_ojs.store.contention import alone

ONE = timedelta(minutes=10)
"""Marks within this time are about one deployment: a command was run and its workers started."""
MOST_NAME = 200
_MOST = 500
_STALE = timedelta(seconds=60)


def version_of(version: str, labels: Any) -> str:
    """The version of a worker: that of the application where its labels tell it."""
    found: Mapping[str, Any] = labels if isinstance(labels, dict) else {}
    return str(found.get("version") or found.get("release") or version)


def mark(name: str = "", *, by: str = "", using: str | None = None) -> DeployMark:
    """Record that something is deployed now. Raises :class:`InvalidRequest` for a name that is too
    long.
    """
    if len(name) > MOST_NAME:
        raise InvalidRequest("name", f"must not be longer than {MOST_NAME} characters")
    using = using or conf.current().database
    marks = DeployMark.objects.using(using)
    return alone(using, partial(marks.create, at=clock.now(using), name=name, by=by[:255]))


def notice(worker: Worker, now: datetime, *, using: str) -> None:
    """Record a deployment if a worker starts whose version no live worker has, nor the last one of the
    same credential that started.

    To be called before its row is written: this may be that of its last start. During a deployment
    workers of both versions start; going back to the old version is one, too.
    """
    version = version_of(worker.version, worker.labels)[:MOST_NAME]
    if not version:
        return
    others = Worker.objects.using(using).filter(principal=worker.principal).order_by("-started_at")
    known = [
        (version_of(row.version, row.labels)[:MOST_NAME], row)
        for row in others.only("version", "labels", "phase", "heartbeat_at")[:_MOST]
    ]
    if not known or known[0][0] == version:
        return
    if any(name == version and _is_live(row, now) for name, row in known):
        return
    marks = DeployMark.objects.using(using)
    if not marks.filter(at__gt=now - ONE).exists():
        marks.create(at=now, name=version, noticed=True)


def _is_live(row: Worker, now: datetime) -> bool:
    return row.phase != Worker.Phase.STOPPED and now - row.heartbeat_at <= _STALE


def between(since: datetime, until: datetime, *, using: str | None = None) -> list[DeployMark]:
    """The deployments of a period, the oldest first, at most the last 500: each once, though several
    workers may have noticed it.
    """
    rows = DeployMark.objects.using(using or conf.current().database)
    found: list[DeployMark] = []
    last = list(rows.filter(at__gte=since, at__lte=until).order_by("-at", "-pk")[:_MOST])
    for row in reversed(last):
        if not found or row.name != found[-1].name or row.at - found[-1].at > ONE:
            found.append(row)
    return found


def before(moment: datetime, marks: Sequence[DeployMark], within: timedelta) -> DeployMark | None:
    """The last of the deployments that preceded a moment by no more than ``within``."""
    near = [one for one in marks if moment - within <= one.at <= moment]
    return near[-1] if near else None


def forget(before: datetime, limit: int, dry_run: bool, using: str) -> int:
    """Delete up to ``limit`` marks from before a time."""
    rows = DeployMark.objects.using(using)
    old = list(rows.filter(at__lt=before).values_list("pk", flat=True)[:limit])
    if old and not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)
