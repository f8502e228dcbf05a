"""What the host does to a worker: signals to its group, closed output, nothing left to start with."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from django_ojs import api
from tests.process.tools import (
    Diary,
    Flag,
    Start,
    StartWorker,
    attempts,
    failed,
    in_state,
    parent_of,
    sabotaged,
)
from tests.support import Manage, alive, descendants, poll
from tests.workload import jobs, misbehaving
from tests.workload.tools import LATER

pytestmark = pytest.mark.process


@pytest.mark.fault("F7", "F12")
def test_interrupt_of_the_whole_group_is_the_workers_to_decide_about(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    job = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker()
    executor = int(diary.wait("started")[1])
    assert Path(f"/proc/{executor}/oom_score_adj").read_text().strip() == "1000"
    assert int(Path(f"/proc/{runner.pid}/oom_score_adj").read_text()) < 1000
    os.kill(executor, signal.SIGINT)
    os.killpg(runner.pid, signal.SIGINT)
    poll(lambda: "stopping (SIGINT)" in runner.stderr)
    late = jobs.echo.enqueue("late")
    flag.set()
    assert runner.wait() == 0
    assert api.get(job).result == "attempt 1"
    assert [attempt.outcome for attempt in attempts(job)] == ["completed"]
    assert (api.get(late).state, api.get(late).attempt) == ("available", 0)


def cpu_seconds(pid: int, *, of_children: bool = False) -> float:
    """How long a process has computed, or its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    first = 13 if of_children else 11
    return sum(map(int, fields[first : first + 2])) / os.sysconf("SC_CLK_TCK")


def test_the_time_of_an_executor_that_ended_counts_as_time_of_the_worker(
    worker: StartWorker, diary: Diary
) -> None:
    """Whoever accounts for processes (``time``, a benchmark) sees it nowhere else."""
    job = jobs.loop.using(timeout=1, retry={"max_attempts": 1}).enqueue(diary.path)
    runner = worker("--concurrency=1")
    diary.wait("started")
    (server,) = (pid for pid in runner.below() if parent_of(pid) == runner.pid)
    used_before = cpu_seconds(server, of_children=True)
    assert failed(job, "discarded")["type"] == "timeout"
    poll(lambda: cpu_seconds(server, of_children=True) - used_before >= 0.1)


