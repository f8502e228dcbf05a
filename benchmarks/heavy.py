"""Requests about rows that hold much: what is stored for them, and what is asked.

For the figures of :mod:`benchmarks.web_memory` and for the tests that keep them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django_ojs import clock, conf
from django_ojs.api import enqueue
from django_ojs.domain.failures import Failure
from django_ojs.domain.ids import uuid7
from django_ojs.domain.leases import Lease
from django_ojs.models import Event, Job, JobSchema, Queue
from django_ojs.services import http_workers, stream, tokens
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report, settle

GOAL = 64 << 20
"""Bytes that a process may hold for one request, beyond its body."""
CLIENT = "heavy"
NOTE = 60_000
"""Characters of what may be large in the labels of a worker and in an event."""
_PART = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """One request below ``/ojs/v1``; ``body`` is a JSON value."""

    name: str
    method: str
    path: str
    body: Any = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A token with all scopes, and what is asked with it, in this order."""

    token: str
    asked: tuple[Asked, ...]


def store(rows: int, size: int) -> Stored:
    """Store ``rows`` of each kind, with ``size`` characters in what may be large, or 60,000 where no
    more is taken. The tables must be empty.
    """
    text = "x" * size
    token = tokens.create(CLIENT, scopes=tokens.SCOPES)[1]
    waiting, held = _jobs("waiting", rows, text), _claimed("held", rows, text, f"token:{CLIENT}")
    for part in _parts(_claimed("dead", rows, text, None)):
        settle([Outcome(lease, Report.FAIL, failure=Failure("test.Error", "no")) for lease in part])
    (done,) = _claimed("done", 1, text, None)
    settle([Outcome(done, Report.ACK, f'"{text}"')])
    small = min(size, NOTE)
    _others(rows, text, text[:small], done.job_id)
    # Whoever reads events first gives them their places.
    stream.settle(using=conf.current().database)
    return Stored(token, (*_lists(done.job_id), *_work(waiting, held)))


def _lists(done: UUID) -> tuple[Asked, ...]:
    return (
        Asked("list of jobs", "GET", "/jobs?limit=200"),
        Asked("list of jobs in a state", "GET", "/jobs?limit=200&state=active"),
        Asked("one job", "GET", f"/jobs/{done}"),
        Asked("result", "GET", f"/jobs/{done}/result"),
        Asked("dead letter", "GET", "/dead-letter?limit=200"),
        Asked("figures of the dead letter", "GET", "/dead-letter/stats"),
        Asked("events", "GET", "/events?limit=200"),
        Asked("events of a job", "GET", f"/events?limit=200&job_id={done}"),
        Asked("queues", "GET", "/queues?limit=200"),
        Asked("workers", "GET", "/workers?limit=200"),
        Asked("schemas", "GET", "/admin/schemas?limit=200"),
        Asked("figures of everything", "GET", "/admin/stats"),
    )


def _work(waiting: list[UUID], held: list[Lease]) -> tuple[Asked, ...]:
    foreign = {"worker_id": "w3", "active_jobs": [str(key) for key in waiting]}
    own = {"worker_id": "w1", "active_jobs": [str(lease.job_id) for lease in held]}
    forged = [{"job_id": str(key), "lease_id": str(uuid4())} for key in waiting[:100]]
    right = [{"job_id": str(one.job_id), "lease_id": str(one.lease_id)} for one in held[:100]]
    fetch = {"queues": ["waiting"], "count": 100, "worker_id": "w2"}
    return (
        Asked("beat for jobs of others", "POST", "/workers/heartbeat", foreign),
        Asked("beat", "POST", "/workers/heartbeat", own),
        Asked("batch of forged acks", "POST", "/workers/ack/batch", {"jobs": forged}),
        Asked("batch of acks", "POST", "/workers/ack/batch", {"jobs": right}),
        Asked("fetch", "POST", "/workers/fetch", fetch),
    )


def _jobs(queue: str, rows: int, text: str) -> list[UUID]:
    policy = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    return [enqueue("heavy.job", [text], queue=queue, retry=policy).id for _ in range(rows)]


def _claimed(queue: str, rows: int, text: str, principal: str | None) -> list[Lease]:
    _jobs(queue, rows, text)
    found: list[Lease] = []
    while got := claim(sources([queue]), limit=_PART, worker_id="w1", beats=True, principal=principal):
        found += [Lease(job.id, job.lease_id) for job in got if job.lease_id is not None]
    return found


def _parts(leases: list[Lease]) -> list[list[Lease]]:
    return [leases[start : start + _PART] for start in range(0, len(leases), _PART)]


def _others(rows: int, text: str, note: str, job_id: UUID) -> None:
    """Queues, workers and schemas, and what happened to one job."""
    now = clock.now("default")
    Queue.objects.bulk_create(Queue(name=f"q{n:03}", created_at=now) for n in range(rows))
    for n in range(rows):
        http_workers.seen(
            f"h{n:03}", f"token:{CLIENT}", beats=True, reported={"labels": {"note": note}}
        )
    job = Job.objects.only("type", "queue").get(pk=job_id)
    for n in range(rows):
        JobSchema.objects.create(type="heavy.job", version=n + 1, schema={"description": text})
        Event.objects.create(
            id=uuid7(int(now.timestamp() * 1000), n),
            kind="job.failed",
            created_at=now,
            job_id=job_id,
            job_type=job.type,
            queue=job.queue,
            data={"job_id": str(job_id), "note": note},
        )
