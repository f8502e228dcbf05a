"""Claimed jobs on their way through the executors, from the claim to the report."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from math import inf

from django_ojs import clock
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.services import leases
from django_ojs.services.job_defaults import stops_on_partition
from django_ojs.services.settle import Outcome, Report
from django_ojs.worker.prefork.child import Child, Phase, Replacement, Slot
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.leased import LeasedJob, LeaseTable
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.supervisor import failures, partition
from django_ojs.worker.supervisor.assignment import Assignment
from django_ojs.worker.supervisor.attempt_logs import AttemptLogs
from django_ojs.worker.supervisor.calls import HandlerCalls
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.supervisor.deadlines import SILENT, DeadlineEnforcer, deadlines_of
from django_ojs.worker.supervisor.lost_places import LostPlaces
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.supervisor.shutdown import Shutdown
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.fetcher import Moment
from django_ojs.worker.threads.outcomes import Pending

logger = logging.getLogger("django_ojs.worker")

_KEEP_REPORT = 15.0
_GATHER = 0.02
"""Seconds for which reports are gathered while the executors have ample work."""
_GATHERED = 400
_MAY_BE_LATE = ("heartbeat", "progress", "blocked")
"""What a thread sends that has outlived its job, in an executor where others go on."""


class Dispatcher:
    """Keeps every job that this worker holds a lease of. Runs in the supervisor's main thread."""

    def __init__(
        self,
        pool: Pool,
        database: DatabaseThread,
        shutdown: Shutdown,
        shared: SharedTypes,
        config: Config,
    ) -> None:
        self._pool = pool
        self._database = database
        self._shutdown = shutdown
        self._using = using = config.using
        self._reports: list[Pending] = []
        self._gathers_until = 0.0
        self._lost_places = LostPlaces(database, using=using)
        self.logs = AttemptLogs(using)
        self.leases: LeaseTable = {}
        self._shared = shared
        self.assignment = Assignment(pool, shutdown, shared, self._release, config.heartbeat)
        self.enforcer = DeadlineEnforcer(pool, database, self.leases, shutdown, self._lose, using=using)
        self._calls = HandlerCalls(pool, database, self.enforcer, using=using)
        self.last_done = 0.0
        self.claimed = 0
        self.finished = 0
        self.ended = 0
        """Handlers that have ended, whatever became of their jobs."""
        self.blocked = 0.0
        """Seconds for which coroutines held up others in their loop."""
        self.reported: Counter[Report] = Counter()

    # Claimed jobs come in.

    def take(self, jobs: Sequence[JobRow], at: Moment) -> None:
        """Take over claimed jobs; ``at`` is when their claim had committed.

        Deadlines are converted by it, and not by the start of the claim, which may have waited for a
        lock.
        """
        # Most jobs of one claim share their times.
        when, stops, now = cache(at.of), cache(stops_on_partition), clock.boottime()
        self.claimed += len(jobs)
        sizes = [job.text_bytes for job in jobs]
        self.assignment.estimate.claimed(sizes)
        for job, size in zip(jobs, sizes, strict=True):
            assert job.started_at is not None
            assert job.lease_id is not None
            running = LeasedJob(
                job,
                job.lease_id.hex,
                now,
                deadlines_of(job, when, stops(job.type, job.queue)),
                size,
                seen_at=when(job.started_at),
            )
            self.leases[running.lease] = running
            if partition.is_watched(running) and partition.soft_at(running) <= now:
                # This process was suspended since it claimed the job: it may run elsewhere already.
                self._release(running)
            else:
                self.assignment.waiting.append(running)
        self.assign()

    def assign(self) -> None:
        """Give waiting jobs to executors."""
        self.assignment.assign()

    # Frames come back.

    def on_frame(self, child: Child, frame: Frame) -> None:
        """Handle a frame; kill an executor that sends one which does not fit its jobs."""
        op, lease = frame.get("op"), frame.get("lease")
        slot = child.slots[0] if child.size == 1 else child.slot_of(lease)
        running = None if slot is None else slot.running
        if op == "ready":
            child.phase = Phase.READY if child.phase is Phase.STARTING else child.phase
            self._pool.started()
        elif op == "log":
            # No sign of life, and it may be late: a thread that a handler has left may still log.
            if running is not None and running.lease == lease:
                self.logs.take(running, frame)
        elif slot is None:
            if op not in _MAY_BE_LATE:
                self._unexpected(child, op)
        elif running is not None and running.lease == lease:
            self._about_running(slot, running, str(op), frame, clock.boottime())
        elif op == "begin" and running is None and _heads(slot.queued, lease):
            self._begun(slot, clock.boottime())
        elif op == "returned" and any(job.lease == lease for job in slot.queued):
            self._returned(slot, str(lease))
        else:
            self._unexpected(child, op)

    def _unexpected(self, child: Child, op: object) -> None:
        logger.error("an executor sent an unexpected message: %r (process %d)", op, child.pid)
        self._pool.kill(child)

    def _begun(self, slot: Slot, now: float) -> None:
        running = slot.queued.popleft()
        slot.running = running
        running.began_at = running.seen_at = now
        self.enforcer.begun(running, now)

    def _returned(self, slot: Slot, lease: str) -> None:
        running = next(job for job in slot.queued if job.lease == lease)
        slot.queued.remove(running)
        if partition.is_watched(running):
            self._lift_limit(slot.child)
        if running.lost:
            self._end_lost(running)
        elif self._shutdown.begun:
            self._release(running)
        else:
            self.assignment.waiting.appendleft(running)

    def _about_running(self, slot: Slot, running: LeasedJob, op: str, frame: Frame, now: float) -> None:
        running.seen_at = now
        if op == "done":
            self._done(slot, running, frame, now)
            if (following := frame.get("next")) is None:
                return
            if _heads(slot.queued, following):
                self._begun(slot, now)
            else:
                self._unexpected(slot.child, op)
        elif op == "progress":
            fraction, message = float(frame["fraction"]), _text(frame["message"])
            data = _text_or_none(frame["data"])
            self._database.progress(leases.Progress(running.held, fraction, message, data, running.job))
        elif op == "call":
            self._calls.take(slot, running, frame)
        elif op == "blocked":
            self._blocked(slot.child, running, float(frame["seconds"]))

    def _blocked(self, child: Child, running: LeasedJob, seconds: float) -> None:
        """A coroutine holds up its loop: those that come now get another executor."""
        self.blocked += seconds
        if child.recycle is None:
            text = f"{running.job.type} has held up the event loop for {seconds:.1f} s"
            logger.warning("%s: %s", text, running.job_id, extra={"job_id": str(running.job_id)})
            child.recycle = Replacement("blocked", text)

    def _done(self, slot: Slot, running: LeasedJob, frame: Frame, now: float) -> None:
        # Read before anything is changed: a malformed frame is handled as a crash of the executor.
        took, ok = float(frame["took"]), frame["ok"]
        if not 0 <= took < inf:
            raise ValueError("invalid duration")
        left = ", ".join(map(str, frame.get("left", ())))
        result = _text_or_none(frame.get("result")) if ok else None
        reported = {} if ok else frame["failure"]
        reason = reported.get("stopped")
        failure = None
        if reason is not None:
            failure = failures.ended(running, reason, reported)
        elif not ok:
            failure = failures.reported(reported)
        child, watched = slot.child, partition.is_watched(running)
        slot.running = None
        child.jobs_done += 1
        self.ended += 1
        if watched:
            self._lift_limit(child)
        if not child.is_shared:
            self.assignment.estimate.add(
                running.job.type, took, now - max(running.received_at, slot.done_at)
            )
        slot.done_at = now
        if not watched:
            self.last_done = now
        if left:
            child.recycle = Replacement("left_behind", f"a handler left behind: {left}")
        elif running.deadlines.stop_reason and not child.is_shared:
            child.recycle = Replacement("stopped", "a handler was asked to stop")
        elif ok and running.job.type in self._shared.suspects and not child.is_shared:
            self._shared.cleared(running.job.type)
        if running.lost and reason in (*SILENT, "total_timeout"):
            self._end_lost(running)
        else:
            report = Report.ACK if ok else Report.FAIL
            self._report(running, report, result=result, failure=failure)

    # Executors end.

    def on_gone(self, child: Child, status: int | None) -> None:
        """Nothing is left of this executor: report the jobs that ran, release the others."""
        ended = []
        for slot in child.slots:
            for leased in slot.queued:
                self._end_lost(leased) if leased.lost else self._release(leased)
            slot.queued.clear()
            if slot.running is not None:
                ended.append(slot.running)
            slot.running = None
        if not ended:
            return
        self.last_done = clock.boottime()
        for leased in ended:
            self.enforcer.ended(leased)
        for leased in ended:
            if len(ended) == 1 or leased.deadlines.kill_reason is not None:
                self._report_ended(leased, status)
            elif leased.lost:
                self._end_lost(leased)
            else:
                self._release(leased)
        if child.is_shared:
            self._isolate_guilty(ended, status)

    def _report_ended(self, leased: LeasedJob, status: int | None) -> None:
        failures.announce(leased, status)
        reason = leased.deadlines.kill_reason
        if leased.lost:
            self._end_lost(leased)
        elif reason is not None:
            self._report(leased, Report.FAIL, failure=failures.ended(leased, reason, {}))
        else:
            self._report(leased, Report.FAIL, failure=failures.crash(status))

    def _isolate_guilty(self, ended: Sequence[LeasedJob], status: int | None) -> None:
        """What has cost a shared executor must not do so again; after a crash it may be any of them."""
        if self._shutdown.begun:
            return
        killed = [leased for leased in ended if leased.deadlines.kill_reason is not None]
        for leased in killed:
            self._shared.isolate(leased.job.type, "a handler did not stop")
        if len(ended) == 1 and not killed:
            self._shared.isolate(ended[0].job.type, failures.crash(status).message)
        elif not killed:
            self._shared.suspect(leased.job.type for leased in ended)

    # Clocks.

    def next_wait(self, now: float) -> float | None:
        """Seconds until :meth:`tick` has something to do; ``None`` if nothing is due."""
        moments = self.enforcer.moments() + self.assignment.moments()
        if self._reports:
            moments.append(self._gathers_until)
        return max(0.0, min(moments) - now) if moments else None

    def tick(self, now: float) -> None:
        """Do what is due: stops, recalls, releases."""
        self.assignment.recall(now)
        self.enforcer.tick(now)
        self.logs.tick(now, self.leases)

    # Leases are lost.

    def _lose(self, running: LeasedJob) -> None:
        """A job was cancelled, reaped or claimed elsewhere; the enforcer stops it if it runs."""
        about = {"job_id": str(running.job_id)}
        logger.info("lease lost: %s %s", running.job.type, running.job_id, extra=about)
        if self.assignment.recall_one(running):
            self._end_lost(running)

    # Shutdown.

    def give_back_unbegun(self) -> None:
        """The worker stops: release at once what has not begun."""
        self.assignment.recall_all()

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
        """Give new reports to the database thread; gather them for a while if none waits for room."""
        now = clock.boottime()
        full = len(self._reports) >= _GATHERED or now >= self._gathers_until
        if self._reports and (full or not self.assignment.is_ample()):
            self._database.settle(self._reports)
            self._reports = []
            self._gathers_until = now + _GATHER
        self._lost_places.hand_over()

    def _release(self, running: LeasedJob) -> None:
        self._report(running, Report.RELEASE)

    def _lift_limit(self, child: Child) -> None:
        self._pool.limit(child, partition.watched(child.assigned))

    def _end_lost(self, running: LeasedJob) -> None:
        self._drop(running)
        self._lost_places.add(running)

    def _drop(self, running: LeasedJob) -> None:
        self.leases.pop(running.lease, None)
        if running.log is not None:
            self.logs.ended(running)


def _heads(queued: deque[LeasedJob], lease: object) -> bool:
    return bool(queued) and queued[0].lease == lease


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
