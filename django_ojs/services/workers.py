"""The workers that speak HTTP: seen by what they send, told what to do by their next beat.

Their identity is a name of their own choice; whoever used it first owns it while it is alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError
from django.db.models import F

from django_ojs import clock, conf
from django_ojs.domain.errors import Conflict, NotFound, PermissionDenied
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, Fact
from django_ojs.domain.states import State
from django_ojs.models import Job, Worker
from django_ojs.services import audit
from django_ojs.services.commit import publish, wake
from django_ojs.store.contention import atomically

STALE = timedelta(seconds=60)
"""Without a sign of life for so long a worker counts as stale."""
ABANDONED = timedelta(seconds=600)
"""After so long, another credential may use the worker's name."""
_SEEN_EVERY = timedelta(seconds=1)
"""How exactly it is known when a worker was heard: reports without a lease are judged by it."""
_RUNNING = (Worker.Phase.RUNNING, Worker.Phase.STOPPED)


def silent(*, now: datetime, using: str, most: int = 1000) -> dict[str, int]:
    """How many jobs each silent worker holds that a heartbeat timeout will end: by worker, ``""`` for
    those without a name.

    Silent is who fetched over HTTP a job whose ``heartbeat_timeout`` binds, and let a quarter of it go
    by without any sign of life: workers should beat four times as often (OJS timeouts 5.5).
    """
    beating = Worker.objects.using(using).filter(beats=True)
    held = (
        Job.objects.using(using)
        .filter(
            state=State.ACTIVE,
            heartbeat_explicit=True,
            heartbeat_at=F("started_at"),
            lease_principal__isnull=False,
        )
        .exclude(worker_id__in=beating.values("pk"))
        .values_list("worker_id", "heartbeat_at", "heartbeat_timeout_ms")
    )
    found = Counter[str]()
    for worker_id, heard_at, timeout_ms in held[:most]:
        if heard_at is not None and now - heard_at > timedelta(milliseconds=timeout_ms / 4):
            found[worker_id or ""] += 1
    return dict(found)


def seen(
    worker_id: str,
    principal: str | None,
    *,
    beats: bool,
    said: Mapping[str, Any] | None = None,
    now: datetime | None = None,
    using: str | None = None,
) -> Worker:
    """A sign of life of a worker: its row as it is now, made at first sight (OJS worker protocol 3).

    ``said`` are columns that the worker reported (``phase``, ``running``, ``hostname`` ...).
    ``beats`` is true for a heartbeat or a registration, which arms the default heartbeat timeout
    of the jobs that it claims from then on (decision T4). Raises :class:`PermissionDenied` when the
    name belongs to another credential that was heard within ten minutes.
    """
    using = using or conf.current().database
    now = now or clock.now(using)
    try:
        return atomically(using, partial(_seen, worker_id, principal, beats, said, now, using))
    except IntegrityError:
        # Two first sights at once: the other one made the row.
        return atomically(using, partial(_seen, worker_id, principal, beats, said, now, using))


def _seen(
    worker_id: str,
    principal: str | None,
    beats: bool,
    said: Mapping[str, Any] | None,
    now: datetime,
    using: str,
) -> Worker:
    # Locked, since the whole row is written: an order must not be lost to what was read before it.
    worker = Worker.objects.using(using).select_for_update().filter(pk=worker_id).first()
    if worker is None:
        # Said, since a default of the database is no value yet.
        worker = Worker(id=worker_id, principal=principal, beats=False)
        _begin(worker, now)
        _take(worker, beats, said, now)
        worker.save(using=using, force_insert=True)
        _announce(Kind.WORKER_STARTED, worker_id, now, using)
        return worker
    gone = worker.phase == Worker.Phase.STOPPED or now - worker.heartbeat_at > ABANDONED
    if worker.principal != principal and not gone:
        raise PermissionDenied(
            f"the worker id {worker_id!r} is in use by another credential", field="worker_id"
        )
    quiet_before = worker.phase not in _RUNNING
    if gone or now - worker.heartbeat_at > STALE:
        # Another process under the same name: what the last one was told is not for this one.
        worker.principal = principal
        _begin(worker, now)
        _announce(Kind.WORKER_STARTED, worker_id, now, using)
    elif (
        worker.beats >= beats
        and now - worker.heartbeat_at < _SEEN_EVERY
        and all(getattr(worker, column) == value for column, value in (said or {}).items())
    ):
        return worker
    _take(worker, beats, said, now)
    if worker.phase not in _RUNNING and not quiet_before:
        _announce(Kind.WORKER_QUIET, worker_id, now, using)
    worker.save(using=using, force_update=True)
    return worker


def _begin(worker: Worker, now: datetime) -> None:
    worker.incarnation = clock.new_id()
    worker.phase = Worker.Phase.RUNNING
    worker.directive = None
    worker.running = 0
    worker.started_at = now


def _take(worker: Worker, beats: bool, said: Mapping[str, Any] | None, now: datetime) -> None:
    worker.beats = worker.beats or beats
    worker.heartbeat_at = now
    for column, value in (said or {}).items():
        setattr(worker, column, value)


