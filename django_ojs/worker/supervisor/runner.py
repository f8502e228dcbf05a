"""The runner: one loop over executors, clocks and signals; it never waits for the database."""

from __future__ import annotations

import logging
import signal
import threading

from django_ojs import clock, conf
from django_ojs.domain.job import JobRecord
from django_ojs.domain.leases import RenewedLease
from django_ojs.services.workers import Directive, register
from django_ojs.signals import delivered_by
from django_ojs.store.notifications import Notifier, place_of
from django_ojs.store.sessions import (
    idle_transaction_timeout,
    lock_timeout,
    read_in_index_order,
    tcp_keepalive,
)
from django_ojs.worker.executor.background import is_background
from django_ojs.worker.executor.process import serve
from django_ojs.worker.prefork.pool import START_TIMEOUT, Child, Phase, Pool, rss_mib
from django_ojs.worker.prefork.zygote import open_server
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
from django_ojs.worker.supervisor.isolation import PartitionGuard
from django_ojs.worker.supervisor.loop import EventLoop
from django_ojs.worker.supervisor.shutdown import Shutdown, WorkerPhase
from django_ojs.worker.supervisor.signals import Orders
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.fetcher import Claims, Moment
from django_ojs.worker.threads.heartbeat import HeartbeatThread, Report
from django_ojs.worker.threads.maintenance import MaintenanceThread
from django_ojs.worker.threads.polling import poll_schedule_for
from django_ojs.worker.threads.reaper import ReaperThread
from django_ojs.worker.threads.receivers import Receivers

logger = logging.getLogger("django_ojs.worker")

_IDLE_WAIT = 1.0
_LOOK_EVERY = 0.5
"""How often the memory and the monitors of executors are looked at."""


