"""Claimed jobs on their way through the executors: assigned, begun, told to stop, killed, reported."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import cache, lru_cache
from math import inf
from operator import attrgetter

from django_ojs import clock, conf
from django_ojs.domain.errors import Conflict, LeaseLost
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import Actor, JobRecord
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import after, soft_deadline
from django_ojs.handlers import registry
from django_ojs.services import leases, operate
from django_ojs.services.operate import Extension
from django_ojs.services.settle import Outcome, Report
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.leased import LeasedJob, LeaseTable
from django_ojs.worker.prefork.pool import Child, Phase, Pool
from django_ojs.worker.supervisor import failures
from django_ojs.worker.supervisor.deadlines import SILENT, DeadlineEnforcer, deadlines_of
from django_ojs.worker.supervisor.prefetch import QUEUED_BYTES, PrefetchPolicy
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.fetcher import Moment
from django_ojs.worker.threads.outcomes import Pending

logger = logging.getLogger("django_ojs.worker")

_STUCK_BEHIND = 0.1
_UNSTARTED = 0.15
_TEXT_BYTES = attrgetter("text_bytes")
_PROGRESS_EVERY = 0.5
_KEEP_REPORT = 15.0
_WORKER = Actor("worker")


class Dispatcher:
    """Every job that this worker holds a lease of. Runs in the runner's main thread."""

    def __init__(
        self, pool: Pool, database: DatabaseThread, shutdown: Shutdown, *, using: str, worker_id: str
    ) -> None:
        self._pool = pool
        self._database = database
        self._shutdown = shutdown
        self._using = using
        self._worker_id = worker_id
        self._progress: dict[str, leases.Progress] = {}
        self._progress_due = 0.0
        self._reports: list[Pending] = []
        self.leases: LeaseTable = {}
        self.waiting: deque[LeasedJob] = deque()
        self.estimate = PrefetchPolicy(conf.current().prefetch_ms / 1000)
        self.enforcer = DeadlineEnforcer(pool, database, self.leases, shutdown, self._lose, using=using)
        self.last_done = 0.0
        self.finished = 0

    # Claimed jobs come in.

    def take(self, jobs: Sequence[JobRecord], at: Moment) -> None:
        """Jobs that were claimed; ``at`` is when their claim had committed.

        Their deadlines are converted with it, not counted from when the claim was begun: it may
        have waited for a lock.
        """
        # The jobs of one claim share their times mostly.
        when, now = cache(at.of), clock.boottime()
        for job in jobs:
            assert job.started_at is not None
            assert job.lease_id is not None
            running = LeasedJob(
                job,
                job.lease_id.hex,
                now,
                deadlines_of(job, when),
                job.text_bytes,
                seen_at=when(job.started_at),
            )
            self.leases[running.lease] = running
            self.waiting.append(running)
            self.estimate.claimed(running.text_bytes)
        self.assign()

    def assign(self) -> None:
        """Give waiting jobs to executors: to idle ones first, then a little ahead of time."""
        for child in self._pool:
            if not self.waiting:
                return
            if child.idle and child.recycle is None:
                self._give(child, self.waiting.popleft())
        for child in self._pool:
            if self.waiting and self._may_queue(child):
                held = sum(map(_TEXT_BYTES, child.queued))
                while self.waiting and self._has_room(child, held, self.waiting[0]):
                    held += self.waiting[0].text_bytes
                    self._give(child, self.waiting.popleft())

    def _may_queue(self, child: Child) -> bool:
        """Whether anything may wait in this executor, behind what it runs."""
        if child.phase is not Phase.READY or child.recycle or self._shutdown.begun:
            return False
        if child.running is None:
            return bool(child.queued)
        return clock.boottime() - (child.running.began_at or 0) <= _STUCK_BEHIND

    def _has_room(self, child: Child, held: int, running: LeasedJob) -> bool:
        """Whether this job may wait there too, behind those that hold so many bytes of text."""
        job = running.job
        if job.max_attempts <= 1:
            return False
        queued = len(child.queued)
        if queued >= self.estimate.queue_depth(job.type):
            return False
        if queued and held + running.text_bytes > QUEUED_BYTES:
            return False
        # What is queued already was let in by the same rule; its type may have slowed down since.
        last = child.queued[-1].job.type if queued else job.type
        return last == job.type or queued < self.estimate.queue_depth(last)

    def _give(self, child: Child, running: LeasedJob) -> None:
        child.queued.append(running)
        self._pool.send(child, _run_frame(running))

    # Frames come back.

    def on_frame(self, child: Child, frame: Frame) -> None:
        """A frame of an executor; one that does not fit what it holds ends that executor."""
        op, lease = frame.get("op"), frame.get("lease")
        if op == "ready":
            child.phase = Phase.READY if child.phase is Phase.STARTING else child.phase
        elif op == "begin" and child.running is None and _heads(child.queued, lease):
            self._begun(child)
        elif op == "returned" and any(job.lease == lease for job in child.queued):
            self._returned(child, str(lease))
        elif child.running is not None and child.running.lease == lease:
            self._about_running(child, child.running, str(op), frame)
        else:
            logger.error("an executor (process %d) sent an unexpected message: %r", child.pid, op)
            self._pool.kill(child)

    def _begun(self, child: Child) -> None:
        running = child.queued.popleft()
        child.running = running
        now = clock.boottime()
        running.began_at = running.seen_at = now
        self.enforcer.begun(running, now)

    def _returned(self, child: Child, lease: str) -> None:
        running = next(job for job in child.queued if job.lease == lease)
        child.queued.remove(running)
        if running.lost:
            self._drop(running)
        elif self._shutdown.begun:
            self._release(running)
        else:
            self.waiting.appendleft(running)

    def _about_running(self, child: Child, running: LeasedJob, op: str, frame: Frame) -> None:
        running.seen_at = clock.boottime()
        if op == "done":
            self._done(child, running, frame)
        elif op == "progress":
            self._progress[running.lease] = leases.Progress(
                running.held, frame["fraction"], frame["message"], frame["data"], running.job
            )
        elif op == "call":
            self._call(child, running, frame)

    def _done(self, child: Child, running: LeasedJob, frame: Frame) -> None:
        # Read before anything is changed: a malformed frame is handled as a crash of the executor.
        took, ok = float(frame["took"]), frame["ok"]
        if not 0 <= took < inf:
            raise ValueError("no duration")
        result = frame["result"] if ok else None
        reported = {} if ok else frame["failure"]
        reason = reported.get("stopped")
        failure = None
        if reason is not None:
            failure = failures.stopped(reason, reported)
        elif not ok:
            failure = failures.reported(reported)
        now = clock.boottime()
        child.running = None
        child.jobs_done += 1
        self.estimate.add(running.job.type, took, now - max(running.received_at, child.done_at))
        self.last_done = child.done_at = now
        if left := frame.get("left"):
            child.recycle = "a handler left behind: " + ", ".join(map(str, left))
        elif running.deadlines.stop_reason:
            child.recycle = "a handler was told to stop"
        self._flush_progress([running.lease])
        if reason in SILENT or (reason == "total_timeout" and running.lost):
            self._drop(running)
        else:
            report = Report.ACK if ok else Report.FAIL
            self._report(running, report, result=result, failure=failure)

    def _call(self, child: Child, running: LeasedJob, frame: Frame) -> None:
        held, number = running.held, frame["number"]

        def answer(value: object, error: Exception | None) -> None:
            reply = messages.reply(number, value)
            if error is not None:
                kind = "lost" if isinstance(error, LeaseLost) else "trouble"
                kind = "conflict" if type(error) is Conflict else kind
                reply = messages.refusal(number, kind, str(error))
            if child.running is running:
                self._pool.send(child, reply)

        if frame["verb"] == "checkpoint":

            def save() -> None:
                if not leases.checkpoint(held, frame["state"], using=self._using):
                    raise LeaseLost("the lease was lost")

            self._database.call(save, answer)
        elif frame["verb"] == "extend":

            def extend() -> Extension:
                return operate.extend_timeout(
                    [held.job_id], frame["by_ms"], lease=held, actor=_WORKER, using=self._using
                )[0]

            def extended(made: Extension | None, error: Exception | None) -> None:
                soft = None
                if made is not None:
                    self.enforcer.apply_deadline(running, made.deadline_at, made.job.extended_ms)
                    soft = made.soft_deadline_at.isoformat()
                answer(soft, error)

            self._database.call(extend, extended)

    # Executors end.

    def on_gone(self, child: Child, status: int | None) -> None:
        """Nothing is left of this executor: report what it was running, release what it was not."""
        for running in child.queued:
            if running.lost:
                self._drop(running)
            else:
                self._release(running)
        child.queued.clear()
        running_now, child.running = child.running, None
        if running_now is None:
            return
        self.last_done = clock.boottime()
        self._flush_progress([running_now.lease])
        reason = running_now.deadlines.kill_reason
        if running_now.lost or reason in SILENT:
            self._drop(running_now)
        elif reason is not None:
            self._report(running_now, Report.FAIL, failure=failures.stopped(reason, {}))
        else:
            self._report(running_now, Report.FAIL, failure=failures.crash(status))

    # Clocks.

    def next_wait(self, now: float) -> float | None:
        """Seconds until one of the clocks here needs a look, ``None`` if none does."""
        moments = self.enforcer.moments()
        if self._progress:
            moments.append(self._progress_due)
        if self.waiting:
            moments.append(self.waiting[0].received_at + _UNSTARTED)
        moments += [
            (child.running.began_at or 0) + _STUCK_BEHIND
            for child in self._pool
            if child.running is not None and any(not job.asked_back for job in child.queued)
        ]
        return max(0.0, min(moments) - now) if moments else None

    def tick(self, now: float) -> None:
        """Do what is due: signals and kills, recalls, releases, progress."""
        self._recall(now)
        if self._progress and now >= self._progress_due:
            self._flush_progress(list(self._progress))
            self._progress_due = now + _PROGRESS_EVERY
        self.enforcer.tick(now)

    def _recall(self, now: float) -> None:
        """Take back what waits behind a job that turned out to be long, and what cannot start."""
        for child in self._pool:
            running = child.running
            if child.queued and running and now - (running.began_at or now) > _STUCK_BEHIND:
                self._ask_back(child)
        while self.waiting and now - self.waiting[0].received_at > _UNSTARTED:
            self._release(self.waiting.popleft())

    def _ask_back(self, child: Child) -> None:
        asked = False
        for job in child.queued:
            if not job.asked_back:
                job.asked_back = asked = True
                self._pool.send(child, messages.give_back(job.lease))
        if asked:
            self._pool.wake(child)

    # The server took a job away.

    def _lose(self, running: LeasedJob) -> None:
        """Cancelled, reaped, or claimed by another worker.

        What runs is stopped by the enforcer, which asks why.
        """
        logger.info("%s %s is taken away", running.job.type, running.job_id)
        if running in self.waiting:
            self.waiting.remove(running)
            self._drop(running)
            return
        for child in self._pool:
            if running in child.queued and not running.asked_back:
                running.asked_back = True
                self._pool.send(child, messages.give_back(running.lease))
                self._pool.wake(child)

    # Shutdown.

    def give_back_unbegun(self) -> None:
        """The worker stops: what has not begun goes back at once."""
        while self.waiting:
            self._release(self.waiting.popleft())
        for child in self._pool:
            self._ask_back(child)

    # Reports.

    def _report(
        self,
        running: LeasedJob,
        report: Report,
        *,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> None:
        self._drop(running)
        self.finished += report in (Report.ACK, Report.FAIL)
        outcome = Outcome(running.held, report, result, failure, running.job)
        self._reports.append(Pending(outcome, running.deadlines.row + _KEEP_REPORT))

    def hand_over(self) -> None:
        """Give the database thread what was reported since the last time."""
        if self._reports:
            self._database.settle(self._reports)
            self._reports = []

    def _release(self, running: LeasedJob) -> None:
        self._report(running, Report.RELEASE)

    def _drop(self, running: LeasedJob) -> None:
        self.leases.pop(running.lease, None)

    def _flush_progress(self, ids: Sequence[str]) -> None:
        if not self._progress:
            return
        told = [self._progress.pop(lease) for lease in ids if lease in self._progress]
        if not told:
            return

        def then(kept: list[RenewedLease] | None, error: Exception | None) -> None:
            held_up = {lease.lease_id for lease in kept or () if not lease.written}
            for report in told:
                if report.lease.lease_id in held_up:
                    # Unless there is news since.
                    self._progress.setdefault(report.lease.lease_id.hex, report)

        self._database.call(lambda: leases.progress(told, wait=False, using=self._using), then)


def _heads(queued: deque[LeasedJob], lease: object) -> bool:
    return bool(queued) and queued[0].lease == lease


def _run_frame(running: LeasedJob) -> str:
    """The frame for an executor, made around the JSON texts as they are stored."""
    job = running.job
    assert job.started_at is not None
    soft = _soft(job.started_at, job.timeout_ms + job.extended_ms)
    if job.total_timeout_ms is not None:
        within = soft_deadline(job)
        assert within is not None
        soft = within.isoformat()
    handler = registry.handler_of(job.type)
    running.manual = handler is not None and handler.heartbeat == "manual"
    running.asked_back = False
    return messages.run(job, running.lease, deadline=soft)


@lru_cache(maxsize=256)
def _soft(started_at: datetime, ms: int) -> str:
    """When the handler is to be told to stop; the jobs of one claim share it mostly."""
    return after(started_at, ms).isoformat()