def heard(
    worker_id: str, principal: str | None, *, now: datetime | None = None, using: str | None = None
) -> None:
    """A report that names its worker is a sign of life too; of an unknown worker it says nothing.

    Never waits for the row: a sign of life that is lost so is followed by the next one.
    """
    using = using or conf.current().database
    now = now or clock.now(using)
    mine = Worker.objects.using(using).filter(pk=worker_id, principal=principal)
    mine = mine.exclude(phase=Worker.Phase.STOPPED).filter(heartbeat_at__lte=now - _SEEN_EVERY)
    if not mine.exists():
        return

    def work() -> None:
        for worker in mine.select_for_update(skip_locked=True):
            worker.heartbeat_at = now
            worker.save(using=using, update_fields=["heartbeat_at"])

    atomically(using, work)


def last_heard(
    names: Iterable[str | None], principal: str | None, *, using: str
) -> Mapping[str, datetime]:
    """When each of the workers of this credential was heard last; not of those that have stopped."""
    known = Worker.objects.using(using).filter(pk__in=list(names), principal=principal)
    running = known.exclude(phase=Worker.Phase.STOPPED)
    return dict(running.values_list("pk", "heartbeat_at"))


def live_together(principal: str, *, now: datetime, using: str) -> bool:
    """Whether two workers of the credential were alive at the same time within the last minute.

    One that was started after the last sign of life of another one has taken its place.
    """
    recent = Worker.objects.using(using).filter(principal=principal, heartbeat_at__gt=now - STALE)
    last: datetime | None = None
    for started_at, heartbeat_at in recent.order_by("started_at").values_list(
        "started_at", "heartbeat_at"
    ):
        if last is not None and started_at < last:
            return True
        last = heartbeat_at if last is None else max(last, heartbeat_at)
    return False


def may_fetch(worker: Worker) -> bool:
    """Whether the server hands out jobs to it: neither it nor an operator has said otherwise."""
    return worker.phase == Worker.Phase.RUNNING and worker.directive is None


def deregister(worker_id: str, *, now: datetime | None = None, using: str | None = None) -> None:
    """The worker says that it is gone; its jobs keep their leases. Unknown names are no error."""
    using = using or conf.current().database
    now = now or clock.now(using)

    def work() -> None:
        mine = Worker.objects.using(using).filter(pk=worker_id).exclude(phase=Worker.Phase.STOPPED)
        if mine.update(phase=Worker.Phase.STOPPED, running=0, heartbeat_at=now):
            _announce(Kind.WORKER_STOPPED, worker_id, now, using)

    atomically(using, work)


def own(worker_id: str, principal: str | None, *, using: str | None = None) -> None:
    """Raise :class:`PermissionDenied` when the worker belongs to another credential."""
    worker = Worker.objects.using(using or conf.current().database).filter(pk=worker_id).first()
    if worker is not None and worker.principal != principal:
        raise PermissionDenied(
            f"the worker id {worker_id!r} is in use by another credential", field="worker_id"
        )


def look(worker_id: str, *, using: str) -> Worker | None:
    """The row of a worker, if there is one; no sign of life."""
    return Worker.objects.using(using).filter(pk=worker_id).first()


def find(worker_id: str, *, lock: bool = False, using: str | None = None) -> Worker:
    """The row of a worker, held until the transaction ends with ``lock``. Raises :class:`NotFound`."""
    rows = Worker.objects.using(using or conf.current().database).filter(pk=worker_id)
    worker = (rows.select_for_update() if lock else rows).first()
    if worker is None:
        raise NotFound(f"no worker {worker_id}", resource_type="worker", resource_id=worker_id)
    return worker


def direct(
    worker_id: str,
    order: str | None,
    *,
    actor: Actor = Actor(),
    now: datetime | None = None,
    using: str | None = None,
) -> Worker:
    """Tell a worker ``quiet`` or ``terminate``, or with ``None`` take that back.

    Delivered with every beat until it is taken back or the worker starts anew. Raises
    :class:`NotFound`, and :class:`Conflict` for a worker that has stopped.
    """
    using = using or conf.current().database
    now = now or clock.now(using)

    def work() -> Worker:
        # Locked: a worker that stops at the same moment is told nothing.
        worker = find(worker_id, lock=True, using=using)
        if worker.phase == Worker.Phase.STOPPED:
            raise Conflict(f"the worker {worker_id} has stopped", worker_id=worker_id)
        worker.directive = order
        worker.save(using=using, update_fields=["directive"])
        if order is not None:
            _announce(Kind.WORKER_QUIET, worker_id, now, using, order=order, actor=actor)
        else:
            audit.note("worker.resumed", actor, target=("worker", worker_id), now=now, using=using)
        wake((), [worker_id], using=using)
        return worker

    return atomically(using, work)


def _announce(
    kind: Kind,
    worker_id: str,
    now: datetime,
    using: str,
    *,
    order: str | None = None,
    actor: Actor | None = None,
) -> None:
    data: dict[str, Any] = {"worker_id": worker_id}
    if order is not None:
        data["directive"] = order
    if actor is not None:
        data |= actor.told()
    publish([Fact(kind, data)], now=now, using=using)
