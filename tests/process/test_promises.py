"""The published bounds, measured where they are felt, on a machine that has time.

What was measured is printed: ``python -m pytest -s tests/process/test_promises.py``.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, failed, in_state, lasted
from tests.support import alive, poll
from tests.workload import jobs

pytestmark = [
    pytest.mark.every_database,
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.timeout(300),
]
Say = Callable[[str, Sequence[float]], None]
AT_ONCE = 8


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print the median, the 99th percentile and the worst of some times."""

    def said(what: str, times: Sequence[float]) -> None:
        ordered = sorted(times)
        middle, most = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
        with capsys.disabled():
            print(f"\n{what}: p50 {middle:.3f} s, p99 {most:.3f} s, of {len(ordered)}")

    return said


@pytest.mark.fault("F19")
def test_crash_is_recorded_within_a_second(worker: StartWorker, diary: Diary, say: Say) -> None:
    worker()
    took = []
    for number in range(100):
        job = jobs.hold_once.enqueue(diary.path, diary.path + ".never")
        (pid,) = diary.wait("started", number + 1)
        killed = time.monotonic()
        os.kill(int(pid), signal.SIGKILL)
        assert failed(job, "discarded")["type"] == "worker_crash"
        took.append(time.monotonic() - killed)
        assert [attempt.outcome for attempt in attempts(job)] == ["worker_crash"]
    say("executor killed -> failure recorded", took)
    assert sorted(took)[98] < 1.0


@pytest.mark.fault("F24", "F34")
def test_process_is_gone_at_the_end_of_the_grace_period(
    worker: StartWorker, diary: Diary, say: Say
) -> None:
    """Timeout plus grace plus 0.3 s, from the claim to the death of everything the handler made."""
    worker("--concurrency", str(AT_ONCE))
    took: list[float] = []
    for number in range(5):
        begun: dict[tuple[int, ...], float] = {}
        made = [
            jobs.swallow.using(timeout=1, grace_period=1).enqueue(diary.path) for _ in range(AT_ONCE)
        ]
        for index in range(AT_ONCE):
            pids = [int(pid) for pid in diary.wait("started", number * AT_ONCE + index + 1)]
            # The claim came before this moment, so that the bound is the stricter one.
            begun[tuple(pids)] = time.monotonic()

        def gone(begun: dict[tuple[int, ...], float] = begun) -> bool:
            over = [pids for pids in begun if not any(map(alive, pids))]
            took.extend(time.monotonic() - begun.pop(pids) - 2.0 for pids in over)
            return not begun

        poll(gone, 5, every=0.002)
        for job in made:
            assert failed(job)["type"] == "timeout"
            assert 2.0 <= lasted(attempts(job)[0]) <= 2.3
    say("end of the grace period -> process gone", took)
    assert min(took) > -0.5
    assert max(took) <= 0.3


@pytest.mark.fault("F1")
def test_job_of_a_killed_worker_runs_elsewhere_within_its_heartbeat_timeout(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag, say: Say
) -> None:
    """Six seconds for five: one for noticing, claiming and starting. There is no backoff here."""
    width = ("--concurrency", str(AT_ONCE))
    took: list[float] = []
    held = [
        jobs.hold.using(heartbeat_timeout=5, retry={"max_attempts": 9, "initial_interval": "PT0.001S"})
        for _ in range(AT_ONCE)
    ]
    made = [handler.enqueue(diary.path, flag.path) for handler in held]
    current = worker(*width, "--no-chores", "--worker-id", "0")
    diary.wait("started", AT_ONCE, timeout=30)
    for number in range(1, 6):
        following = worker(*width, "--worker-id", str(number))
        in_state(jobs.echo.enqueue("it is up"), "completed", timeout=30)
        current.send(signal.SIGKILL)
        killed = time.monotonic()
        for index in range(AT_ONCE):
            diary.wait("started", number * AT_ONCE + index + 1)
            took.append(time.monotonic() - killed)
        current = following
    say("worker killed -> running elsewhere, heartbeat_timeout=5", took)
    assert max(took) < 6.0
    flag.set()
    for job in made:
        assert in_state(job, "completed").attempt == 6
        ended = attempts(job)
        assert [attempt.outcome for attempt in ended] == ["stalled"] * 5 + ["completed"]
        for lost, kept in pairwise(ended):
            assert timedelta(0) <= kept.started_at - lost.ended_at < timedelta(seconds=1)
