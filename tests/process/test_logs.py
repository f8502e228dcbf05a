"""What a worker and a reaper say of jobs on their console: everything, and once."""

from __future__ import annotations

import json
import re

import pytest

from django_ojs import api
from tests.process.tools import Diary, Flag, Start, StartWorker
from tests.support import poll
from tests.workload import jobs

pytestmark = pytest.mark.process
OWN_LOGGING = {"DJANGO_SETTINGS_MODULE": "tests.workload.settings_root_logging"}


def test_a_handler_that_raises_is_seen(drained: StartWorker) -> None:
    job = jobs.raise_text.using(retry={"max_attempts": 1}).enqueue(1)
    runner = drained()
    (line,) = [line for line in runner.stderr.splitlines() if str(job.id) in line]
    assert re.search(
        rf" ERROR work\.raise-text {job.id} discarded: queue default, attempt 1 of 1, \d\.\d+ s: ", line
    )
    assert runner.stderr.count("Traceback (most recent call last)") == 1
    assert "in raise_text" in runner.stderr


@pytest.mark.parametrize("environment", [{}, OWN_LOGGING], ids=["ours", "project's"])
def test_no_line_comes_twice(drained: StartWorker, environment: dict[str, str]) -> None:
    job = jobs.echo.enqueue(1)
    failed = jobs.exit_now.enqueue(3)
    runner = drained(**environment)
    for one in (job, failed):
        (line,) = [line for line in runner.stderr.splitlines() if str(one.id) in line]
        assert line.startswith("PROJECT") == bool(environment)


def test_json_lines(drained: StartWorker) -> None:
    job = jobs.raise_text.enqueue(1)
    runner = drained("--log-format", "json", "--format", "json", **OWN_LOGGING)
    lines = [json.loads(line) for line in runner.stderr.splitlines()]
    (line,) = [line for line in lines if line.get("job_id") == str(job.id)]
    assert (line["level"], line["logger"]) == ("WARNING", "django_ojs.job")
    assert (line["job_type"], line["attempt"], line["outcome"]) == ("work.raise-text", 1, "retryable")
    assert "in raise_text" in line["traceback"]
    assert "\n" not in line["message"]
    assert json.loads(runner.stdout)["jobs"] == 1


def test_quiet_says_what_went_wrong(drained: StartWorker) -> None:
    done, failed = jobs.echo.enqueue(1), jobs.raise_text.enqueue(1)
    runner = drained("-v0")
    assert str(done.id) not in runner.stderr
    assert str(failed.id) in runner.stderr
    assert runner.stdout == ""


def test_a_reaper_says_what_it_ended(manage: Start) -> None:
    job = jobs.echo.using(enqueue_ttl="PT0.001S").enqueue(1)
    reaper = manage("reap_timeouts", "--log-format", "json")
    assert reaper.wait() == 0
    (line,) = [json.loads(line) for line in reaper.stderr.splitlines()]
    assert (line["job_id"], line["level"]) == (str(job.id), "ERROR")
    assert line["error_type"] == "enqueue_ttl_expired"
    assert api.get(job).state == "discarded"


def test_a_job_that_is_taken_away_is_named(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    job = jobs.hold.using(heartbeat_timeout=2).enqueue(diary.path, flag.path)
    runner = worker()
    diary.wait("started")
    api.cancel(job)
    poll(lambda: f"INFO soft stop of work.hold {job.id}: cancelled" in runner.stderr)
    assert " WARNING " not in runner.stderr


def test_an_attempt_that_overruns_is_told_and_settled(drained: StartWorker, diary: Diary) -> None:
    job = jobs.loop.using(timeout=1, retry={"max_attempts": 1}).enqueue(diary.path)
    runner = drained()
    assert f"INFO soft stop of work.loop {job.id}: timeout" in runner.stderr
    ended = rf"ERROR work\.loop {job.id} discarded: queue default, attempt 1 of 1, \d\.\d+ s: timeout: "
    assert re.search(ended, runner.stderr)


def test_the_lines_of_a_handler_say_which_job(drained: StartWorker) -> None:
    trace = f"00-{'a1' * 16}-{'b2' * 8}-01"
    job = jobs.log.using(meta={"traceparent": trace}).enqueue("hello")
    environment = {"DJANGO_SETTINGS_MODULE": "tests.workload.settings_job_logging"}
    found = [json.loads(line) for line in drained(**environment).stderr.splitlines()]
    (line,) = [line for line in found if line["logger"] == "shop.orders"]
    assert (line["message"], line["order"]) == ("says hello", 7)
    assert (line["job_id"], line["job_type"]) == (str(job.id), "work.log")
    assert (line["attempt"], line["trace_id"]) == (1, "a1" * 16)
    (outcome,) = [line for line in found if line["logger"] == "django_ojs.job"]
    assert (outcome["job_id"], outcome["attempt"]) == (str(job.id), 1)


def test_text_lines_say_it_too_and_none_lacks_it(drained: StartWorker) -> None:
    job = jobs.log.enqueue("hello")
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.workload.settings_job_logging",
        "OJS_TEST_FORMAT": "text",
    }
    lines = drained(**environment).stderr.splitlines()
    assert f"TEXT {job.id} work.log 1 None says hello" in lines
    assert all(line.startswith("TEXT ") for line in lines)