def test_executor_that_ends_during_a_shutdown_leaves_the_worker_at_rest(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    """Nothing takes its place any more: that is nothing to wait for."""
    held = [jobs.hold.enqueue(diary.path, flag.path) for _ in range(2)]
    runner = worker("--concurrency=2")
    diary.wait("started", 2)
    runner.send(signal.SIGTERM)
    poll(lambda: "stopping (SIGTERM)" in runner.stderr)
    os.kill(int(diary.lines("started")[0][1]), signal.SIGKILL)
    poll(lambda: sorted(api.get(job).state for job in held) == ["active", "available"])
    before = cpu_seconds(runner.pid)
    # No event tells that nothing happens: a second of rest is what is looked at.
    time.sleep(1)
    assert cpu_seconds(runner.pid) - before < 0.4, "a hot loop"
    flag.set()
    assert runner.wait() == 0


HUNG_UP = """
import os, sys
for number in (1, 2):
    reading, writing = os.pipe()
    os.dup2(writing, number)
    os.close(reading)
    os.close(writing)
os.execv(sys.executable, [sys.executable, "manage.py", *sys.argv[1:]])
"""


@pytest.mark.fault("F13")
def test_nobody_reads_the_output(python: Start) -> None:
    made = [misbehaving.print_it.enqueue(), jobs.echo.enqueue(1), jobs.exit_now.enqueue(3)]
    after = jobs.echo.enqueue("after")
    arguments = ("runworker", "--max-jobs=4", "--concurrency=1")
    runner = python("-c", HUNG_UP, *arguments, PYTHONUNBUFFERED="")
    assert runner.wait(60) == 75
    assert [api.get(job).state for job in made] == ["completed", "completed", "retryable"]
    assert api.get(after).state == "completed"


@pytest.mark.fault("F13")
def test_nobody_reads_what_the_reaper_says(python: Start) -> None:
    reaper = python("-c", HUNG_UP, "reap_timeouts", "--loop")
    for _ in range(2):
        in_state(jobs.echo.using(enqueue_ttl="PT0.001S").enqueue(1), "discarded")
    assert reaper.running


EXEC = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.fault("F14")
def test_worker_is_process_1(python: Start, diary: Diary, flag: Flag) -> None:
    if not shutil.which("unshare") or subprocess.run([*ALONE, "true"], check=False).returncode:
        pytest.skip("a pid namespace takes privileges")
    children = jobs.leave_children.enqueue(diary.path)
    job = jobs.hold.enqueue(diary.path, flag.path)
    arguments = ("manage.py", "runworker", "--concurrency=1")
    outer = python("-c", EXEC, *ALONE, sys.executable, *arguments)
    in_state(children, "completed")
    _, numbered = diary.wait("started")
    (inner,) = [pid for pid in descendants(outer.pid) if parent_of(pid) == outer.pid]
    assert f"NSpid:\t{inner}\t1\n" in Path(f"/proc/{inner}/status").read_text()
    assert int(numbered) < 100, "a number of its own namespace"
    poll(lambda: not zombies(inner))
    os.kill(inner, signal.SIGTERM)
    poll(lambda: "stopping (SIGTERM)" in outer.stderr)
    flag.set()
    assert outer.wait() == 0
    assert api.get(job).result == "attempt 1"


def zombies(pid: int) -> list[int]:
    """Children of a process that have ended and that it has not waited for."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not alive(int(entry.name)):
            try:
                if parent_of(int(entry.name)) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def crash_and_wait(runner: Manage, complaint: str) -> None:
    """Have the only executor die, and see that no other takes its place, patiently."""
    crashed = jobs.exit_now.enqueue(3)
    assert failed(crashed)["type"] == "worker_crash"
    waiting = jobs.echo.enqueue("later")
    poll(lambda: runner.stderr.count(complaint) >= 2)
    first = time.monotonic()
    said = runner.stderr.count(complaint)
    assert api.get(waiting).attempt == 0
    assert api.get(waiting).state == "available"
    poll(lambda: time.monotonic() - first > 1)
    assert runner.stderr.count(complaint) - said <= 3, "a hot loop"
    assert runner.running


@pytest.mark.fault("F15")
def test_no_process_can_be_started(worker: StartWorker, flag: Flag) -> None:
    runner = worker(**sabotaged("no process", flag))
    in_state(jobs.echo.enqueue(1), "completed")
    flag.set()
    crash_and_wait(runner, "ended before it ran a job")
    flag.clear()
    in_state(jobs.echo.enqueue("again"), "completed")
    assert "Traceback" not in runner.stderr


def test_executors_that_end_together_are_replaced_at_once(worker: StartWorker) -> None:
    """One misfortune, however many it hits, is waited for once.

    For how long is tested of the pool: ``worker/test_pool.py``.
    """
    runner = worker("--concurrency=8")

    def executors() -> list[int]:
        """The children of monitors: not a monitor that has no child yet."""
        fork_server = {pid for pid in descendants(runner.pid) if parent_of(pid) == runner.pid}
        monitors = {pid for pid in descendants(runner.pid) if parent_of(pid) in fork_server}
        found = [pid for pid in descendants(runner.pid) if parent_of(pid) in monitors]
        return found if len(found) == 8 else []

    for executor in poll(executors):
        os.kill(executor, signal.SIGKILL)
    poll(lambda: runner.stderr.count("ended before it ran a job") == 8)
    in_state(jobs.echo.enqueue("again"), "completed")


@pytest.mark.fault("F16")
def test_no_descriptors_are_left(worker: StartWorker) -> None:
    runner = worker()
    in_state(jobs.echo.enqueue(1), "completed")
    used = set(map(int, os.listdir(f"/proc/{runner.pid}/fd")))
    most = next(number for number in itertools.count() if number not in used)
    before = resource.prlimit(runner.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, (most, before[1]))
    # No number is free but those of the executor that ends, at most: a third socket finds none.
    crash_and_wait(runner, "could not be started")
    resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, before)
    in_state(jobs.echo.enqueue("again"), "completed")
    assert "Traceback" not in runner.stderr


@pytest.mark.fault("F16")
def test_runner_that_fails_hands_over_what_it_knows(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    """An error nobody thought of ends the loop: the job is reported, not left to its heartbeat."""
    job = jobs.hold.using(retry=LATER).enqueue(diary.path, diary.path + ".never")
    runner = worker("--no-maintenance", **sabotaged("loop fails", flag))
    _, pid = diary.wait("started")
    flag.set()
    assert runner.wait() == 1
    assert "sabotaged" in runner.stderr
    assert failed(job)["type"] == "worker_crash"
    assert [attempt.outcome for attempt in attempts(job)] == ["worker_crash"]
    assert not alive(int(pid))


@pytest.mark.fault("F49")
@pytest.mark.parametrize(("how", "code"), [("import fails", 1), ("import exits", 7)])
def test_handlers_that_the_worker_cannot_import(worker: StartWorker, how: str, code: int) -> None:
    job = jobs.echo.enqueue(1)
    runner = worker("--no-maintenance", **sabotaged(how))
    assert runner.wait() == code
    assert how == "import exits" or "ImportError: sabotaged" in runner.stderr
    assert (api.get(job).state, api.get(job).attempt) == ("available", 0)


@pytest.mark.fault("F49")
@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("import exits in executors", "an executor ended before it ran a job"),
        pytest.param(
            "import hangs in executors",
            "an executor did not start in time: 1.0 s",
            marks=pytest.mark.long,
        ),
    ],
)
def test_handlers_that_an_executor_cannot_import(worker: StartWorker, how: str, complaint: str) -> None:
    job = jobs.echo.enqueue(1)
    runner = worker("--no-maintenance", **sabotaged(how))
    poll(lambda: runner.stderr.count(complaint) >= 2, 60)
    told = runner.stderr.count("an executor")
    began = time.monotonic()
    poll(lambda: time.monotonic() - began > 1)
    assert runner.stderr.count("an executor") - told <= 2, "a hot loop"
    assert (api.get(job).state, api.get(job).attempt) == ("available", 0)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
