"""An open loop: jobs arrive at random moments, whether those before them have run or not.

Sessions, each a process with a connection of its own, enqueue so many jobs a second together and note
when each call returned. What the handlers noted tells how long each job was waited for.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier, Event
from typing import Any

from benchmarks.harness import config
from benchmarks.harness.adapter import Adapter
from benchmarks.harness.records import Records, Start
from benchmarks.harness.workloads import quantiles

_FORK = multiprocessing.get_context("fork")
_ROOM = 10_000_000
"""The numbers of a session's jobs begin at a multiple of this."""
_PATIENCE = 120
_WARM = 3.0


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` jobs a second of all sessions together, for so many seconds, ``batch`` with each call.

    ``most_waiting`` makes the loop close for a system that is slower: while so many jobs wait,
    arrivals are put off, and the rate is the one that it holds.
    """

    rate: float
    seconds: float
    sessions: int = 1
    batch: int = 1
    most_waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """What was enqueued: when the first call might have come, and when each call of each session
    returned, in seconds of the machine's monotonic clock; the sessions' processor time.
    """

    load: Load
    began: float
    ended: float
    cpu_seconds: float
    returned: Sequence[array[float]]

    @property
    def jobs(self) -> int:
        """How many, without those that only warmed up."""
        return self.load.batch * sum(map(len, self.returned))

    @property
    def records(self) -> int:
        """How many handlers must have begun, with those that warmed up."""
        return self.jobs + self.load.sessions

    def pickups(self, starts: Iterator[Start]) -> Pickups:
        """What became of the jobs, by what their handlers noted."""
        batch = self.load.batch
        seen = [bytearray(batch * len(calls)) for calls in self.returned]
        found = Pickups(array("d"), array("d"))
        for when, number, _ in starts:
            if number < 0:
                continue
            session, place = divmod(number, _ROOM)
            if seen[session][place]:
                found.ran_twice += 1
                continue
            seen[session][place] = 1
            found.moments.append(when)
            found.waits.append(1000 * (when - self.returned[session][place // batch]))
        found.lost = self.jobs - len(found.waits)
        return found


@dataclass(slots=True)
class Pickups:
    """When each job began (``moments``), and how many milliseconds after its enqueue's return."""

    moments: array[float]
    waits: array[float]
    lost: int = 0
    ran_twice: int = 0

    def within(self, begin: float, end: float) -> Pickups:
        """Those that began in a span of time."""
        places = [n for n, moment in enumerate(self.moments) if begin <= moment < end]
        return Pickups(
            array("d", (self.moments[n] for n in places)), array("d", (self.waits[n] for n in places))
        )

    def figures(self) -> dict[str, Any]:
        """The quantiles of the waits, and what must be zero."""
        told = quantiles(self.waits) if len(self.waits) > 1 else {}
        return {**told, "lost": self.lost, "ran_twice": self.ran_twice}


class Sessions:
    """Processes that enqueue, and what each of them returned."""

    def __init__(self, processes: Sequence[Any], queue: Any) -> None:
        self._processes, self._queue = processes, queue
        self.results: list[Any] = []

    def wait(self, seconds: float) -> bool:
        """Let them go on for so long; whether all have ended before."""
        until = time.monotonic() + seconds
        while len(self.results) < len(self._processes):
            if not self._queue.empty():
                self.results.append(self._queue.get())
            elif failed := [process.exitcode for process in self._processes if process.exitcode]:
                raise RuntimeError(f"a session that enqueues ended with {failed}")
            elif time.monotonic() >= until:
                return False
            else:
                time.sleep(0.01)
        return True

    def all_results(self, seconds: float) -> list[Any]:
        """What they returned. Raises ``RuntimeError`` when that takes longer."""
        if not self.wait(seconds):
            raise RuntimeError("a session that enqueues did not end in time")
        return self.results


class Arriving:
    """A load in the background."""

    def __init__(self, load: Load, sessions: Sessions, over: Event) -> None:
        self.load = load
        self._sessions, self._over = sessions, over

    def wait(self, seconds: float) -> bool:
        """Let it go on for so long; whether it has ended before."""
        return self._sessions.wait(seconds)

    def stop(self) -> None:
        """End it before its time."""
        self._over.set()

    def sent(self) -> Sent:
        """What has been enqueued, once it has ended."""
        told = sorted(self._sessions.all_results(self.load.seconds + _PATIENCE))
        began = min(begun for _, begun, _, _ in told)
        ended = max(calls[-1] if calls else begun for _, begun, _, calls in told)
        spent = sum(cpu for _, _, cpu, _ in told)
        return Sent(self.load, began, ended, spent, [calls for *_, calls in told])


@contextmanager
def arriving(adapter: Adapter, load: Load, records: Records) -> Iterator[Arriving]:
    """Jobs that begin to arrive when every session is ready and has rested for a few seconds."""
    over = _FORK.Event()

    def write(session: int, begin: Callable[[], None]) -> tuple[int, float, float, array[float]]:
        adapter.enqueue(-1 - session)
        begin()
        # Until the workers have run these, and rest.
        time.sleep(_WARM)
        began, used = time.monotonic(), time.process_time()
        calls = write_all(adapter, load, session, records, over)
        return session, began, time.process_time() - used, calls

    with _sessions(load.sessions, write) as sessions:
        yield Arriving(load, sessions, over)


def write_all(
    adapter: Adapter, load: Load, session: int, records: Records, over: Event
) -> array[float]:
    """Enqueue until the time is up; when each call returned."""
    dice = random.Random(1000 * config.ROUND + session)
    calls_a_second = load.rate / load.sessions / load.batch
    returned = array("d")
    at = time.monotonic()
    until = at + load.seconds
    while not over.is_set():
        at += dice.expovariate(calls_a_second)
        if load.most_waiting is not None:
            mine = len(returned) * load.batch
            while mine * load.sessions - records.count() > load.most_waiting and at < until:
                time.sleep(0.005)
                at = max(at, time.monotonic())
        if at >= until:
            break
        time.sleep(max(0.0, at - time.monotonic()))
        first = session * _ROOM + len(returned) * load.batch
        if load.batch == 1:
            adapter.enqueue(first)
        else:
            adapter.enqueue_batch(range(first, first + load.batch))
        returned.append(time.monotonic())
    return returned


def together(count: int, write: Callable[[int, Callable[[], None]], Any]) -> list[Any]:
    """Run ``write`` in as many processes; what it gets is called when it is ready, and returns when
    all are.
    """
    with _sessions(count, write) as sessions:
        return sessions.all_results(_PATIENCE)


@contextmanager
def _sessions(count: int, write: Callable[[int, Callable[[], None]], Any]) -> Iterator[Sessions]:
    from django.db import connections

    barrier: Barrier = _FORK.Barrier(count)
    results = _FORK.SimpleQueue()

    def begin() -> None:
        barrier.wait(_PATIENCE)

    def run(session: int) -> None:
        results.put(write(session, begin))

    connections.close_all()
    processes = [_FORK.Process(target=run, args=(session,)) for session in range(count)]
    for process in processes:
        process.start()
    try:
        yield Sessions(processes, results)
    finally:
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.terminate()
                process.join()
