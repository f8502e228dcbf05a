"""Workers over HTTP: recorded by what they send, since nothing else is known of them.

Their rows are those of ``services.workers``. A request creates the row, a heartbeat or a report keeps
it alive, and a credential may have only so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import IntegrityError
from django.db.models import Exists, F, OuterRef, Q

from django_ojs import clock, conf
from django_ojs.domain.errors import RateLimited
from django_ojs.domain.events import Kind
from django_ojs.domain.states import State
from django_ojs.models import Job, Worker
from django_ojs.services import deploys
from django_ojs.services.workers import STALE, announce, named
from django_ojs.store import known_rows, selectors
from django_ojs.store.contention import atomically, in_transaction

_SEEN_EVERY = timedelta(seconds=1)
"""How often signs of life are written; reports without a lease are judged with this precision."""
_RUNNING = (Worker.Phase.RUNNING, Worker.Phase.STOPPED)


def known_row(worker_id: str, principal: str | None, *, using: str) -> Worker | None:
    """The row of a worker as it is now, ``None`` if there is none."""
    return known_rows.WORKER.read(principal or "", worker_id, using=using)


def seen(
    worker_id: str,
    principal: str | None,
    *,
    beats: bool,
    reported: Mapping[str, Any] | None = None,
    using: str = "",
) -> Worker:
    """Record a request of a worker, and return its row, created if new (OJS worker protocol 3).

    ``reported`` are columns that the worker reported (``phase``, ``running``, ``hostname`` ...).
    ``beats`` is true for a heartbeat or a registration, which arms the default heartbeat timeout
    of the jobs that it claims from then on (decision T4). Raises :class:`RateLimited` for a new one
    beyond ``OJS["HTTP"]["MAX_WORKERS"]``.
    """
    using = using or conf.current().database
    # A heartbeat is written anyway, but a worker fetches many times a second.
    known = None if beats else known_row(worker_id, principal, using=using)
    if known is not None and _says_nothing_new(known, beats, reported or {}, clock.now(using)):
        return known
    record = partial(_seen, worker_id, principal, beats, reported or {})
    try:
        return record(is_new=known is None and not beats, using=using)
    except IntegrityError:
        # Another request has inserted the row meanwhile.
        return record(using=using)


@in_transaction
def _seen(
    worker_id: str,
    principal: str | None,
    beats: bool,
    reported: Mapping[str, Any],
    *,
    is_new: bool = False,
    using: str = "",
) -> Worker:
    # Locked, since the whole row is written: a directive must not be overwritten.
    rows = named(worker_id, principal, using=using).select_for_update()
    worker = None if is_new else rows.first()
    now = clock.now(using)
    if worker is None:
        if principal:
            _make_room(principal, now, using)
        # Set explicitly: ``db_default`` has no value before the insert.
        worker = Worker(name=worker_id, principal=principal or "", beats=False)
        _begin(worker, now)
        _take(worker, beats, reported, now)
        deploys.notice(worker, now, using=using)
        worker.save(using=using, force_insert=True)
        announce(Kind.WORKER_STARTED, worker, now, using)
        return worker
    quiet_before, begins = worker.phase not in _RUNNING, False
    if worker.phase == Worker.Phase.STOPPED or now - worker.heartbeat_at > STALE:
        # Another process under the same name: a directive for the last one does not apply.
        begins = True
        _begin(worker, now)
    elif _says_nothing_new(worker, beats, reported, now):
        return worker
    _take(worker, beats, reported, now)
    if begins:
        announce(Kind.WORKER_STARTED, worker, now, using)
        deploys.notice(worker, now, using=using)
    if worker.phase not in _RUNNING and not quiet_before:
        announce(Kind.WORKER_QUIET, worker, now, using)
    worker.save(using=using, force_update=True)
    return worker


def _says_nothing_new(worker: Worker, beats: bool, reported: Mapping[str, Any], now: datetime) -> bool:
    """Whether this was recorded less than a second ago, of a worker that has not stopped."""
    return (
        worker.phase != Worker.Phase.STOPPED
        and worker.beats >= beats
        and timedelta(0) <= now - worker.heartbeat_at < _SEEN_EVERY
        and all(getattr(worker, column) == value for column, value in reported.items())
    )


def _make_room(principal: str, now: datetime, using: str) -> None:
    """Forget the gone workers of a credential that are one too many with a new one; those that live
    may not be more than ``OJS["HTTP"]["MAX_WORKERS"]``.
    """
    most = conf.current().http.max_workers
    mine = Worker.objects.using(using).filter(principal=principal)
    over = mine.count() - most + 1
    if over <= 0:
        return
    gone = mine.filter(Q(phase=Worker.Phase.STOPPED) | Q(heartbeat_at__lt=now - STALE))
    oldest = list(gone.order_by("heartbeat_at").values_list("pk", flat=True)[:over])
    if len(oldest) < over:
        raise RateLimited(
            f"More than {most} live workers with this credential (OJS['HTTP']['MAX_WORKERS']).",
            retry_after=int(STALE.total_seconds()),
            limit=most,
            field="worker_id",
        )
    gone.filter(pk__in=oldest).delete()


def _begin(worker: Worker, now: datetime) -> None:
    worker.incarnation = clock.new_id()
    worker.phase = Worker.Phase.RUNNING
    worker.directive = None
    worker.running = 0
    worker.started_at = now


def _take(worker: Worker, beats: bool, reported: Mapping[str, Any], now: datetime) -> None:
    worker.beats = worker.beats or beats
    worker.heartbeat_at = now
    for column, value in reported.items():
        setattr(worker, column, value)


def heard(worker_id: str, principal: str | None, *, using: str | None = None) -> None:
    """Record a report that names its worker as a sign of life; unknown workers are ignored.

    Never waits for a lock: a lost sign of life is followed by the next one.
    """
    using = using or conf.current().database
    now = clock.now(using)
    mine = named(worker_id, principal, using=using).exclude(phase=Worker.Phase.STOPPED)
    mine = mine.filter(heartbeat_at__lte=now - _SEEN_EVERY)
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
    known = Worker.objects.using(using).filter(name__in=list(names), principal=principal or "")
    running = known.exclude(phase=Worker.Phase.STOPPED)
    return dict(running.values_list("name", "heartbeat_at"))


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
    """Whether the worker may fetch: it is running, and not directed to stop."""
    return worker.phase == Worker.Phase.RUNNING and worker.directive is None


class Silent(NamedTuple):
    """A worker without heartbeats, ``None`` if it has no name, and how many of its jobs will stall."""

    worker_id: str | None
    client: str
    jobs: int


def silent(*, now: datetime, using: str, most: int = 1000) -> list[Silent]:
    """HTTP workers that send no heartbeats and hold jobs which a heartbeat timeout will end.

    A worker is silent if it never sent a heartbeat and a quarter of the explicit ``heartbeat_timeout``
    of a job that it fetched has passed: four per timeout are recommended (OJS timeouts 5.5).
    """
    same = {"name": OuterRef("worker_id"), "principal": OuterRef("lease_principal")}
    held = (
        selectors.in_state(Job.objects.using(using), State.ACTIVE)
        .filter(
            ~Exists(Worker.objects.using(using).filter(beats=True, **same)),
            heartbeat_explicit=True,
            heartbeat_at=F("started_at"),
            lease_principal__isnull=False,
        )
        .values_list("worker_id", "lease_principal", "heartbeat_at", "heartbeat_timeout_ms")
    )
    found = Counter[tuple[str | None, str]]()
    for worker_id, client, heard_at, timeout_ms in held[:most]:
        if heard_at is not None and now - heard_at > timedelta(milliseconds=timeout_ms / 4):
            found[worker_id, client or ""] += 1
    return [Silent(*whose, jobs) for whose, jobs in found.items()]
