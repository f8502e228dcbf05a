"""The published bounds, measured where they are felt, on a machine that has time: five of each."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import pytest

from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, failed, in_state, lasted
from tests.support import alive, poll
from tests.workload import jobs

pytestmark = [pytest.mark.process, pytest.mark.long]
TIMES = 5


@pytest.mark.fault("F19")
def test_crash_is_recorded_within_a_second(worker: StartWorker, diary: Diary) -> None:
    worker()
    for number in range(TIMES):
        job = jobs.hold_once.enqueue(diary.path, diary.path + ".never")
        (pid,) = diary.wait("started", number + 1)
        killed = time.monotonic()
        os.kill(int(pid), signal.SIGKILL)
        assert failed(job, "discarded")["type"] == "worker_crash"
        assert time.monotonic() - killed < 1.0
        assert [attempt.outcome for attempt in attempts(job)] == ["worker_crash"]


@pytest.mark.fault("F24", "F34")
def test_process_is_gone_at_the_end_of_the_grace_period(worker: StartWorker, diary: Diary) -> None:
    """Timeout plus grace plus 0.3 s, from the claim to the death of everything the handler made."""
    worker()
    for number in range(TIMES):
        job = jobs.swallow.using(timeout=1, grace_period=1).enqueue(diary.path)
        pids = [int(pid) for pid in diary.wait("started", number + 1)]
        # The claim came before this moment, so that the bound is the stricter one.
        begun = time.monotonic()
        poll(lambda pids=pids: not any(map(alive, pids)), 5, every=0.002)
        assert 1.5 < time.monotonic() - begun <= 2.3
        assert failed(job)["type"] == "timeout"
        assert 2.0 <= lasted(attempts(job)[0]) <= 2.3


@pytest.mark.fault("F1")
def test_job_of_a_killed_worker_runs_elsewhere_within_its_heartbeat_timeout(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    """Six seconds for five: one for noticing, claiming and starting. There is no backoff here."""
    first = worker("--no-chores", "--worker-id", "first")
    job = jobs.hold.using(heartbeat_timeout=5).enqueue(diary.path, flag.path)
    diary.wait("started")
    worker("--worker-id", "second")
    in_state(jobs.echo.enqueue("second is up"), "completed", timeout=20)
    first.send(signal.SIGKILL)
    killed = time.monotonic()
    assert diary.wait("started", 2)[0] == "2"
    assert time.monotonic() - killed < 6.0
    flag.set()
    assert in_state(job, "completed").json("result") == "attempt 2"
    lost, kept = attempts(job)
    assert (lost.outcome, lost.worker_id) == ("stalled", "first")
    assert (kept.outcome, kept.worker_id) == ("completed", "second")
    assert kept.started_at - lost.ended_at < timedelta(seconds=1)
