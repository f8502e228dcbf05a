"""The registry of workers: who is alive, and what each is directed to do with its next heartbeat.

``runworker`` processes register (:func:`register`, :func:`report`); workers over HTTP are recorded by
what they send (``services.http_workers``). A worker is identified by its name together with the
credential that it uses, so that two clients may use the same name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from socket import gethostname
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.db.models import QuerySet

from django_ojs import clock, conf
from django_ojs.domain.errors import Conflict, NotFound
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobEvent
from django_ojs.domain.timeouts import elapsed
from django_ojs.models import Worker
from django_ojs.services import audit, deploys
from django_ojs.services.commit import publish, wake
from django_ojs.store.contention import atomically, impatient, in_transaction, is_held

STALE = timedelta(seconds=60)
"""Without a sign of life for so long a worker counts as stale."""


def named(worker_id: str, principal: str | None, *, using: str) -> QuerySet[Worker]:
    """The rows of the worker with this name and credential; ``None`` for ``runworker``."""
    return Worker.objects.using(using).filter(name=worker_id, principal=principal or "")


def process_name() -> str:
    """A readable name for this process: host, process id, and random digits, since containers may share
    both.
    """
    return f"{gethostname()}-{os.getpid()}-{clock.new_lease().hex[:6]}"


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a ``runworker`` process registers with."""

    id: str
    incarnation: UUID
    hostname: str = ""
    pid: int | None = None
    concurrency: int | None = None
    queues: Sequence[str] = ()
    types: Sequence[str] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""


@in_transaction
def register(info: WorkerInfo, *, using: str = "") -> None:
    """Record a starting worker.

    A second one under the same id replaces the first, which gets ``replaced`` as answer to its next
    report. Their leases are separate.
    """
    now = clock.now(using)
    about = {one.name: getattr(info, one.name) for one in fields(info) if one.name != "id"}
    deploys.notice(Worker(name=info.id, **about), now, using=using)
    Worker.objects.using(using).update_or_create(
        name=info.id,
        principal="",
        defaults={
            **about,
            "beats": True,
            "phase": Worker.Phase.RUNNING,
            "directive": None,
            "running": 0,
            "rss_bytes": None,
            "clock_ahead_ms": _clock_ahead_ms(now),
            "started_at": now,
            "heartbeat_at": now,
        },
    )
    begun = Worker(name=info.id, queues=info.queues, concurrency=info.concurrency)
    announce(Kind.WORKER_STARTED, begun, now, using)


def report(
    info: WorkerInfo,
    *,
    phase: str,
    running: int,
    rss_bytes: int | None = None,
    using: str | None = None,
) -> str | None:
    """Record that the worker is alive, and return its directive: ``quiet``, ``terminate``, ``replaced``
    or ``None``.

    While another transaction holds its row, nothing is written.
    """
    using = using or conf.current().database
    now = clock.now(using)
    same_name = named(info.id, None, using=using)
    mine = same_name.filter(incarnation=info.incarnation)
    state = {
        "phase": phase,
        "running": running,
        "rss_bytes": rss_bytes,
        "clock_ahead_ms": _clock_ahead_ms(now),
    }
    try:
        with impatient(1):
            written = atomically(using, partial(mine.update, heartbeat_at=now, **state))
    except DatabaseError as error:
        if not is_held(error):
            raise
        written = mine.exists()
    if written:
        return same_name.values_list("directive", flat=True).first()
    if same_name.exists():
        return "replaced"
    register(info, using=using)
    return None


def _clock_ahead_ms(now: datetime) -> int:
    return round((now - clock.host_time()) / timedelta(milliseconds=1))


@in_transaction
def deregister(
    worker_id: str,
    principal: str | None,
    *,
    incarnation: UUID | None = None,
    reason: str = "shutdown",
    actor: Actor | None = None,
    using: str = "",
) -> None:
    """Record that the worker has stopped; its jobs keep their leases, its row stays until pruned.

    ``reason`` is one of OJS events 4.3: ``shutdown``, ``signal`` or ``error``.

    With ``incarnation`` only if no later process has registered under the name; an unknown worker is
    no error. ``actor`` is who reports it, if not the worker itself: for the event and the audit.
    """
    now = clock.now(using)
    mine = named(worker_id, principal, using=using)
    if incarnation is None:
        mine = mine.exclude(phase=Worker.Phase.STOPPED)
    else:
        mine = mine.filter(incarnation=incarnation)
    gone = mine.first()
    if gone is not None and mine.update(phase=Worker.Phase.STOPPED, running=0, heartbeat_at=now):
        announce(Kind.WORKER_STOPPED, gone, now, using, reason=reason, actor=actor)


def find(key: int, *, lock: bool = False, using: str | None = None) -> Worker:
    """A row by its key, held until the transaction ends with ``lock``. Raises :class:`NotFound`."""
    rows = Worker.objects.using(using or conf.current().database).filter(pk=key)
    worker = (rows.select_for_update() if lock else rows).first()
    if worker is None:
        raise NotFound("the worker is forgotten", resource_type="worker", resource_id=str(key))
    return worker


@in_transaction
def direct(key: int, order: str | None, *, actor: Actor = Actor(), using: str = "") -> Worker:
    """Direct the worker with the row ``key`` to ``quiet`` or ``terminate``; ``None`` withdraws it.

    Delivered with every heartbeat until it is withdrawn or the worker restarts. Raises
    :class:`NotFound`, and :class:`Conflict` for a worker that has stopped.
    """
    now = clock.now(using)

    # Locked, so that a worker which stops at the same moment is not directed.
    worker = find(key, lock=True, using=using)
    if worker.phase == Worker.Phase.STOPPED:
        raise Conflict(f"the worker {worker} has stopped", worker_id=worker.name)
    worker.directive = order
    worker.save(using=using, update_fields=["directive"])
    if order is not None:
        announce(Kind.WORKER_QUIET, worker, now, using, order=order, actor=actor)
    else:
        target = ("worker", worker.name)
        audit.note("worker.resumed", actor, target=target, using=using, **_client(worker))
    # By name: another client's worker of that name asks once for nothing.
    wake((), [worker.name], using=using)
    return worker


def announce(
    kind: Kind,
    worker: Worker,
    now: datetime,
    using: str,
    *,
    order: str | None = None,
    reason: str | None = None,
    actor: Actor | None = None,
) -> None:
    """Publish an event of the worker, with its directive and who reported it, whose reason wins.

    OJS events 4.3 says what each kind has beside that; the concurrency if the worker has said it.
    """
    data: dict[str, Any] = {"worker_id": worker.name, **_client(worker)}
    if kind == Kind.WORKER_STARTED:
        data["queues"] = list(worker.queues)
        if worker.concurrency is not None:
            data["concurrency"] = worker.concurrency
    elif kind == Kind.WORKER_QUIET:
        data["active_jobs"] = worker.running
    else:
        data |= {"reason": reason, "uptime_ms": elapsed(worker.started_at, now)}
    if order is not None:
        data["directive"] = order
    if actor is not None:
        data |= actor.event_fields()
    publish([JobEvent(kind, data)], now=now, using=using)


def _client(worker: Worker) -> dict[str, str]:
    return {"client": worker.principal} if worker.principal else {}
