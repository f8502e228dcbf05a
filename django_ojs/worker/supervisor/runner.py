"""The supervisor: one loop over executors, clocks and signals that never waits for the database."""

from __future__ import annotations

import logging
import signal
import threading

from django_ojs import clock
from django_ojs.domain.exposition import render
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import RenewedLease
from django_ojs.services.settle import Report
from django_ojs.signals import delivered_by
from django_ojs.store.notifications import Notifier, place_of
from django_ojs.store.sessions import of_workers, read_in_index_order
from django_ojs.store.sources import Sources
from django_ojs.worker.executor.background import is_background
from django_ojs.worker.executor.process import serve
from django_ojs.worker.prefork.child import Child, Phase
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.prefork.zygote import open_server
from django_ojs.worker.supervisor.claiming import ClaimSize, claim_size, divided
from django_ojs.worker.supervisor.config import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_RECYCLE,
    Config,
    Summary,
)
from django_ojs.worker.supervisor.dispatcher import Dispatcher
from django_ojs.worker.supervisor.drain import DrainController
from django_ojs.worker.supervisor.garbage import collected_rarely
from django_ojs.worker.supervisor.isolation import PartitionGuard
from django_ojs.worker.supervisor.loop import EventLoop
from django_ojs.worker.supervisor.metrics import Parts, families
from django_ojs.worker.supervisor.quiet import Quiet, QuietBy
from django_ojs.worker.supervisor.recycling import Recycler
from django_ojs.worker.supervisor.registration import register_worker
from django_ojs.worker.supervisor.shared_types import SharedTypes
from django_ojs.worker.supervisor.shutdown import Shutdown, WorkerPhase
from django_ojs.worker.supervisor.signals import SignalQueue
from django_ojs.worker.threads import database
from django_ojs.worker.threads.fetcher import Claims, Moment
from django_ojs.worker.threads.heartbeat import HeartbeatThread, WorkerSnapshot
from django_ojs.worker.threads.maintenance import MaintenanceThread
from django_ojs.worker.threads.polling import poll_schedule_for
from django_ojs.worker.threads.reaper import ReaperThread
from django_ojs.worker.threads.receivers import Receivers

logger = logging.getLogger("django_ojs.worker")

_IDLE_WAIT = 2.0
_ENDING_WAIT = 0.05
"""Seconds between looks whether all has ended, once the worker's time to stop is up."""
_MOST_UNWRITTEN = 2000
"""Reports that may wait for the database while the worker claims more."""