class Runner:
    """One worker process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shutdown = Shutdown()
        self._using = config.using
        # The fork server starts before any thread, and before there is a descriptor of the supervisor's
        # that handlers would inherit.
        # Exporters start their threads anew after a fork, which is why they may be there already.
        server = open_server(serve, sum(map(is_background, threading.enumerate())))
        self._loop = EventLoop()
        self._orders = Orders(self._loop.wakeup_fd)
        self._pool = Pool(self._loop.selector, server, on_frame=self._on_frame, on_gone=self._on_gone)
        self._claimed = 0
        self._killed_early = False
        self._told_quiet = False
        self._look_due = 0.0
        self._started = clock.boottime()
        self._first_claim: float | None = None
        self._exit_code = EXIT_OK
        self.info = config.identity()
        where = config.sources()
        self._listener: Notifier | None = None
        if Notifier.possible(self._using):
            self._listener = Notifier(self._on_payload, self._using)
        claims = Claims(
            where,
            poll_schedule_for(self._using, self._listener),
            config.worker_id,
            self._on_claimed,
            self._on_empty,
            ends=config.drain or config.once,
        )
        self._database = DatabaseThread(self._loop, self._using, claims)
        self._receivers = Receivers(reporter=self._database, on_room=self._loop.wake_up)
        self._dispatcher = Dispatcher(
            self._pool,
            self._database,
            self.shutdown,
            using=self._using,
            worker_id=config.worker_id,
        )
        self._drain = DrainController(
            self._database,
            self._dispatcher,
            self.shutdown,
            where,
            promotes=config.maintenance,
            using=self._using,
        )
        self._beats = HeartbeatThread(
            self.info, self._report, self._on_beat, self._on_directive, self._using
        )
        self._silence = PartitionGuard(self._beats, self._database, self._dispatcher, using=self._using)
        self._maintenance: list[MaintenanceThread | ReaperThread] = []
        if config.maintenance:
            maintenance = MaintenanceThread(self._database.wake, using=self._using)
            reaper = ReaperThread(
                maintenance.promote,
                promoting=maintenance.promoting,
                ran_by=config.worker_id,
                using=self._using,
            )
            self._maintenance = [maintenance, reaper]

    @property
    def mode(self) -> str:
        """How executors are started: ``fork`` or ``exec``."""
        return self._pool.mode

    def started(self) -> bool:
        """Whether an executor is ready."""
        return any(child.phase is Phase.READY for child in self._pool)

    def connected(self) -> bool:
        """Whether the database answered last time."""
        return self._database.connected.is_set()

    # The loop.

    def run(self) -> Summary:
        """Work until told to stop or, with ``drain`` and ``once``, until there is nothing to do."""
        # Here, behind the fork server's fork: what handlers leave open is their own affair.
        with (
            lock_timeout(self._using),
            idle_transaction_timeout(self._using),
            read_in_index_order(self._using),
            tcp_keepalive(self._using),
            delivered_by(self._receivers.put),
        ):
            return self._run()

    def _run(self) -> Summary:
        register(self.info, using=self._using)
        if (off := clock.disagreement(self._using)) is not None:
            seconds = off.total_seconds()
            logger.warning("the clock of the database is %+.1f s off this host's", seconds)
        for thread in (self._beats, self._database, *self._maintenance, self._listener):
            if thread is not None:
                thread.start()
        try:
            while not self._finished():
                self._turn()
        finally:
            ended = clock.boottime()
            self._close()
        return Summary(
            jobs=self._dispatcher.finished,
            seconds=ended - (self._first_claim or self._started),
            statements=sum(one.statements for one in (self._database, self._beats, *self._maintenance)),
            exit_code=self._exit_code,
        )

    def _turn(self) -> None:
        self._loop.wait(self._wait())
        for order in self._orders.take():
            self._obey(order)
        now = clock.boottime()
        self._limits(now)
        self._silence.look(now)
        self._tend_children(now)
        self._dispatcher.tick(now)
        self._dispatcher.assign()
        self._ask_for_jobs(now)
        self._pool.flush()
        self._dispatcher.hand_over()

    def _wait(self) -> float:
        if self._loop.has_calls or self._orders:
            return 0.0
        now = clock.boottime()
        waits = [_IDLE_WAIT]
        dispatch = self._dispatcher.next_wait(now)
        if dispatch is not None:
            waits.append(dispatch)
        if self.shutdown.kill_at is not None:
            waits.append(max(0.0, self.shutdown.kill_at - now))
        if any(child.running is not None for child in self._pool):
            # A monitor that a handler has stopped says nothing.
            waits.append(max(0.0, self._look_due - now))
        if not self.shutdown.begun and len(self._pool.children) < self.config.concurrency:
            waits.append(max(0.0, self._pool.spawn_after - now))
        return min(waits)

    # Claiming.

    def _ask_for_jobs(self, now: float) -> None:
        free = sum(1 for child in self._pool if child.idle and child.recycle is None)
        busy = len(self._dispatcher.leases)
        room = 0
        ending = self._drain.near or (self.config.once and self._claimed)
        claims_suspended = self._silence.claims_suspended or self._receivers.full
        if self.shutdown.phase is WorkerPhase.RUNNING and not ending and not claims_suspended:
            ahead = 0
            if now - self._dispatcher.last_done < 0.05:
                going = sum(1 for child in self._pool if not child.is_long(now))
                ahead = self._dispatcher.estimate.prefetch(self.config.concurrency, going)
            held_back = len(self._dispatcher.waiting)
            queued = sum(len(child.queued) for child in self._pool)
            room = max(0, free + ahead - held_back - queued)
            if self.config.once:
                room = min(room, 1)
            if self.config.max_jobs is not None:
                room = min(room, self.config.max_jobs - self._claimed)
            if busy and room and room < ahead // 2:
                room = 0
        self._database.want(room, free)

    def _on_claimed(self, jobs: list[JobRecord], at: Moment) -> None:
        self._drain.work_goes_on()
        self._claimed += len(jobs)
        if self._first_claim is None:
            self._first_claim = at.boottime
        self._database.delivered()
        self._dispatcher.take(jobs, at)
        if self.shutdown.begun:
            self._dispatcher.give_back_unbegun()
        self._beats.hurry(min(job.heartbeat_timeout_ms for job in jobs))

    def _on_empty(self, left: bool) -> None:
        self._drain.queue_was_empty(left)

    def _report(self) -> Report:
        """Called by the heartbeat thread."""
        return Report(
            self.shutdown.phase, list(self._dispatcher.leases.values()), self._database.held_up()
        )

    # What arrives.

    def _on_frame(self, child: Child, frame: dict[str, object]) -> None:
        if frame.get("op") == "ready":
            self._pool.started()
        if frame.get("op") == "done":
            self._drain.work_goes_on()
        self._dispatcher.on_frame(child, frame)

    def _on_gone(self, child: Child, status: int | None) -> None:
        if child.jobs_done == 0 and not child.running and child.recycle is None:
            self._pool.record_start_failure()
            if not self.shutdown.begun:
                logger.error("an executor ended before it ran anything (status %s)", status)
        self._drain.work_goes_on()
        self._dispatcher.on_gone(child, status)

    def _on_beat(self, sent: list[str], kept: list[RenewedLease]) -> None:
        self._loop.call_soon(lambda: self._dispatcher.enforcer.renewed(sent, kept))

    def _on_directive(self, directive: Directive) -> None:
        if directive.order == "quiet":
            self._told_quiet = True
            self._loop.call_soon(self.quiet)
        elif directive.order is None and self._told_quiet:
            # Taken back. What a signal has said is not undone by a beat.
            self._told_quiet = False
            self._loop.call_soon(self.resume)
        elif directive.order in ("terminate", "replaced"):
            if directive.order == "replaced":
                logger.error("another worker has started under the id %s", self.info.id)
            self._loop.call_soon(lambda: self.stop(str(directive.order)))

    def _on_payload(self, payload: str) -> None:
        """Called by the listener."""
        if payload.startswith("w:"):
            if payload[2:] == self.info.id:
                self._beats.now()
        else:
            self._database.wake(*place_of(payload))

    # Executors.

    def _tend_children(self, now: float) -> None:
        for child in list(self._pool):
            if child.phase is Phase.STARTING and now - child.started_at > START_TIMEOUT:
                logger.error("an executor did not start within %s seconds", START_TIMEOUT)
                self._pool.kill(child)
            elif child.running is None and child.phase is Phase.READY:
                if child.jobs_done >= conf.current().executor_max_jobs:
                    child.recycle = "it has run its number of jobs"
                if child.recycle and not child.queued:
                    logger.info("recycling an executor: %s", child.recycle)
                    self._pool.kill(child)
        if now >= self._look_due:
            self._look_due = now + _LOOK_EVERY
            self._pool.wake_monitors()
            most = self.config.max_rss
            for child in self._pool:
                if most is not None and rss_mib(child) > most:
                    child.recycle = f"it uses more than {most:g} MiB"
        if not self.shutdown.begun:
            self._pool.fill(self.config.concurrency, now)

    # Stopping.

    def _obey(self, order: signal.Signals) -> None:
        if order == signal.SIGTSTP:
            self.quiet()
        elif order == signal.SIGCONT:
            self.resume()
        else:
            self.stop(order.name)
            if order == signal.SIGINT and self._killed_early:
                self._exit_code = EXIT_INTERRUPTED

    def quiet(self) -> None:
        """Claim nothing more; what runs goes on."""
        if self.shutdown.phase is WorkerPhase.RUNNING:
            self.shutdown.phase = WorkerPhase.QUIET
            logger.info("quiet: no more jobs are claimed")
            self._beats.now()

    def resume(self) -> None:
        """Claim again, unless stopping."""
        if self.shutdown.phase is WorkerPhase.QUIET:
            self.shutdown.phase = WorkerPhase.RUNNING
            logger.info("running again")
            self._beats.now()

    def stop(self, reason: str) -> None:
        """Shut down gracefully (decision L8); the second time, at once."""
        now = clock.boottime()
        running = sum(child.running is not None for child in self._pool)
        if self.shutdown.begun:
            if reason not in ("terminate", "replaced", "limit"):
                self._killed_early = True
                logger.warning("second signal (%s): jobs killed: %d", reason, running)
                self.shutdown.kill_at = now
                self._dispatcher.give_back_unbegun()
            return
        self.shutdown.phase = WorkerPhase.TERMINATE
        told = "stopping (%s): jobs running: %d, for up to %g s; a second SIGTERM or SIGINT kills them"
        logger.info(told, reason, running, self.config.shutdown_timeout)
        self.shutdown.kill_at = now + self.config.shutdown_timeout
        self._dispatcher.give_back_unbegun()
        self._beats.now()

    def _limits(self, now: float) -> None:
        for thread in (self._database, self._beats):
            if not thread.is_alive() and not self.shutdown.begun:
                logger.critical("the thread %s has died: stopping", thread.name)
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
        if self.config.once and self._claimed:
            return self._drain.flush_barrier_passed() and not self._database.unwritten
        return (self.config.drain or self.config.once) and self._drain.drained()

    def _close(self) -> None:
        self._orders.close()
        self.shutdown.phase = WorkerPhase.TERMINATE
        for thread in (self._listener, *self._maintenance):
            if thread is not None:
                thread.close()
        for child in list(self._pool):
            self._pool.kill(child)
        until = clock.boottime() + 6.0
        while self._pool.children and clock.boottime() < until:
            self._loop.wait_for_descriptors(0.1)
        self._dispatcher.hand_over()
        self._database.close()
        self._database.join(5.0)
        for thread in (*self._maintenance, self._listener):
            if thread is not None:
                thread.join(2.0)
        self._beats.close()
        self._beats.join(5.0)
        at = self.shutdown.kill_at
        self._receivers.close(at - clock.boottime() if at else self.config.shutdown_timeout)
        self._pool.close()
        self._loop.close()
