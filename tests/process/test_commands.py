"""``runworker`` and ``reap_timeouts`` as an operator meets them: options, exit codes, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time

import pytest
from django.core.management import CommandError, call_command

from django_ojs import api, clock
from django_ojs.models import Worker
from tests.process.tools import (
    LATE,
    Diary,
    Flag,
    Start,
    StartWorker,
    attempts,
    failed,
    in_state,
    on_time,
)
from tests.support import alive, not_none, poll
from tests.workload import jobs

pytestmark = pytest.mark.process


@pytest.mark.fault("F8", "F11")
def test_term_lets_a_running_job_finish(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.hold.using(heartbeat_timeout=8).enqueue(diary.path, flag.path)
    runner = worker()
    diary.wait("started")
    runner.send(signal.SIGTERM)
    poll(lambda: "stopping (SIGTERM)" in runner.stderr)
    late = jobs.echo.enqueue(1)
    runner.send(signal.SIGCONT)
    beat = not_none(api.get(job).heartbeat_at)
    poll(lambda: not_none(api.get(job).heartbeat_at) > beat)
    flag.set()
    assert runner.wait() == 0
    assert api.get(job).result == "attempt 1"
    assert (api.get(late).state, api.get(late).attempt) == ("available", 0)
    assert Worker.objects.get().phase == "stopped"


@pytest.mark.fault("F9")
def test_job_that_outlives_the_shutdown_fails_with_shutdown(worker: StartWorker, diary: Diary) -> None:
    job = jobs.swallow.using(timeout=300, grace_period=1).enqueue(diary.path)
    runner = worker("--shutdown-timeout", "3")
    pids = [int(pid) for pid in diary.wait("started")]
    sent = clock.now("default")
    runner.send(signal.SIGTERM)
    runner.wait()
    (attempt,) = attempts(job)
    assert (attempt.ended_at - sent).total_seconds() >= 2.9
    error = failed(job, "retryable", "available")
    assert (error["type"], error["attempt"]) == ("shutdown", 1)
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.fault("F9")
def test_soft_signal_before_the_end_of_a_shutdown(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    job = jobs.hold.using(grace_period=60).enqueue(diary.path, flag.path)
    runner = worker("--shutdown-timeout", "13")
    diary.wait("started")
    sent = clock.now("default")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    (attempt,) = attempts(job)
    assert (attempt.outcome, not_none(attempt.error)["type"]) == ("shutdown", "shutdown")
    # The soft signal comes at most ten seconds before the end, when all that is left is killed.
    assert 2.9 <= (attempt.ended_at - sent).total_seconds() < 12.9


def test_timeout_during_a_shutdown_stays_a_timeout(worker: StartWorker, diary: Diary) -> None:
    job = jobs.swallow.enqueue(diary.path)
    runner = worker("--shutdown-timeout", "60")
    diary.wait("started")
    runner.send(signal.SIGTERM)
    runner.wait()
    assert failed(job)["type"] == "timeout"
    assert on_time(attempts(job)[0], 5)


@pytest.mark.fault("F10")
def test_second_term_is_at_once(worker: StartWorker, diary: Diary) -> None:
    job = jobs.swallow.using(timeout=300).enqueue(diary.path)
    runner = worker("--shutdown-timeout", "60")
    pids = [int(pid) for pid in diary.wait("started")]
    runner.send(signal.SIGTERM)
    poll(lambda: "stopping (SIGTERM): jobs running: 1, for up to 60 s; a second" in runner.stderr)
    after_the_first()
    runner.send(signal.SIGTERM)
    runner.wait(30)
    assert "second signal (SIGTERM): jobs killed: 1" in runner.stderr
    assert failed(job, "retryable", "available")["type"] == "shutdown"
    assert not [pid for pid in pids if alive(pid)]


def after_the_first() -> None:
    """Wait until a signal is no longer taken for an echo of the one just obeyed."""
    seen = time.monotonic()
    poll(lambda: time.monotonic() - seen > 0.6)


@pytest.mark.fault("F10")
def test_signals_that_arrive_together_are_one_order(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    """``timeout`` signals the process and then its group: the job keeps its time."""
    job = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker()
    diary.wait("started")
    os.kill(runner.pid, signal.SIGTERM)
    os.kill(runner.pid, signal.SIGINT)
    poll(lambda: "repeated signal ignored" in runner.stderr)
    flag.set()
    assert runner.wait() == 0
    assert [attempt.outcome for attempt in attempts(job)] == ["completed"]


@pytest.mark.fault("F10")
def test_the_first_signal_kills_nothing_also_when_a_limit_has_stopped_the_worker(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    job = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker("--max-runtime", "1s")
    diary.wait("started")
    poll(lambda: "stopping (limit): jobs running: 1" in runner.stderr)
    os.kill(runner.pid, signal.SIGTERM)
    os.kill(runner.pid, signal.SIGINT)
    poll(lambda: "repeated signal ignored" in runner.stderr)
    flag.set()
    assert runner.wait() == 75
    assert [attempt.outcome for attempt in attempts(job)] == ["completed"]


def test_second_interrupt_exits_130(worker: StartWorker, diary: Diary) -> None:
    jobs.swallow.using(timeout=300).enqueue(diary.path)
    runner = worker()
    diary.wait("started")
    runner.send(signal.SIGINT)
    poll(lambda: "stopping (SIGINT)" in runner.stderr)
    after_the_first()
    runner.send(signal.SIGINT)
    assert runner.wait() == 130


@pytest.mark.fault("F11")
def test_quiet_and_running_again(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker()
    diary.wait("started")
    runner.send(signal.SIGTSTP)
    poll(lambda: "quiet" in runner.stderr)
    waiting = jobs.echo.enqueue("quiet")
    poll(lambda: Worker.objects.filter(phase="quiet").exists())
    flag.set()
    in_state(job, "completed")
    assert api.get(waiting).state == "available"
    assert runner.running
    runner.send(signal.SIGCONT)
    in_state(waiting, "completed")
    poll(lambda: Worker.objects.filter(phase="running").exists())


@pytest.mark.parametrize("program", [("manage.py",), ("-m", "django")])
def test_a_worker_that_reloads_starts_as_it_was_started(
    python: Start, program: tuple[str, ...]
) -> None:
    job = jobs.echo.enqueue(1)
    runner = python(*program, "runworker", "--reload", "--concurrency=1")
    in_state(job, "completed")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0


def test_a_worker_that_reloads_stops_when_its_parent_is_killed(manage: Start) -> None:
    job = jobs.echo.enqueue(1)
    runner = manage("runworker", "--reload", "--concurrency=1")
    in_state(job, "completed")
    runner.send(signal.SIGKILL)
    assert runner.wait() == -signal.SIGKILL
    poll(lambda: Worker.objects.get().phase == "stopped")


@pytest.mark.parametrize("parent", ["1", "x", ""])
def test_a_worker_whose_reloader_is_gone_says_so(manage: Start, parent: str) -> None:
    runner = manage("runworker", "--reload", OJS_RELOADING=parent)
    assert runner.wait() == 1
    assert runner.stderr == "runworker --reload: the process of OJS_RELOADING is not its parent\n"


@pytest.mark.every_database
def test_drain_ends_with_a_summary(worker: StartWorker) -> None:
    made = jobs.echo.enqueue_many([[number] for number in range(500)])
    runner = worker("--drain", "-v2")
    assert runner.wait(60) == 0
    assert {api.get(job).state for job in made} == {"completed"}
    *_, summary, last = runner.stdout.strip().splitlines()
    # On a busy machine some were claimed too early.
    ended = r"ended after [\d.]+ m?s: 500 jobs completed(, \d+ given back unbegun)?"
    assert re.fullmatch(ended, summary), summary
    found = re.fullmatch(r"\d+\.\d jobs/s, ([\d.]+) statements per job", last)
    assert found, last
    assert float(found[1]) < 1


def test_drain_of_nothing_ends_at_once_and_speaks_json(worker: StartWorker) -> None:
    runner = worker("--drain", "--format", "json")
    assert runner.wait() == 0
    assert json.loads(runner.stdout.strip().splitlines()[-1])["jobs"] == 0


def test_once_runs_one_job(worker: StartWorker) -> None:
    made = [jobs.echo.enqueue(number) for number in range(5)]
    runner = worker("--once", "--concurrency", "2")
    assert runner.wait() == 0
    states = sorted(api.get(job).state for job in made)
    assert states == ["available"] * 4 + ["completed"]
    assert {api.get(job).attempt for job in made if api.get(job).state == "available"} == {0}


def test_max_jobs_exits_75(worker: StartWorker) -> None:
    made = [jobs.echo.enqueue(number) for number in range(10)]
    assert worker("--max-jobs", "3").wait() == 75
    states = sorted(api.get(job).state for job in made)
    assert states == ["available"] * 7 + ["completed"] * 3


def test_a_cancelled_job_uses_up_none_of_max_jobs(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    """Else the worker could claim no other, and would never have run enough of them to end."""
    held = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker("--max-jobs", "1")
    diary.wait("started")
    api.cancel(held)
    after = jobs.echo.enqueue("after")
    assert runner.wait() == 75
    assert (api.get(held).state, api.get(after).state) == ("cancelled", "completed")


def test_max_runtime_exits_75(worker: StartWorker) -> None:
    assert worker("--max-runtime", "1").wait() == 75


def test_banner_names_what_is_served(worker: StartWorker) -> None:
    runner = worker("--queue", "one", "--queue", "two", "--worker-id", "named", "--drain")
    assert runner.wait() == 0
    assert "worker named" in runner.stdout
    assert "one, two" in runner.stdout
    assert "ojs.admin.bulk" not in runner.stdout, "nobody has written that handler"
    assert Worker.objects.get().name == "named"


def test_queues_are_served_as_told(worker: StartWorker) -> None:
    one = jobs.echo.using(queue="one").enqueue(1)
    two = jobs.echo.using(queue="two").enqueue(2)
    assert worker("--queue", "two", "--drain").wait() == 0
    assert (api.get(one).state, api.get(two).state) == ("available", "completed")
    three = jobs.echo.using(queue="three").enqueue(3)
    assert worker("--exclude-queue", "one", "--drain").wait() == 0
    assert (api.get(one).state, api.get(three).state) == ("available", "completed")


@pytest.mark.parametrize(
    "arguments",
    [
        ("runworker", "--queue", "Not A Queue"),
        ("runworker", "--exclude-queue", "ä"),
        ("runworker", "--concurrency", "0"),
        ("runworker", "--max-jobs", "0"),
        ("runworker", "--max-runtime", "-1"),
        ("runworker", "--shutdown-timeout", "soon"),
        ("runworker", "--worker-id", "a/b"),
        ("runworker", "--health-port", "0"),
        ("runworker", "--health-port", "65536"),
        ("runworker", "--no-such-option", ""),
        ("reap_timeouts", "--interval", "0", "--loop"),
        ("reap_timeouts", "--interval", "x", "--loop"),
        ("reap_timeouts", "--limit", "0", "--loop"),
    ],
)
def test_bad_option_is_refused_by_its_name(ojs_db: None, arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as refused:
        call_command(*arguments)
    assert arguments[1] in str(refused.value)


@pytest.mark.parametrize(
    "arguments", [("runworker", "--concurrency", "0"), ("reap_timeouts", "--interval", "0", "--loop")]
)
def test_bad_option_exits_2_naming_it(manage: Start, arguments: tuple[str, ...]) -> None:
    process = manage(*arguments)
    assert process.wait() == 2
    assert arguments[1] in process.stderr
    assert "Traceback" not in process.stderr


def test_no_handlers(manage: Start) -> None:
    runner = manage("runworker", DJANGO_SETTINGS_MODULE="tests.workload.settings_without_handlers")
    assert runner.wait() == 1
    assert "no job handlers are registered" in runner.stderr
    assert "Traceback" not in runner.stderr


@pytest.mark.every_database
@pytest.mark.parametrize("command", ["runworker", "reap_timeouts"])
def test_no_migrations(manage: Start, tmp_path: object, command: str) -> None:
    process = manage(command, DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
    assert process.wait() == 1
    assert "manage.py migrate" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("command", ["runworker", "reap_timeouts"])
@pytest.mark.parametrize("scheme", ["postgres", "mysql"])
def test_database_down_exits_69(manage: Start, command: str, scheme: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        process = manage(command, DATABASE_URL=f"{scheme}://root@127.0.0.1:{port}/none")
        assert process.wait() == 69
    assert "is not available" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.every_database
def test_reaper_once_check_and_dry_run(manage: Start) -> None:
    job = jobs.echo.using(enqueue_ttl="PT0.001S").enqueue(1)
    assert manage("reap_timeouts", "--check").wait() == 3
    tried = manage("reap_timeouts", "--dry-run", "--format", "json")
    assert tried.wait() == 0
    assert json.loads(tried.stdout)["overdue"] == 1
    assert api.get(job).state == "available"
    done = manage("reap_timeouts", "--format", "json")
    assert done.wait() == 0
    assert json.loads(done.stdout)["by_kind"] == {"enqueue_ttl": 1}
    assert not_none(api.get(job).error)["type"] == "enqueue_ttl_expired"
    assert manage("reap_timeouts", "--check").wait() == 0


@pytest.mark.every_database
def test_reaper_loop_is_prompt_and_ends_on_term(manage: Start) -> None:
    reaper = manage("reap_timeouts", "--loop")
    poll(lambda: "reaping" in reaper.stdout)
    made = [jobs.echo.using(enqueue_ttl=f"PT{1 + n / 10}S").enqueue(n) for n in range(5)]
    for job in made:
        ended = in_state(job, "discarded")
        assert ended.finished_at is not None
        due = job.created_at.timestamp() + (job.enqueue_ttl_ms or 0) / 1000
        assert 0 <= ended.finished_at.timestamp() - due < LATE
    reaper.send(signal.SIGTERM)
    assert reaper.wait() == 0
