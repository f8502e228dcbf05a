"""What the screens show of queues: depth, the last hour, who serves them, and which is worst off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.models import MinuteStat, Worker
from django_ojs.services import bulk, rollup, stats_queries
from django_ojs.services.workers import STALE
from django_ojs.store import selectors
from django_ojs.store.selectors import QueueDepth

MOST_WORKERS = 1000
MINUTES = 60
LONG_WAIT = timedelta(minutes=1)
"""Beyond it a queue is behind: its jobs wait although somebody serves them."""


@dataclass(frozen=True, slots=True)
class Hour:
    """Completed and failed attempts in each of the last 60 minutes of the roll-up."""

    completed: list[int] = field(default_factory=lambda: [0] * MINUTES)
    failed: list[int] = field(default_factory=lambda: [0] * MINUTES)


class Service(NamedTuple):
    """The workers that serve a queue: the best state among them, ``live``, ``quiet`` or ``none``, and
    how many of their slots are busy, of those that told how many they have.
    """

    state: str
    workers: int = 0
    busy: int = 0
    slots: int = 0

    @property
    def utilisation(self) -> float:
        """The busy part of the slots, 0 where there are none."""
        return self.busy / self.slots if self.slots else 0


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """What the board shows of a queue."""

    depth: QueueDepth
    hour: Hour
    service: Service
    now: datetime

    @property
    def waiting(self) -> int:
        """Its available jobs, up to the cap."""
        return self.depth.counts[State.AVAILABLE]

    @property
    def waited(self) -> timedelta:
        """How long the oldest of them has waited."""
        oldest = self.depth.oldest
        return timedelta(0) if oldest is None else max(self.now - oldest, timedelta(0))

    def trouble(self, paused: bool) -> int:
        """How bad it is: 3 for jobs that nobody will take, 2 for jobs behind a pause, 1 for a queue
        that is behind or of which half fails, else 0.
        """
        if self.waiting and not paused and self.service.state != "live":
            return 3
        if self.waiting and paused:
            return 2
        failed, completed = sum(self.hour.failed), sum(self.hour.completed)
        return int(self.waited > LONG_WAIT or (failed > 0 and failed >= completed))

    def rank(self, name: str, paused: bool) -> tuple[Any, ...]:
        """The place on the board: the worst first."""
        return (
            -self.trouble(paused),
            -self.waited,
            -self.waiting,
            -sum(self.hour.failed),
            -sum(self.hour.completed),
            name,
        )


def live_workers(now: datetime, using: str) -> list[Any]:
    """The workers with a recent heartbeat that have not stopped, the latest heartbeat first."""
    rows = Worker.objects.using(using).filter(heartbeat_at__gt=now - STALE)
    rows = rows.exclude(phase=Worker.Phase.STOPPED)
    columns = ("name", "queues", "types", "phase", "directive", "principal", "running", "concurrency")
    return list(rows.only("id", *columns).order_by("-heartbeat_at")[:MOST_WORKERS])


def serving(name: str, workers: Sequence[Any]) -> list[Any]:
    """The workers that take jobs of a queue: those that name it, and those that name none."""
    return [worker for worker in workers if not worker.queues or name in worker.queues]


def takes_bulk_work(workers: Sequence[Any]) -> bool:
    """Whether a worker takes the bulk jobs of the admin; workers over HTTP never do."""
    return any(_claims(worker) and bulk.TYPE in worker.types for worker in serving(bulk.QUEUE, workers))


def _claims(worker: Any) -> bool:
    return bool(worker.phase == Worker.Phase.RUNNING and worker.directive is None)


def service_of(workers: Sequence[Any]) -> Service:
    """What these workers are to a queue."""
    if not workers:
        return Service("none")
    counted = [worker for worker in workers if worker.concurrency is not None]
    return Service(
        "live" if any(map(_claims, workers)) else "quiet",
        len(workers),
        sum(worker.running for worker in counted),
        sum(worker.concurrency for worker in counted),
    )


def last_hour(names: Sequence[str], until: datetime, using: str) -> dict[str, Hour]:
    """The roll-up of several queues by minute, in one statement."""
    since = until - timedelta(minutes=MINUTES)
    found = {name: Hour() for name in names}
    rows = MinuteStat.objects.using(using).filter(step=60, at__gte=since, at__lt=until)
    columns = ("queue", "at", "completed", "failed")
    for name, at, completed, failed in rows.filter(queue__in=names).values_list(*columns):
        place = (at - since) // rollup.MINUTE
        found[name].completed[place] += completed
        found[name].failed[place] += failed
    return found


def overviews(names: Sequence[str], *, using: str) -> dict[str, QueueOverview]:
    """What the board shows of queues, in four statements for any number of them."""
    if not names:
        return {}
    now = clock.now(using)
    depths = selectors.depths(names, using=using)
    hours = last_hour(names, stats_queries.watermark(now=now, using=using), using)
    workers = live_workers(now, using)
    everywhere, anywhere = _by_queue(workers)
    return {
        name: QueueOverview(
            depths[name], hours[name], service_of([*everywhere, *anywhere.get(name, ())]), now
        )
        for name in names
    }


def _by_queue(workers: Iterable[Any]) -> tuple[list[Any], dict[str, list[Any]]]:
    """The workers that serve all queues, and the others by the queues that they name."""
    everywhere: list[Any] = []
    named: dict[str, list[Any]] = {}
    for worker in workers:
        if not worker.queues:
            everywhere.append(worker)
        for name in dict.fromkeys(map(str, worker.queues)):
            named.setdefault(name, []).append(worker)
    return everywhere, named
