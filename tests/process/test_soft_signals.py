"""The soft signal and the channel: it never hits the next job, and waits behind no payload."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

import pytest

from django_ojs.domain.job import JobRow
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import Frame, FrameReader, pack, pack_texts, text_of
from django_ojs.worker.prefork.journal import Journal
from tests.domain.records import running
from tests.faults import tally
from tests.process.tools import Diary, Flag, StartWorker, attempts, in_state, on_time, sabotaged
from tests.support import ROOT, database_url
from tests.workload import coroutines, jobs, misbehaving, stopping

pytestmark = pytest.mark.process

WAKEUP_SIGNAL = signal.SIGUSR1


class Executor:
    """A real executor under a real monitor; the test is its runner."""

    def __init__(self, **environment: str) -> None:
        self._channel, channel = socket.socketpair()
        self._control, control = socket.socketpair()
        self._liveness, liveness = os.pipe()
        ends = (control.fileno(), channel.fileno(), liveness)
        self._monitor = subprocess.Popen(
            [sys.executable, "-m", "django_ojs.worker.executor", *map(str, ends)],
            cwd=ROOT,
            pass_fds=ends,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "DATABASE_URL": database_url(),
                **environment,
            },
        )
        control.close()
        channel.close()
        os.close(liveness)
        Journal.shared_through(self._channel, wanted=False)
        for end in (self._channel, self._control):
            end.settimeout(30)
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        born = FrameReader().feed(self._control.recv(4096))[0]
        self.pid = int(born["pid"])
        assert self.next()["op"] == "ready"

    def next(self) -> Frame:
        """The next frame that it sends."""
        while not self._frames:
            data = self._channel.recv(1 << 16)
            assert data, "it has hung up"
            self._frames.extend(self._reader.feed(data))
        return self._frames.popleft()

    def run(self, *leases: str) -> None:
        """Give it jobs that hardly take a moment."""
        self.give(running(type=misbehaving.spin.type, args="[0.0002]"), *leases)

    def share(self, slots: int, *leases: str) -> None:
        """Have it share from the first frame on, with jobs in the same packet."""
        job = running(type=coroutines.sleep.type, args="[0.5]")
        self._channel.sendall(pack_texts([text_of(messages.share(slots)), *_runs(job, *leases)]))

    def give(self, job: JobRow, *leases: str) -> None:
        """Give it jobs like this one."""
        self._channel.sendall(pack_texts(_runs(job, *leases)))

    def stop(self, lease: str) -> None:
        """Tell it to stop a job."""
        self._channel.sendall(pack({"op": "cancel", "lease": lease, "reason": "timeout"}))
        os.kill(self.pid, WAKEUP_SIGNAL)

    def ends(self, *leases: str) -> dict[str, Frame]:
        """How these jobs end, by their leases, as they come."""
        ends: dict[str, Frame] = {}
        while not ends.keys() >= set(leases):
            frame = self.next()
            if frame["op"] == "done":
                ends[frame["lease"]] = frame
        return ends

    def close(self) -> None:
        """Hang up; the monitor ends what is left."""
        for end in (self._channel, self._control):
            end.close()
        os.close(self._liveness)
        assert self._monitor.wait(30) == 0


def _runs(job: JobRow, *leases: str) -> list[str]:
    return [messages.run(job, one, deadline="2030-01-01T00:00:00+00:00") for one in leases]


@pytest.fixture
def executor(ojs_db: None) -> Iterator[Executor]:
    """An executor that is ready."""
    made = Executor()
    yield made
    made.close()


def test_the_end_of_a_job_comes_with_the_start_of_the_next(executor: Executor) -> None:
    executor.run("first", "second")
    frames = [executor.next() for _ in range(3)]
    assert [(frame["op"], frame["lease"], frame.get("next")) for frame in frames] == [
        ("begin", "first", None),
        ("done", "first", "second"),
        ("done", "second", None),
    ]


def test_a_job_that_is_given_back_as_it_is_taken_costs_the_one_before_nothing(ojs_db: None) -> None:
    executor = Executor(**sabotaged("given back as it is taken"))
    try:
        executor.run("first", "second")
        frames = [executor.next() for _ in range(3)]
        assert {(frame["op"], frame["lease"], frame.get("next")) for frame in frames} == {
            ("begin", "first", None),
            ("done", "first", None),
            ("returned", "second", None),
        }
        executor.run("third")
        assert executor.next() == {"op": "begin", "lease": "third"}
    finally:
        executor.close()


def race(executor: Executor, times: int) -> int:
    """Stop every other job at about the moment at which it returns; how many were hit."""
    hit = 0
    dice = random.Random(30)
    for number in range(times):
        first, second = f"{number}-first", f"{number}-second"
        executor.run(first, second)
        assert executor.next() == {"op": "begin", "lease": first}
        until = time.perf_counter() + dice.uniform(0, 0.0006)
        while time.perf_counter() < until:
            pass
        executor.stop(first)
        ends = executor.ends(first, second)
        assert list(ends) == [first, second]
        assert ends[second]["ok"], "it was the first that was to stop"
        if not ends[first]["ok"]:
            assert ends[first]["failure"]["stopped"] == "timeout"
            hit += 1
    return hit


def test_jobs_that_arrive_with_the_order_to_share_run_at_the_same_time(executor: Executor) -> None:
    """It was slow to start: the supervisor has given it jobs before it has read anything."""
    executor.share(2, "first", "second")
    frames = [executor.next() for _ in range(4)]
    assert [frame["op"] for frame in frames] == ["begin", "begin", "done", "done"]
    assert all(frame["ok"] for frame in frames[2:])


@pytest.mark.fault("F30")
@pytest.mark.parametrize("times", [1000, pytest.param(20_000, marks=pytest.mark.long)])
def test_soft_signal_as_the_handler_returns_never_hits_the_next_job(
    executor: Executor, times: int
) -> None:
    hit = race(executor, times)
    assert times // 20 < hit < times - times // 20, "neither always in time nor always too late"
    tally.injected("F30", times=times - 1)


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_soft_signal_after_the_end_of_a_coroutine_changes_nothing(
    executor: Executor, diary: Diary, flag: Flag, how: str
) -> None:
    """What it has left is being ended meanwhile, and the loop goes on."""
    job = running(type=stopping.leaving.type, args=json.dumps([diary.path, flag.path, how]))
    executor.give(job, "first")
    diary.wait("ending")
    executor.stop("first")
    flag.set()
    executor.give(job, "second")
    ends = executor.ends("first", "second")
    assert [one.get("left", []) for one in ends.values()] == [[], []]
    if how == "returns":
        assert [one["result"] for one in ends.values()] == ['"returns"'] * 2
    else:
        assert [one["failure"]["type"] for one in ends.values()] == ["builtins.ValueError"] * 2


def test_a_job_that_arrives_with_the_order_to_stop_another_is_its_own(
    executor: Executor, diary: Diary
) -> None:
    """The signal interrupts the one that is to stop, in its task and its context."""
    executor.share(2)
    executor.give(running(type=coroutines.hold.type, args=json.dumps([diary.path])), "holds")
    diary.wait("began")
    executor.give(running(type=coroutines.sleep.type, args="[0.01]"), "waits")
    executor.stop("holds")
    ends = executor.ends("holds", "waits")
    assert ends["holds"]["failure"]["stopped"] == "timeout"
    assert ends["waits"]["ok"]


def test_soft_signal_does_not_wait_behind_a_payload(worker: StartWorker, diary: Diary) -> None:
    """900 kB of arguments fill the channel of an executor that is busy until it is told to stop."""
    worker()
    for _ in range(5):
        for number in range(50):
            jobs.echo.enqueue(number)
        stopped = jobs.late_result.enqueue(diary.path)
        large = jobs.echo.enqueue("x" * 900_000)
        assert in_state(stopped, "completed").result == "late"
        (attempt,) = [found for found in attempts(stopped) if found.outcome != "released"]
        assert on_time(attempt, 4)
        assert in_state(large, "completed").result == "x" * 900_000
        # On a slow machine it may not have been claimed ahead, or have overtaken the other one.
        if "released" in [found.outcome for found in attempts(large)]:
            return
    pytest.fail("the large one was never claimed ahead")
