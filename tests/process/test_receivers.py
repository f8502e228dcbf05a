"""Receivers of signals that take their time, in workers and reapers."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from django_ojs import api
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state, sabotaged
from tests.support import not_none, poll
from tests.workload import jobs

pytestmark = pytest.mark.process


@pytest.fixture
def stuck(diary: Diary, flag: Flag) -> dict[str, str]:
    """The environment in which every receiver hangs while the flag is set."""
    flag.set()
    return {**sabotaged("receiver hangs", flag), "OJS_SABOTAGE_DIARY": diary.path}


def test_a_receiver_that_hangs_holds_up_no_report_and_no_beat(
    worker: StartWorker, diary: Diary, flag: Flag, stuck: dict[str, str], tmp_path: Path
) -> None:
    end = Flag(tmp_path / "end")
    held = jobs.hold.using(heartbeat_timeout=2).enqueue(diary.path, end.path)
    runner = worker("--concurrency=2", **stuck)
    diary.wait("started")
    done = [in_state(jobs.echo.using(heartbeat_timeout=2).enqueue(n), "completed") for n in range(5)]
    beat = not_none(api.get(held).heartbeat_at)
    poll(lambda: not_none(api.get(held).heartbeat_at) > beat)
    end.set()
    in_state(held, "completed")
    assert [api.get(job).attempt for job in [held, *done]] == [1] * 6
    assert not diary.lines("job.completed")
    stuck_since = time.monotonic()
    poll(lambda: time.monotonic() - stuck_since > 1.2)
    flag.clear()
    diary.wait("job.completed", 6)
    assert [line[0] for line in diary.lines("job.completed")[:5]] == [str(job.id) for job in done]
    poll(lambda: "slow receiver: " in runner.stderr)
    assert "slow receiver: tests.workload.sabotage.jobs._hanging" in runner.stderr


def test_a_full_queue_stops_claims_and_nothing_else(
    worker: StartWorker, diary: Diary, flag: Flag, stuck: dict[str, str]
) -> None:
    made = [jobs.echo.enqueue(number) for number in range(60)]
    runner = worker(**{**stuck, "OJS_SABOTAGE": "few events wait"})
    poll(lambda: re.search(r"suspended \(\d+ events wait; the receiver tests\.workload", runner.stderr))
    # Every report of what was claimed is written, the reaper goes on, the rest is left to others.
    poll(lambda: not [job for job in made if api.get(job).state == "active"])
    made.append(jobs.echo.enqueue("later"))
    in_state(jobs.echo.using(enqueue_ttl="PT0.5S").enqueue("too late"), "discarded")
    assert (api.get(made[-1]).state, api.get(made[-1]).attempt) == ("available", 0)
    flag.clear()
    for job in made:
        assert in_state(job, "completed").attempt == 1
    assert "have caught up" in runner.stderr
    poll(lambda: len(diary.lines("job.completed")) == len(made))
    assert "events dropped" in runner.stderr, "the event of the deadline that the reaper enforced"
    assert not diary.lines("job.ttl_expired")


def test_what_is_left_at_the_end_is_counted(
    worker: StartWorker, diary: Diary, flag: Flag, stuck: dict[str, str]
) -> None:
    job = jobs.echo.enqueue(1)
    runner = worker("--shutdown-timeout=1", **stuck)
    in_state(job, "completed")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert re.search(
        r"events not delivered to receivers: \d+; the receiver tests\.workload", runner.stderr
    )
    assert not diary.lines("job.completed")


def test_the_last_events_are_delivered_before_the_end(
    worker: StartWorker, diary: Diary, flag: Flag, stuck: dict[str, str]
) -> None:
    made = [jobs.echo.enqueue(number) for number in range(20)]
    runner = worker(**stuck)
    for job in made:
        in_state(job, "completed")
    runner.send(signal.SIGTERM)
    poll(lambda: "stopping (SIGTERM)" in runner.stderr)
    flag.clear()
    assert runner.wait() == 0
    assert [line[0] for line in diary.lines("job.completed")] == [str(job.id) for job in made]
    assert "not delivered" not in runner.stderr


def test_a_receiver_that_hangs_holds_up_no_deadline_of_a_reaper(
    manage: Start, diary: Diary, flag: Flag, stuck: dict[str, str]
) -> None:
    reaper = manage("reap_timeouts", "--loop", **stuck)
    for number in range(3):
        in_state(jobs.echo.using(enqueue_ttl="PT0.2S").enqueue(number), "discarded", timeout=15)
    assert not diary.lines("job.ttl_expired")
    flag.clear()
    diary.wait("job.ttl_expired", 3)
    reaper.send(signal.SIGTERM)
    assert reaper.wait() == 0


def test_receivers_of_what_a_handler_does_run_in_its_process(
    worker: StartWorker, diary: Diary, flag: Flag, stuck: dict[str, str]
) -> None:
    flag.clear()
    runner = worker(**stuck)
    parent = jobs.enqueue_echo.enqueue()
    in_state(parent, "completed")
    _, process = diary.lines("job.enqueued")[0]
    assert int(process) != runner.pid
    assert attempts(parent)[0].outcome == "completed"
    diary.wait("job.completed", 2)
    assert {line[1] for line in diary.lines("job.completed")} == {str(runner.pid)}
