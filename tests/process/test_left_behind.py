"""What a handler leaves behind in its process, its session and the processes around it."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

import pytest
from django.db import connection

from django_ojs import api
from tests.process.tools import Diary, Flag, StartWorker, attempts, in_state, sabotaged
from tests.support import ROOT, alive, not_none, poll
from tests.workload import jobs, misbehaving

pytestmark = pytest.mark.process


@pytest.mark.parametrize("what", ["resource limits", "working folder", "umask", "signal handlers"])
def test_a_changed_process_runs_no_other_job(worker: StartWorker, what: str) -> None:
    before = [jobs.echo.enqueue(number) for number in range(100)]
    changed = misbehaving.leave_changed.enqueue(what)
    after = [misbehaving.look.enqueue() for _ in range(20)]
    runner = worker("--drain")
    assert runner.wait(30) == 0
    assert f"a handler left behind: {what}" in runner.stderr
    own_mask = os.umask(0)
    os.umask(own_mask)
    like_before = {
        "limits": list(resource.getrlimit(resource.RLIMIT_FSIZE)),
        "folder": str(ROOT),
        "umask": own_mask,
        "deaf": False,
    }
    found = [api.get(job).result for job in after]
    assert [state for _, state in found] == [like_before] * 20
    assert api.get(changed).result not in [pid for pid, _ in found]
    assert [api.get(job).attempt for job in [*before, changed, *after]] == [1] * 121


SESSIONS: dict[str, list[tuple[str, str]]] = {
    "sqlite": [("PRAGMA cache_size = 123", "PRAGMA cache_size")],
    "postgresql": [
        ("SET statement_timeout = 12345", "SHOW statement_timeout"),
        ("SELECT set_config('work_mem', '12345', false)", "SHOW work_mem"),
        (
            "SELECT pg_advisory_lock(4711)",
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711",
        ),
    ],
    "mysql": [
        ("SET SESSION lock_wait_timeout = 12345", "SELECT @@SESSION.lock_wait_timeout"),
        ("SET @ojs_left = 12345", "SELECT @ojs_left"),
        ("SELECT GET_LOCK('ojs-left', 0)", "SELECT IS_FREE_LOCK('ojs-left') = 0"),
    ],
}


@pytest.mark.every_database
@pytest.mark.parametrize("number", range(3))
def test_a_changed_session_is_seen_by_no_other_job(worker: StartWorker, number: int) -> None:
    known = SESSIONS[connection.vendor]
    if number >= len(known):
        pytest.skip("this database has fewer ways to change a session")
    change, look = known[number]
    made = [misbehaving.run_sql.enqueue(statement) for statement in (look, change, look)]
    assert worker("--drain").wait(30) == 0
    (first, _, before), (second, _, _), (third, _, after) = (api.get(job).result for job in made)
    assert before == after
    assert first == second == third, "the process is as good as before"


@pytest.mark.every_database
def test_a_session_that_was_used_as_it_is_goes_on(worker: StartWorker) -> None:
    """Nothing is reset, nor asked, behind a job that changed nothing."""
    who = {
        "postgresql": "SELECT pg_backend_pid()",
        "mysql": "SELECT CONNECTION_ID()",
        "sqlite": "SELECT 1",
    }[connection.vendor]
    made = [misbehaving.run_sql.enqueue(who) for _ in range(10)]
    assert worker("--drain").wait(30) == 0
    assert len({tuple(api.get(job).result) for job in made}) == 1


@pytest.mark.parametrize("how", ["it ends", "it runs over", "a child holds the channel"])
def test_a_keeper_that_was_stopped_is_replaced(worker: StartWorker, diary: Diary, how: str) -> None:
    stopped = misbehaving.stop_keeper.enqueue(diary.path, how)
    runner = worker()
    monitor, executor = map(int, diary.wait("stopped"))
    after = in_state(jobs.echo.enqueue("after"), "completed", timeout=60)
    in_state(stopped, "retryable", timeout=60)
    (attempt,) = attempts(stopped)
    began = not_none(attempt.started_at if how != "it runs over" else attempt.ended_at)
    assert (not_none(after.started_at) - began).total_seconds() < 5
    assert (attempt.ended_at - not_none(attempt.started_at)).total_seconds() < 5
    poll(lambda: not alive(monitor) and not alive(executor))
    assert runner.running


def test_a_stopped_keeper_does_not_outlive_the_worker(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    held = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker()
    executor = int(diary.wait("started")[1])
    below = runner.below()
    (monitor,) = [pid for pid in below if executor in children_of(pid)]
    os.kill(monitor, signal.SIGSTOP)
    runner.send(signal.SIGKILL)
    poll(lambda: not [pid for pid in below if alive(pid)], 15)
    assert api.get(held).state == "active"


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.parametrize("fork", [True, False])
@pytest.mark.parametrize("kind", ["orm", "thread", "exporter", "own exporter", "short thread"])
def test_threads_that_are_no_harm_cost_no_process(worker: StartWorker, kind: str, fork: bool) -> None:
    """20 jobs on 2 executors are run by 2 processes."""
    make: Any = {
        "orm": lambda: jobs.count_async.enqueue(),
        "thread": lambda: jobs.think_async.enqueue(),
        "exporter": lambda: jobs.export.enqueue("OtelBatchSpanRecordProcessor"),
        "own exporter": lambda: jobs.export.enqueue("our-metrics-7"),
        "short thread": lambda: jobs.leave_short_thread.enqueue(),
    }[kind]
    made = [make() for _ in range(20)]
    how = "exporter at import" if fork else "thread at import"
    environment = sabotaged(how, BACKGROUND_THREADS=["our-metrics"])
    runner = worker("--drain", "--concurrency=2", **environment)
    assert runner.wait(60) == 0, runner.stderr
    pids = {in_state(job, "completed").result for job in made}
    assert len(pids) <= 2
    assert "recycling" not in runner.stderr


@pytest.mark.every_database
def test_a_session_of_an_async_handler_is_closed_too(worker: StartWorker) -> None:
    made = [jobs.change_session_async.enqueue(), jobs.change_session_async.enqueue()]
    assert worker("--drain").wait(30) == 0
    (first, before), (second, after) = (api.get(job).result for job in made)
    assert first == second
    assert before == after


def test_an_executor_has_no_descriptor_of_the_runner(drained: StartWorker) -> None:
    """Its own two: the channel and the liveness pipe. No database is open unless its handler asks."""
    job = misbehaving.descriptors.enqueue()
    drained()
    found = api.get(job).result
    assert "anon_inode" not in str(found), "the selector of the runner"
    assert [one for one in found if one in ("socket", "pipe")] == ["pipe", "socket"]
