"""Errors of real workers, as Sentry gets them from its own client."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.observability.sentry_server import SentryServer, sentry_server
from tests.process.tools import Diary, Start, StartWorker, failed, in_state
from tests.support import Manage
from tests.workload import jobs
from tests.workload.tools import AT_ONCE, LATER

pytestmark = pytest.mark.process
TWICE = {**AT_ONCE, "max_attempts": 2}


@pytest.fixture
def sentry() -> Iterator[SentryServer]:
    with sentry_server() as made:
        yield made


@pytest.fixture
def reporting(sentry: SentryServer) -> Callable[..., dict[str, str]]:
    """The environment of a process that reports; keywords are options of the integration."""

    def environment(**options: bool) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.workload.settings_sentry",
            "OJS_TEST_SENTRY": sentry.dsn,
            "OJS_TEST_SENTRY_OPTIONS": json.dumps(options),
            "NO_PROXY": "127.0.0.1",
        }

    return environment


def stop(runner: Manage) -> None:
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0, runner.stderr


def test_one_event_for_a_job_that_is_discarded(
    worker: StartWorker, sentry: SentryServer, reporting: Callable[..., dict[str, str]]
) -> None:
    trace = f"00-{'a1' * 16}-{'b2' * 8}-01"
    job = jobs.fail_with.using(retry=TWICE, meta={"traceparent": trace}).enqueue("classified")
    fine = jobs.echo.enqueue("classified")
    runner = worker(**reporting())
    in_state(job, "discarded")
    in_state(fine, "completed")
    stop(runner)
    (event,) = sentry.events
    about = event["contexts"]["ojs"]
    assert (about["job_id"], about["job_type"]) == (str(job.id), "work.fail-with")
    assert (about["attempt"], about["max_attempts"], about["state"]) == (2, 2, "discarded")
    assert about["worker_id"]
    assert event["contexts"]["trace"]["trace_id"] == "a1" * 16
    assert event["transaction"] == "work.fail-with"
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["module"]) == ("LookupError", "builtins")
    frame = exception["stacktrace"]["frames"][-1]
    assert frame["function"] == "fail_with"
    assert frame["context_line"].startswith("raise LookupError(")
    assert "classified" not in sentry.text, "arguments are not sent unasked"


def test_every_failure_and_the_arguments_if_asked(
    worker: StartWorker, sentry: SentryServer, reporting: Callable[..., dict[str, str]]
) -> None:
    job = jobs.fail_with.using(retry=TWICE).enqueue("declassified")
    runner = worker(**reporting(report_retries=True, send_arguments=True))
    in_state(job, "discarded")
    stop(runner)
    about = [event["contexts"]["ojs"] for event in sentry.events]
    assert [(one["attempt"], one["state"]) for one in about] == [(1, "retryable"), (2, "discarded")]
    assert [one["args"] for one in about] == [["declassified"]] * 2


def test_one_event_for_what_is_killed_or_crashes(
    worker: StartWorker,
    diary: Diary,
    sentry: SentryServer,
    reporting: Callable[..., dict[str, str]],
) -> None:
    killed = jobs.swallow.enqueue(diary.path)
    last = jobs.swallow.using(retry={"max_attempts": 1}).enqueue(diary.path)
    crashed = jobs.exit_now.using(retry=LATER).enqueue(3)
    runner = worker("--concurrency=3", **reporting())
    failed(killed)
    failed(last, "discarded")
    failed(crashed)
    stop(runner)
    for job, state in ((killed, "retryable"), (last, "discarded")):
        (event,) = sentry.of(job.id)
        assert event["contexts"]["ojs"]["state"] == state
        assert event["fingerprint"] == ["ojs", "work.swallow", "execution"]
        (exception,) = event["exception"]["values"]
        assert exception["type"] == "timeout"
        assert "exceeded timeout of 4 seconds" in exception["value"]
    (event,) = sentry.of(crashed.id)
    assert event["fingerprint"] == ["ojs", "work.exit", "worker_crash"]
    assert "exited with status 3" in event["exception"]["values"][0]["value"]
    assert len(sentry.events) == 3


def test_what_a_handler_sends_has_its_job_and_no_other(
    worker: StartWorker, sentry: SentryServer, reporting: Callable[..., dict[str, str]]
) -> None:
    first, second = jobs.tell_sentry.enqueue("one"), jobs.tell_sentry.enqueue("two")
    runner = worker(**reporting())
    in_state(first, "completed")
    in_state(second, "completed")
    stop(runner)
    for job, text in ((first, "one"), (second, "two")):
        (event,) = sentry.of(job.id)
        assert event["message"] == text
        assert event["tags"]["left_behind"] == text
        assert event["contexts"]["ojs"]["attempt"] == 1
        assert "args" not in event["contexts"]["ojs"]


def test_a_reaper_reports_what_nobody_ran(
    manage: Start, sentry: SentryServer, reporting: Callable[..., dict[str, str]]
) -> None:
    job = jobs.echo.using(enqueue_ttl="PT0.001S").enqueue(1)
    assert manage("reap_timeouts", **reporting()).wait() == 0
    (event,) = sentry.of(job.id)
    assert event["fingerprint"] == ["ojs", "work.echo", "enqueue_ttl"]
    assert len(sentry.events) == 1
