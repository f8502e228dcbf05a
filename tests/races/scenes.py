"""Where a race begins, what can be done there, and what it comes to."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_ojs import clock
from django_ojs.domain.envelope import from_call
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.domain.leases import Lease
from django_ojs.models import Attempt, Event, Job, LeaseBeat, Queue
from django_ojs.services import checkpoints, leases, operate, promote, queues, reap, settle
from django_ojs.services.enqueue import enqueue
from django_ojs.services.settle import Outcome, Report
from tests.services.support import fail, held, make, take
from tests.support import unjudged

TYPE = "test.job"
RETRY = {
    "max_attempts": 3,
    "initial_interval": "PT10S",
    "jitter": False,
    "on_exhaustion": "dead_letter",
}
_numbers = itertools.count()


@dataclass(slots=True)
class Scene:
    """One job at the beginning: ``lease`` is the current one, ``stale`` one that the server ended."""

    time: clock.FrozenClock
    job: JobRow
    lease: Lease | None = None
    stale: Lease | None = None

    def report(self, kind: Report, lease: Lease | None, *, read: bool = False) -> str:
        """The verdict on a report; with ``read`` the reporter has no record of the job."""
        assert lease is not None
        claimed = None if read or lease is self.stale else self.job
        failure = Failure("test.Error", "no") if kind is Report.FAIL else None
        (settled,) = settle.settle([Outcome(lease, kind, "1", failure, claimed)])
        return str(settled.verdict)

    def shown(self, lease: Lease | None) -> str:
        """The verdict on an ACK as it comes over HTTP."""
        assert lease is not None
        return str(settle.report(self.job.id, LeaseClaim(lease.lease_id), Report.ACK).verdict)

    def fetch(self) -> str:
        """How many jobs a claim got."""
        return f"{len(take(1, queues=[self.job.queue], worker='w2'))} claimed"

    def beat(self, lease: Lease | None) -> str:
        """Whether the lease still holds."""
        assert lease is not None
        return f"{len(leases.beat([lease]))} kept"

    def progress(self, lease: Lease | None) -> str:
        """The same, for a report of progress."""
        assert lease is not None
        return f"{len(leases.progress([leases.Progress(lease, 0.5)]))} kept"

    def save(self, lease: Lease | None) -> str:
        """Whether a checkpoint is taken."""
        assert lease is not None
        checkpoints.save(self.job.id, '{"n":1}', {}, LeaseClaim(lease.lease_id))
        return "saved"

    def again(self, meta: str) -> str:
        """The state of what is stored under the job's id after the same enqueue, or another.

        No two are of the same microsecond: only the one that stored the job may announce it.
        """
        now = self.time.time + timedelta(microseconds=next(_numbers))
        meant: dict[str, Any] = {"queue": self.job.queue, "meta": {"is": meta}, "id": self.job.id}
        (found,) = enqueue([from_call(TYPE, [0], now=now, **meant)], now=now)
        return str(found.state)


Operation = Callable[[Scene], object]
OPERATIONS: dict[str, Operation] = {
    "claim": Scene.fetch,
    "ack": lambda s: s.report(Report.ACK, s.lease),
    "ack, read": lambda s: s.report(Report.ACK, s.lease, read=True),
    "ack, shown": lambda s: s.shown(s.lease),
    "fail": lambda s: s.report(Report.FAIL, s.lease),
    "release": lambda s: s.report(Report.RELEASE, s.lease),
    "beat": lambda s: s.beat(s.lease),
    "progress": lambda s: s.progress(s.lease),
    "checkpoint": lambda s: s.save(s.lease),
    "stale ack": lambda s: s.report(Report.ACK, s.stale),
    "stale fail": lambda s: s.report(Report.FAIL, s.stale),
    "stale beat": lambda s: s.beat(s.stale),
    "cancel": lambda s: operate.cancel([s.job.id])[0].state,
    "extend": lambda s: operate.extend_timeout([s.job.id], 60_000)[0].job.state,
    "retry": lambda s: operate.retry_dead([s.job.id])[0].state,
    "reschedule": lambda s: operate.reschedule([s.job.id], s.time.time)[0].state,
    "discard": lambda s: operate.discard([s.job.id])[0].state,
    "purge": lambda s: f"{len(operate.purge([s.job.id]))} purged",
    "pause": lambda s: f"{len(queues.pause([s.job.queue]))} paused",
    "reap": lambda s: f"{sum(reap.reap().counts.values())} reaped",
    "promote": lambda s: f"{promote.promote()} promoted",
    "enqueue": lambda s: s.again("same"),
    "enqueue other": lambda s: s.again("other"),
}
PASSES_OVER = {"claim": "0 claimed", "reap": "0 reaped", "promote": "0 promoted"}
"""What passes over rows that another transaction holds, and what it says then."""


def _job(time: clock.FrozenClock, **options: Any) -> JobRow:
    options = {"retry": RETRY, "timeout": 20, "grace_period": 5, "heartbeat_timeout": 4, **options}
    return make(queue=f"race-{next(_numbers)}", **options)[0]


def _claimed(time: clock.FrozenClock, **options: Any) -> Scene:
    job = _job(time, **options)
    (job,) = take(queues=[job.queue])
    return Scene(time, job, held(job))


def available(time: clock.FrozenClock) -> Scene:
    """Waiting for a worker."""
    return Scene(time, _job(time))


def expired(time: clock.FrozenClock) -> Scene:
    """Waiting, its enqueue TTL over."""
    scene = Scene(time, _job(time, enqueue_ttl=10))
    time.advance(11)
    return scene


def due(time: clock.FrozenClock) -> Scene:
    """Retryable, its time come."""
    scene = _claimed(time)
    fail(scene.job)
    time.advance(11)
    return Scene(time, scene.job, stale=scene.lease)


def active(time: clock.FrozenClock) -> Scene:
    """Running, in time."""
    scene = _claimed(time)
    time.advance(1)
    return scene


def silent(time: clock.FrozenClock) -> Scene:
    """Running, its beats overdue."""
    scene = _claimed(time)
    time.advance(5)
    return scene


def overdue(time: clock.FrozenClock) -> Scene:
    """Running, past its timeout and grace period."""
    scene = _claimed(time)
    time.advance(23)
    leases.beat([held(scene.job)])
    time.advance(2)
    return scene


def last_attempt(time: clock.FrozenClock) -> Scene:
    """Running for the last time, its beats overdue."""
    scene = _claimed(time, retry={**RETRY, "max_attempts": 1})
    time.advance(5)
    return scene


def taken_over(time: clock.FrozenClock) -> Scene:
    """Stalled under one lease, running under the next."""
    scene = silent(time)
    reap.reap()
    time.advance(10)
    promote.promote()
    (job,) = take(queues=[scene.job.queue], worker="w2")
    time.advance(1)
    return Scene(time, job, held(job), scene.lease)


def dead(time: clock.FrozenClock) -> Scene:
    """In the dead letter after its last attempt stalled."""
    scene = last_attempt(time)
    reap.reap()
    return Scene(time, scene.job, stale=scene.lease)


def nothing(time: clock.FrozenClock) -> Scene:
    """Not enqueued yet."""
    job = _job(time)
    Event.objects.filter(job_id=job.id)._raw_delete("default")
    Job.objects.filter(pk=job.id)._raw_delete("default")
    return Scene(time, job)


REPORTS = ("ack", "ack, read", "ack, shown", "fail", "release", "beat", "progress", "checkpoint")
Start = Callable[[clock.FrozenClock], Scene]
SCENES: Mapping[Start, tuple[str, ...]] = {
    available: ("claim", "cancel", "discard", "pause", "reap"),
    expired: ("claim", "cancel", "pause", "reap"),
    due: ("promote", "claim", "cancel", "discard", "reschedule", "reap", "stale ack", "stale beat"),
    active: (*REPORTS, "cancel", "extend", "reap"),
    silent: (*REPORTS, "cancel", "extend", "reap"),
    overdue: ("ack", "ack, read", "fail", "beat", "cancel", "extend", "reap", "promote", "claim"),
    last_attempt: ("ack", "fail", "cancel", "reap", "retry", "purge"),
    taken_over: ("stale ack", "stale fail", "stale beat", "ack", "fail", "cancel", "extend", "reap"),
    dead: ("retry", "purge", "cancel", "stale ack", "stale fail", "claim"),
    nothing: ("enqueue", "enqueue other", "claim"),
}

MATTERS: Mapping[Start, set[str]] = {silent: {"reap"}, overdue: {"reap", "promote", "claim"}}
"""What these scenes are about; pairs of anything else are as in :func:`active`."""

_SHOWN = (
    "state",
    "attempt",
    "lease_seq",
    "worker_id",
    "dead_letter",
    "error",
    "result",
    "progress",
    "extended_ms",
    "scheduled_at",
    "deadline_at",
    "heartbeat_at",
    "finished_at",
    "checkpoint",
)


def comes_to(scene: Scene) -> str:
    """All that the race left behind, without what differs from run to run."""
    said = []
    aside = dict(LeaseBeat.objects.values_list("lease_id", "heartbeat_at"))
    for lease_id, *shown in Job.objects.filter(pk=scene.job.id).values_list("lease_id", *_SHOWN):
        kept = scene.lease is not None and lease_id == scene.lease.lease_id
        lease = "none" if lease_id is None else "the same" if kept else "a new one"
        if lease_id in aside:
            heard = _SHOWN.index("heartbeat_at")
            shown[heard] = max(shown[heard], aside[lease_id])
        told = ", ".join(f"{name}: {value}" for name, value in zip(_SHOWN, shown, strict=True))
        said.append(f"{told}, lease: {lease}")
    for attempt in Attempt.objects.filter(job_id=scene.job.id).order_by("lease_seq"):
        late = (attempt.late_report or {}).get("report")
        said.append(f"attempt {attempt.lease_seq}: {attempt.outcome}, late report: {late}")
    kinds = Counter(Event.objects.filter(job_id=scene.job.id).values_list("kind", flat=True))
    said.append(f"events: {sorted(kinds.items())}")
    said.append(f"paused: {Queue.objects.filter(name=scene.job.queue, paused=True).exists()}")
    return "\n".join(said)


def forget(scene: Scene) -> None:
    """Remove what the race left behind."""
    with unjudged():
        Attempt.objects.filter(job_id=scene.job.id)._raw_delete("default")
        Event.objects.all()._raw_delete("default")
        LeaseBeat.objects.filter(job_id=scene.job.id)._raw_delete("default")
        Job.objects.filter(pk=scene.job.id)._raw_delete("default")
        Queue.objects.filter(name=scene.job.queue)._raw_delete("default")
