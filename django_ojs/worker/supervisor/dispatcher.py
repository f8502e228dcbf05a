"""Claimed jobs on their way through the executors, from the claim to the report."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from functools import cache, lru_cache
from math import inf
from operator import attrgetter

from django_ojs import clock, conf
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import RenewedLease
from django_ojs.domain.timeouts import after, soft_deadline
from django_ojs.handlers import registry
from django_ojs.services import leases
from django_ojs.services.settle import Outcome, Report
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.leased import LeasedJob, LeaseTable
from django_ojs.worker.prefork.pool import Child, Phase, Pool, Replacement
from django_ojs.worker.supervisor import failures, partition
from django_ojs.worker.supervisor.calls import HandlerCalls
from django_ojs.worker.supervisor.deadlines import SILENT, DeadlineEnforcer, deadlines_of
from django_ojs.worker.supervisor.lost_places import LostPlaces
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


class Dispatcher:
    """Keeps every job that this worker holds a lease of. Runs in the supervisor's main thread."""

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
        self._lost_places = LostPlaces(database, using=using)
        self.leases: LeaseTable = {}
        self.waiting: deque[LeasedJob] = deque()
        self.estimate = PrefetchPolicy(conf.current().prefetch_ms / 1000)
        self.enforcer = DeadlineEnforcer(pool, database, self.leases, shutdown, self._lose, using=using)
        self._calls = HandlerCalls(pool, database, self.enforcer, using=using)
        self.last_done = 0.0
        self.claimed = 0
        self.finished = 0
        self.reported: Counter[Report] = Counter()

    # Claimed jobs come in.

    def take(self, jobs: Sequence[JobRow], at: Moment) -> None:
        """Take over claimed jobs; ``at`` is when their claim had committed.

        Deadlines are converted by it, and not by the start of the claim, which may have waited for a
        lock.
        """
        # Most jobs of one claim share their times.
        when, now = cache(at.of), clock.boottime()
        self.claimed += len(jobs)
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
            self.estimate.claimed(running.text_bytes)
            if partition.soft_at(running) <= now:
                # This process was suspended since it claimed the job: it may run elsewhere already.
                self._release(running)
            else:
                self.waiting.append(running)
        self.assign()

    def assign(self) -> None:
        """Give waiting jobs to executors: to idle ones first, then queue some behind running jobs."""
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
        """Whether jobs may be queued in this executor behind the running one."""
        if child.phase is not Phase.READY or child.recycle or self._shutdown.begun:
            return False
        if any(map(_is_limited, child.assigned)):
            # The limit of the process is this job's alone.
            return False
        if child.running is None:
            return bool(child.queued)
        return clock.boottime() - (child.running.began_at or 0) <= _STUCK_BEHIND

    def _has_room(self, child: Child, held: int, running: LeasedJob) -> bool:
        """Whether this job may be queued too, behind jobs with ``held`` bytes of text."""
        job = running.job
        if job.max_attempts <= 1 or _is_limited(running):
            return False
        queued = len(child.queued)
        if queued >= self.estimate.queue_depth(job.type):
            return False
        if queued and held + running.text_bytes > QUEUED_BYTES:
            return False
        # The type of the last job passed the same rule, but may have become slower since.
        last = child.queued[-1].job.type if queued else job.type
        return last == job.type or queued < self.estimate.queue_depth(last)

    def _give(self, child: Child, running: LeasedJob) -> None:
        child.queued.append(running)
        if _is_limited(running):
            self._pool.limit(child, partition.watched(running), wait=True)
        self._pool.send(child, _run_frame(running))

    # Frames come back.

    def on_frame(self, child: Child, frame: Frame) -> None:
        """Handle a frame; kill an executor that sends one which does not fit its jobs."""
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
            logger.error("an executor sent an unexpected message: %r (process %d)", op, child.pid)
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
        self._lift_limit(child, running)
        if running.lost:
            self._end_lost(running)
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
            self._calls.take(child, running, frame)

    def _done(self, child: Child, running: LeasedJob, frame: Frame) -> None:
        # Read before anything is changed: a malformed frame is handled as a crash of the executor.
        took, ok = float(frame["took"]), frame["ok"]
        if not 0 <= took < inf:
            raise ValueError("invalid duration")
        result = frame["result"] if ok else None
        reported = {} if ok else frame["failure"]
        reason = reported.get("stopped")
        failure = None
        if reason is not None:
            failure = failures.ended(running, reason, reported)
        elif not ok:
            failure = failures.reported(reported)
        now = clock.boottime()
        child.running = None
        child.jobs_done += 1
        self._lift_limit(child, running)
        self.estimate.add(running.job.type, took, now - max(running.received_at, child.done_at))
        child.done_at = now
        if not _is_limited(running):
            self.last_done = now
        if left := frame.get("left"):
            text = "a handler left behind: " + ", ".join(map(str, left))
            child.recycle = Replacement("left_behind", text)
        elif running.deadlines.stop_reason:
            child.recycle = Replacement("stopped", "a handler was asked to stop")
        self._flush_progress([running.lease])
        if running.lost and reason in (*SILENT, "total_timeout"):
            self._end_lost(running)
        else:
            report = Report.ACK if ok else Report.FAIL
            self._report(running, report, result=result, failure=failure)

    # Executors end.

    def on_gone(self, child: Child, status: int | None) -> None:
        """Nothing is left of this executor: report the job that ran, release the others."""
        for running in child.queued:
            if running.lost:
                self._end_lost(running)
            else:
                self._release(running)
        child.queued.clear()
        running_now, child.running = child.running, None
        if running_now is None:
            return
        self.last_done = clock.boottime()
        self._flush_progress([running_now.lease])
        self.enforcer.ended(running_now)
        failures.announce(running_now, status)
        reason = running_now.deadlines.kill_reason
        if running_now.lost:
            self._end_lost(running_now)
        elif reason is not None:
            self._report(running_now, Report.FAIL, failure=failures.ended(running_now, reason, {}))
        else:
            self._report(running_now, Report.FAIL, failure=failures.crash(status))

    # Clocks.

    def next_wait(self, now: float) -> float | None:
        """Seconds until :meth:`tick` has something to do; ``None`` if nothing is due."""
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
        """Do what is due: stops, recalls, releases, progress."""
        self._recall(now)
        if self._progress and now >= self._progress_due:
            self._flush_progress(list(self._progress))
            self._progress_due = now + _PROGRESS_EVERY
        self.enforcer.tick(now)

    def _recall(self, now: float) -> None:
        """Ask for jobs back that wait behind a long one; release jobs that cannot start soon."""
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

    # Leases are lost.

    def _lose(self, running: LeasedJob) -> None:
        """A job was cancelled, reaped or claimed elsewhere; the enforcer stops it if it runs."""
        about = {"job_id": str(running.job_id)}
        logger.info("lease lost: %s %s", running.job.type, running.job_id, extra=about)
        if running in self.waiting:
            self.waiting.remove(running)
            self._end_lost(running)
            return
        for child in self._pool:
            if running in child.queued and not running.asked_back:
                running.asked_back = True
                self._pool.send(child, messages.give_back(running.lease))
                self._pool.wake(child)

    # Shutdown.

    def give_back_unbegun(self) -> None:
        """The worker stops: release at once what has not begun."""
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
        self.reported[report] += 1
        self.finished += report in (Report.ACK, Report.FAIL)
        outcome = Outcome(running.held, report, result, failure, running.job)
        self._reports.append(Pending(outcome, running.deadlines.row + _KEEP_REPORT))

    def hand_over(self) -> None:
        """Give new reports to the database thread."""
        if self._reports:
            self._database.settle(self._reports)
            self._reports = []
        self._lost_places.hand_over()

    def _release(self, running: LeasedJob) -> None:
        self._report(running, Report.RELEASE)

    def _lift_limit(self, child: Child, running: LeasedJob) -> None:
        if _is_limited(running):
            self._pool.limit(child, None)

    def _end_lost(self, running: LeasedJob) -> None:
        self._drop(running)
        self._lost_places.add(running)

    def _drop(self, running: LeasedJob) -> None:
        self.leases.pop(running.lease, None)

    def _flush_progress(self, ids: Sequence[str]) -> None:
        if not self._progress:
            return
        updates = [self._progress.pop(lease) for lease in ids if lease in self._progress]
        if not updates:
            return

        def then(kept: list[RenewedLease] | None, error: Exception | None) -> None:
            held_up = {lease.lease_id for lease in kept or () if not lease.written}
            for update in updates:
                if update.lease.lease_id in held_up:
                    # A newer update replaces it.
                    self._progress.setdefault(update.lease.lease_id.hex, update)

        self._database.call(lambda: leases.progress(updates, wait=False, using=self._using), then)


def _is_limited(running: LeasedJob) -> bool:
    """Whether it stops on a partition, and its executor with it."""
    return running.deadlines.heard_at is not None


def _heads(queued: deque[LeasedJob], lease: object) -> bool:
    return bool(queued) and queued[0].lease == lease


def _run_frame(running: LeasedJob) -> str:
    """Make the frame that gives a job to an executor."""
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
    """The time of the soft stop; cached, since most jobs of one claim share it."""
    return after(started_at, ms).isoformat()
