"""Signs of life: beats, progress and checkpoints under a lease; the registry of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Fact
from django_ojs.domain.timeouts import after
from django_ojs.models import Worker
from django_ojs.services.commit import publish
from django_ojs.store import leases
from django_ojs.store.contention import atomically
from django_ojs.store.leases import Held, Kept

MAX_CHECKPOINT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker process says of itself when it registers."""

    id: str
    incarnation: UUID
    hostname: str = ""
    pid: int | None = None
    concurrency: int | None = None
    queues: Sequence[str] = ()
    types: Sequence[str] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Directive:
    """The server's word to a worker: ``quiet``, ``terminate``, ``replaced`` or nothing."""

    order: str | None


def register(info: WorkerInfo, *, now: datetime | None = None, using: str | None = None) -> None:
    """Record a starting worker. A second one under the same id replaces the first, which learns
    so from its next beat; their leases are separate all the same.
    """
    using = using or conf.current().database
    now = now or clock.now(using)

    def work() -> None:
        Worker.objects.using(using).update_or_create(
            id=info.id,
            defaults={
                "incarnation": info.incarnation,
                "phase": Worker.Phase.RUNNING,
                "directive": None,
                "hostname": info.hostname,
                "pid": info.pid,
                "concurrency": info.concurrency,
                "running": 0,
                "queues": list(info.queues),
                "types": list(info.types),
                "labels": dict(info.labels),
                "version": info.version,
                "started_at": now,
                "heartbeat_at": now,
            },
        )
        publish([_worker_fact(Kind.WORKER_STARTED, info.id)], now=now, using=using)

    atomically(using, work)


def report_worker(
    info: WorkerInfo,
    *,
    phase: str,
    running: int,
    now: datetime | None = None,
    using: str | None = None,
) -> Directive:
    """A worker's own sign of life; returns what it is told to do."""
    using = using or conf.current().database
    now = now or clock.now(using)
    workers = Worker.objects.using(using).filter(id=info.id)
    if workers.filter(incarnation=info.incarnation).update(
        phase=phase, running=running, heartbeat_at=now
    ):
        return Directive(workers.values_list("directive", flat=True).first())
    if workers.exists():
        return Directive("replaced")
    register(info, now=now, using=using)
    return Directive(None)


def deregister(info: WorkerInfo, *, now: datetime | None = None, using: str | None = None) -> None:
    """The worker has stopped; its row stays until retention takes it."""
    using = using or conf.current().database
    now = now or clock.now(using)
    mine = Worker.objects.using(using).filter(id=info.id, incarnation=info.incarnation)

    def work() -> None:
        if mine.update(phase=Worker.Phase.STOPPED, running=0, heartbeat_at=now):
            publish([_worker_fact(Kind.WORKER_STOPPED, info.id)], now=now, using=using)

    atomically(using, work)


def beat(held: Sequence[Held], *, now: datetime | None = None, using: str | None = None) -> list[Kept]:
    """Renew leases; returns those that still hold, with the deadline each must keep.

    A lease that is not in the answer is lost: its job was cancelled, reaped or given to somebody
    else, and must be stopped. Never moves an execution deadline (decision T2). One statement, two
    where the database cannot say what it wrote; one more where visibility leases are held.
    """
    return _sign_of_life(held, {}, {}, (), now, using)


def _sign_of_life(
    held: Sequence[Held],
    shared: Mapping[str, Any],
    varying: Mapping[str, Sequence[Any]],
    counted: Sequence[str],
    now: datetime | None,
    using: str | None,
) -> list[Kept]:
    """A beat, with whatever else is written under the same leases."""
    alias = using or conf.current().database
    moment = now or clock.now(alias)

    def work() -> list[Kept]:
        alive = {"heartbeat_at": moment, "heartbeat_armed": True, **shared}
        kept = leases.write(held, alive, varying, counted, using=alias)
        visible = [lease for lease in kept if lease.lease_visibility_ms is not None]
        if visible:
            until = [
                min(after(moment, lease.lease_visibility_ms or 0), lease.deadline_at)
                for lease in visible
            ]
            found = [Held(lease.job_id, lease.lease_id) for lease in visible]
            leases.write(found, {}, {"lease_expires_at": until}, using=alias)
        return kept

    return atomically(alias, work)


def holds(held: Sequence[Held], *, using: str | None = None) -> list[Kept]:
    """Those of the leases that still hold, with their deadlines; renews nothing. One statement."""
    return leases.find(held, using=using or conf.current().database)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt is: ``fraction`` from 0 to 1; ``data`` is JSON text."""

    lease: Held
    fraction: float
    message: str = ""
    data: str | None = None


def progress(
    reports: Sequence[Progress], *, now: datetime | None = None, using: str | None = None
) -> list[Kept]:
    """Store progress; counts as a beat (OJS timeouts 9.3). Returns the leases that still hold."""
    return _sign_of_life(
        [report.lease for report in reports],
        {},
        {
            "progress": [min(1.0, max(0.0, report.fraction)) for report in reports],
            "progress_message": [report.message for report in reports],
            "progress_data": [report.data for report in reports],
        },
        (),
        now,
        using,
    )


def checkpoint(
    lease: Held, state: str, *, now: datetime | None = None, using: str | None = None
) -> bool:
    """Store where the next attempt resumes (JSON text); counts as a beat.

    ``checkpoint_seq`` grows by 1 with every save.
    Returns whether the lease still held; if not, nothing was written.
    """
    return bool(_sign_of_life([lease], {"checkpoint": state}, {}, ["checkpoint_seq"], now, using))


def _worker_fact(kind: Kind, worker_id: str) -> Fact:
    return Fact(kind, {"worker_id": worker_id})