class Runner:
    """One worker process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shutdown = Shutdown()
        self._using = config.using
        # Fork the server before starting threads, and before opening descriptors that handlers would
        # inherit. Threads of exporters may run already: they are restarted after a fork.
        server = open_server(serve, sum(map(is_background, threading.enumerate())))
        self._loop = EventLoop()
        self._signals = SignalQueue(self._loop.wakeup_fd)
        self._pool = Pool(self._loop.selector, server, on_frame=self._on_frame, on_gone=self._on_gone)
        self._killed_early = False
        self._started = clock.boottime()
        self._first_claim: float | None = None
        self._exit_code, self._stop_reason = EXIT_OK, "shutdown"
        self.info = config.identity()
        where = config.sources()
        self._notifier: Notifier | None = None
        if Notifier.possible(self._using):
            self._notifier = Notifier(self._on_payload, self._using)
        self._shared = SharedTypes(0 if config.once else config.async_slots)
        claims = divided(config, self._shared, self._claims)
        self._database_threads = database.database_threads(self._loop, self._using, claims)
        self._claimer, self._database = self._database_threads[0], self._database_threads[-1]
        self._receivers = Receivers(reporters=self._database_threads, on_room=self._loop.wake_up)
        self._dispatcher = Dispatcher(self._pool, self._database, self.shutdown, self._shared, config)
        self._recycler = Recycler(self._pool, self.shutdown, config, self._shared)
        self._drain = DrainController(
            *(self._claimer, self._database, self._dispatcher, self.shutdown, where),
            promotes=config.maintenance,
            using=self._using,
        )
        self._heartbeat = HeartbeatThread(
            self.info, self._report, self._on_beat, self._on_directive, self._using
        )
        self._quiet = Quiet(self.shutdown, self._heartbeat.now)
        self._partition_guard = PartitionGuard(
            self._heartbeat, self._database, self._dispatcher, using=self._using
        )
        self._parts = Parts(
            *(self._pool, self._dispatcher, self._claimer, self._database, self._heartbeat),
            *(self._receivers, self._recycler),
        )
        self._maintenance: list[MaintenanceThread | ReaperThread] = []
        self._reaper: ReaperThread | None = None
        if config.maintenance:
            maintenance = MaintenanceThread(self._claimer.wake, using=self._using)
            self._reaper = ReaperThread(
                maintenance.promote,
                promoting=maintenance.promoting,
                ran_by=config.worker_id,
                using=self._using,
            )
            self._maintenance = [maintenance, self._reaper]

    @property
    def mode(self) -> str:
        """How executors are started: ``fork`` or ``exec``."""
        return self._pool.mode

    def started(self) -> bool:
        """Whether an executor is ready."""
        return any(child.phase is Phase.READY for child in self._pool)

    def connected(self) -> bool:
        """Whether the database answered the last statement."""
        return self._claimer.connected.is_set()

    def metrics(self) -> str:
        """What only this process knows, for Prometheus. From any thread."""
        return render(families(self._parts))

    # The loop.

    def run(self) -> Summary:
        """Work until asked to stop or, with ``drain`` or ``once``, until there is nothing to do."""
        # These apply to the supervisor only: the fork server has been forked.
        with (
            read_in_index_order(self._using),
            of_workers(self._using),
            delivered_by(self._receivers.put),
            collected_rarely(),
        ):
            return self._run()

    def _run(self) -> Summary:
        register_worker(self.info, using=self._using)
        for thread in (self._heartbeat, *self._database_threads, *self._maintenance, self._notifier):
            if thread is not None:
                thread.start()
        try:
            while not self._finished():
                self._turn()
            failed = self._exit_code == EXIT_ERROR
            self._heartbeat.stop_reason = "error" if failed else self._stop_reason
        finally:
            ended = clock.boottime()
            self._close()
        reported = self._dispatcher.reported
        return Summary(
            completed=reported[Report.ACK],
            failed=reported[Report.FAIL],
            given_back=reported[Report.RELEASE],
            seconds=ended - (self._first_claim or self._started),
            statements=sum(
                one.statements for one in (*self._database_threads, self._heartbeat, *self._maintenance)
            ),
            exit_code=self._exit_code,
        )

    def _turn(self) -> None:
        ended = self._dispatcher.ended
        look = self._pool.look_within(clock.boottime())
        gather = look is None and self._dispatcher.assignment.is_ample()
        self._loop.wait(self._wait(_IDLE_WAIT if look is None else look), gather=gather)
        self._pool.read_journals()
        if self._dispatcher.ended != ended:
            self._drain.work_goes_on()
        for number in self._signals.take():
            self._handle_signal(number)
        now = clock.boottime()
        self._limits(now)
        self._partition_guard.check(now)
        self._recycler.check(now)
        self._dispatcher.tick(now)
        self._dispatcher.assign()
        self._ask_for_jobs(now)
        self._pool.flush()
        self._dispatcher.hand_over()

    def _wait(self, most: float) -> float:
        if self._loop.has_calls or self._signals:
            return 0.0
        now = clock.boottime()
        waits = [most]
        dispatch = self._dispatcher.next_wait(now)
        if dispatch is not None:
            waits.append(dispatch)
        if (kill_at := self.shutdown.kill_at) is not None:
            waits.append(kill_at - now if kill_at > now else _ENDING_WAIT)
        if any(child.is_busy for child in self._pool):
            # A monitor that a handler has stopped sends nothing: it must be checked.
            waits.append(max(0.0, self._recycler.due_at - now))
        if not self.shutdown.begun and self._recycler.missing:
            waits.append(max(0.0, self._pool.spawn_after - now))
        return min(waits)

    # Claiming.

    def _claims(self, where: Sources) -> Claims:
        ends = self.config.drain or self.config.once
        return Claims(
            where,
            poll_schedule_for(self._using, self._notifier),
            self.config.worker_id,
            self._on_claimed,
            (lambda left: self._drain.queue_was_empty(left)) if ends else None,
            ends=ends,
        )

    def _ask_for_jobs(self, now: float) -> None:
        ending = self._drain.near or (self.config.once and self._dispatcher.claimed)
        held_up = self._partition_guard.claims_suspended or self._receivers.full
        held_up = held_up or self._database.unwritten > _MOST_UNWRITTEN
        found = claim_size(
            self._pool,
            self._dispatcher.assignment,
            self.config,
            self._shared,
            now=now,
            leases=len(self._dispatcher.leases),
            last_done=self._dispatcher.last_done,
            turn=self._claimer.turn_took,
        )
        if self.shutdown.phase is not WorkerPhase.RUNNING or ending or held_up:
            found = ClaimSize(immediate=found.immediate)
        if self.config.once:
            found = found.within(1)
        elif self.config.max_jobs is not None:
            held = len(self._dispatcher.leases)
            found = found.within(self.config.max_jobs - self._dispatcher.finished - held)
        self._claimer.want(*found)

    def _on_claimed(self, jobs: list[JobRow], at: Moment) -> None:
        self._drain.work_goes_on()
        if self._reaper is not None:
            self._reaper.hurry()
        if self._first_claim is None:
            self._first_claim = at.boottime
        self._dispatcher.take(jobs, at)
        if self.shutdown.begun:
            self._dispatcher.give_back_unbegun()
        self._heartbeat.hurry(min(job.heartbeat_timeout_ms for job in jobs))

    def _report(self) -> WorkerSnapshot:
        """Describe this worker. Called by the heartbeat thread."""
        return WorkerSnapshot(
            self.shutdown.phase,
            list(self._dispatcher.leases.values()),
            self._database.held_up(),
            self._pool.processes(),
        )

    # Callbacks.

    def _on_frame(self, child: Child, frame: dict[str, object]) -> None:
        self._dispatcher.on_frame(child, frame)

    def _on_gone(self, child: Child, status: int | None) -> None:
        if child.jobs_done == 0 and not child.is_busy and child.recycle is None:
            self._pool.record_start_failure()
            if not self.shutdown.begun:
                logger.error("an executor ended before it ran a job: status %s", status)
        self._drain.work_goes_on()
        self._dispatcher.on_gone(child, status)

    def _on_beat(self, sent: list[str], kept: list[RenewedLease], at: float | None) -> None:
        enforcer = self._dispatcher.enforcer
        if at is None:
            self._loop.call_soon(lambda: enforcer.renewed(sent, kept))
        else:
            self._loop.call_soon(lambda: enforcer.heard(sent, kept, at))

    def _on_directive(self, directive: str | None) -> None:
        if directive == "quiet":
            self._loop.call_soon(lambda: self._quiet.begin(QuietBy.DIRECTIVE))
        elif directive is None:
            self._loop.call_soon(lambda: self._quiet.end(QuietBy.DIRECTIVE))
        elif directive in ("terminate", "replaced"):
            if directive == "replaced":
                logger.error("another worker has started under this id: %s", self.info.id)
            self._loop.call_soon(lambda: self.stop(str(directive)))

    def _on_payload(self, payload: str, repeated: bool) -> None:
        """Before one that is ``repeated`` another queue may have got a job. Called by the notifier."""
        if payload.startswith("w:"):
            if payload[2:] == self.info.id:
                self._heartbeat.now()
        else:
            self._claimer.wake(*place_of(payload), alone=not repeated)
            if self._reaper is not None:
                self._reaper.hurry()

    # Stopping.

    def _handle_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGTSTP:
            self._quiet.begin(QuietBy.SIGNAL)
        elif number == signal.SIGCONT:
            self._quiet.end(QuietBy.SIGNAL)
        else:
            again, self._stop_reason = self._stop_reason == "signal", "signal"
            self.stop(number.name, again=again)
            if number == signal.SIGINT and self._killed_early:
                self._exit_code = EXIT_INTERRUPTED

    def stop(self, reason: str, *, again: bool = False) -> None:
        """Shut down gracefully (decision L8); at the second signal, at once."""
        now = clock.boottime()
        running = sum(slot.running is not None for slot in self._pool.slots())
        if self.shutdown.begun:
            if again:
                self._killed_early = True
                logger.warning("second signal (%s): jobs killed: %d", reason, running)
                self.shutdown.kill_at = now
                self._dispatcher.give_back_unbegun()
            return
        self.shutdown.phase = WorkerPhase.TERMINATE
        text = "stopping (%s): jobs running: %d, for up to %g s; a second SIGTERM or SIGINT kills them"
        logger.info(text, reason, running, self.config.shutdown_timeout)
        self.shutdown.kill_at = now + self.config.shutdown_timeout
        self._dispatcher.give_back_unbegun()
        self._heartbeat.now()

    def _limits(self, now: float) -> None:
        for thread in (*self._database_threads, self._heartbeat):
            if not thread.is_alive() and not self.shutdown.begun:
                logger.critical("a thread has died: stopping (%s)", thread.name)
                self._exit_code = EXIT_ERROR
                self.stop("a thread died")
        config = self.config
        over_time = config.max_runtime is not None and now - self._started > config.max_runtime
        over_jobs = config.max_jobs is not None and self._dispatcher.finished >= config.max_jobs
        if (over_time or over_jobs) and not self.shutdown.begun:
            self._exit_code = EXIT_RECYCLE
            self.stop("limit")

    def _finished(self) -> bool:
        if self._dispatcher.leases or any(child.assigned for child in self._pool):
            return False
        if self.shutdown.begun:
            if self._drain.flush_barrier_passed() and not self._database.unwritten:
                return True
            if self._drain.gave_up():
                self._exit_code = EXIT_ERROR
                return True
            return False
        if self.config.once and self._dispatcher.claimed:
            return self._drain.flush_barrier_passed() and not self._database.unwritten
        return (self.config.drain or self.config.once) and self._drain.drained()

    def _close(self) -> None:
        self._signals.close()
        self.shutdown.phase = WorkerPhase.TERMINATE
        for thread in (self._notifier, *self._maintenance):
            if thread is not None:
                thread.close()
        for child in list(self._pool):
            self._pool.end(child)
        until = clock.boottime() + 6.0
        while self._pool.children and clock.boottime() < until:
            self._loop.wait_for_descriptors(0.1)
            self._pool.check()
        self._dispatcher.hand_over()
        database.end(self._database_threads, 5.0)
        self._dispatcher.logs.close()
        for thread in (*self._maintenance, self._notifier):
            if thread is not None:
                thread.join(2.0)
        self._heartbeat.close()
        self._heartbeat.join(5.0)
        at = self.shutdown.kill_at
        self._receivers.close(at - clock.boottime() if at else self.config.shutdown_timeout)
        self._pool.close()
        self._loop.close()
