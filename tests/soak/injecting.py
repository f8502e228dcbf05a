"""The faults of the plan, done to the fleet and to the database."""

from __future__ import annotations

import heapq
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import Error

from tests.process.tools import parent_of
from tests.soak import ledger, locks, plan
from tests.soak.locks import Hold
from tests.soak.plan import Fault
from tests.soak.processes import Fleet
from tests.soak.servers import Database
from tests.support import alive, descendants, poll

GONE_IN = 8.0
"""Seconds after which nothing of a killed executor may be left, on a busy machine."""


class Injector:
    """Does what is due; what lasts is ended in time by the same agenda."""

    def __init__(self, fleet: Fleet, database: Database, reader: ledger.Reader) -> None:
        self._fleet = fleet
        self._database = database
        self._reader = reader
        self._kinds: dict[str, str] = {}
        self._busy: dict[int, tuple[str, int]] = {}
        self._began = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._holds: list[Hold] = []
        self._count = 0
        self.injected = 0
        self.news: list[str] = []
        self._verbs: dict[str, Callable[[Fault], dict[str, Any] | None]] = {
            "kill executor": self._kill_executor,
            "kill monitor": self._kill_monitor,
            "kill worker": self._kill_role,
            "kill http worker": self._kill_role,
            "kill reaper": self._kill_role,
            "suspend worker": self._suspend,
            "suspend http worker": self._suspend,
            "replace worker": self._replace,
            "pause queue": self._pause,
            "hold rows": self._hold_rows,
            "hold table": self._hold_table,
            "freeze database": self._freeze,
            "end sessions": self._end_sessions,
            "kill web": self._kill_web,
            "restart database": self._restart,
            "stop database": self._stop,
        }

    def begin(self, faults: list[Fault]) -> None:
        """Take a plan on; its clock starts now."""
        self._began = time.monotonic()
        for fault in faults:
            self._at(fault.at, partial(self._inject, fault))

    def run(self) -> float:
        """Do what is due; the seconds since the beginning."""
        while self._agenda and self._agenda[0][0] <= self._now():
            heapq.heappop(self._agenda)[2]()
        return self._now()

    def finish(self) -> None:
        """End what lasts, now."""
        for _, _, action in sorted(self._agenda):
            action()
        self._agenda.clear()
        for hold in self._holds:
            hold.end()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (when, self._count, action))

    def _inject(self, fault: Fault) -> None:
        at = ledger.now_ns()
        try:
            what = self._verbs[fault.kind](fault)
        except Error as error:  # the database may be away for another fault
            what = None
            self.news.append(f"{fault.kind}: {error}")
        if what is None:
            ledger.write("not injected", kind=fault.kind, target=fault.target)
        else:
            self.injected += 1
            ledger.write("fault", kind=fault.kind, target=fault.target, at=at, **what)

    def _kill_executor(self, fault: Fault) -> dict[str, Any] | None:
        return self._kill_busy(fault, tuple(plan.MIX), lambda executor: executor)

    def _kill_monitor(self, fault: Fault) -> dict[str, Any] | None:
        """Of a job that has children in sessions of their own, where there is one."""
        return self._kill_busy(fault, ("long",), parent_of)

    def _kill_busy(
        self, fault: Fault, kinds: tuple[str, ...], whom: Callable[[int], int]
    ) -> dict[str, Any] | None:
        found = self._busy_below(self._fleet.process(fault.target).pid, kinds)
        if not found:
            return None
        pid = found[int(fault.pick * len(found))]
        job, attempt = self._busy[pid]
        below = [pid, *descendants(pid)]
        at = ledger.now_ns()
        try:
            os.kill(whom(pid), signal.SIGKILL)
        except OSError:
            return None
        self._at(self._now() + GONE_IN, partial(self._look_after, below, job))
        return {"job": job, "attempt": attempt, "pid": pid, "killed": at}

    def _look_after(self, pids: list[int], job: str) -> None:
        """Nothing that a job has started outlives its executor."""
        left = [pid for pid in pids if alive(pid)]
        if left:
            ledger.write("outlived", job=job, pids=left)

    def _kill_role(self, fault: Fault) -> dict[str, Any]:
        label, at = self._fleet.label(fault.target), ledger.now_ns()
        return {"worker": label, "killed": at, "pid": self._fleet.kill(fault.target)}

    def _busy_below(self, worker: int, kinds: tuple[str, ...]) -> list[int]:
        """Who of a worker runs a job of these kinds, as soon as anybody does."""

        def look() -> list[int]:
            self._read()
            busy = {pid for pid, (job, _) in self._busy.items() if self._kinds.get(job) in kinds}
            return sorted(busy.intersection([worker, *descendants(worker)]))

        try:
            return poll(look, 3)
        except AssertionError:
            return []

    def _suspend(self, fault: Fault) -> dict[str, Any] | None:
        pid = self._fleet.process(fault.target).pid
        meeting = plan.MEETING if fault.kind == "suspend worker" else (("remote",),)
        met = next((kinds for kinds in meeting if self._busy_below(pid, kinds)), ())
        lasts = fault.lasts + (plan.LONGER if met == ("long",) else 0.0)
        if not self._fleet.suspend(fault.target, lasts):
            return None
        return {"worker": self._fleet.label(fault.target), "lasts": lasts}

    def _replace(self, fault: Fault) -> dict[str, Any]:
        label = self._fleet.label(fault.target)
        return {"worker": label, "pid": self._fleet.replace(fault.target)}

    def _hold_rows(self, fault: Fault) -> dict[str, Any] | None:
        """As an action in a long request does."""
        jobs = self._hold(fault, locks.running_jobs)
        return {"jobs": jobs, "lasts": fault.lasts} if jobs else None

    def _hold_table(self, fault: Fault) -> dict[str, Any] | None:
        """As a migration does; on SQLite whoever writes."""
        held = self._hold(fault, locks.job_table)
        return {"lasts": fault.lasts} if held else None

    def _hold(self, fault: Fault, lock: Callable[[], list[str]]) -> list[str]:
        hold = locks.Hold(lock, fault.lasts)
        self._holds.append(hold)
        return hold.begin()

    def _freeze(self, fault: Fault) -> dict[str, Any] | None:
        frozen = self._database.freeze()
        if not frozen:
            return None
        # By a thread: this one may be waiting for an answer.
        timer = threading.Timer(fault.lasts, self._database.thaw, [frozen])
        timer.daemon = True
        timer.start()
        return {"lasts": fault.lasts}

    def _end_sessions(self, fault: Fault) -> dict[str, Any] | None:
        ended = self._database.end_sessions(fault.pick)
        return {"sessions": ended} if ended else None

    def _pause(self, fault: Fault) -> dict[str, Any]:
        """Jobs go on coming in, and are announced; none may begin."""
        from django_ojs.services import queues

        queue = plan.QUEUES[int(fault.pick * len(plan.QUEUES))]
        queues.pause([queue])
        since = ledger.now_ns()

        def resume() -> None:
            until = ledger.now_ns()
            try:
                queues.resume([queue])
            except Error:  # the database may be away for another fault
                self._at(self._now() + 0.5, resume)
                return
            ledger.write("paused", queue=queue, since=since, until=until)

        self._at(self._now() + fault.lasts, resume)
        return {"queue": queue}

    def _kill_web(self, fault: Fault) -> dict[str, Any] | None:
        workers = descendants(self._fleet.process("web").pid)
        if not workers:
            return None
        pid = workers[int(fault.pick * len(workers))]
        os.kill(pid, signal.SIGKILL)
        return {"pid": pid}

    def _restart(self, fault: Fault) -> dict[str, Any]:
        self._database.halt()
        self._database.start()
        return {}

    def _stop(self, fault: Fault) -> dict[str, Any]:
        self._database.halt()
        self._at(self._now() + fault.lasts, self._database.start)
        return {"lasts": fault.lasts}

    def _read(self) -> None:
        """Which process runs what, as far as the ledger says."""
        for entry in self._reader:
            if entry.event == "try":
                self._kinds[entry.data["job"]] = entry.data["kind"]
            elif entry.event == "start":
                self._busy[entry.pid] = (entry.data["job"], entry.data["attempt"])
            elif entry.event in ("effect", "end", "crash"):
                self._busy.pop(entry.pid, None)
