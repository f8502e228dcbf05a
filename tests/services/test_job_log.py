"""``django_ojs.job`` says once of each attempt how it ended, when that is committed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction

from django_ojs import api
from django_ojs.clock import FrozenClock
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import Actor
from django_ojs.services import operate, promote, reap
from django_ojs.services.settle import Outcome, Report, settle

from .support import ack, fail, held, make, release, take

pytestmark = pytest.mark.usefixtures("ojs_db")
SOON = {"max_attempts": 2, "initial_interval": "PT12S", "jitter": False}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged of jobs, from INFO on."""
    caplog.set_level(logging.INFO, "django_ojs.job")
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and message of each line of ours, which are forgotten."""
    found = [(r.levelname, r.getMessage()) for r in log.records if r.name == "django_ojs.job"]
    log.clear()
    return found


def only(log: pytest.LogCaptureFixture) -> Any:
    """The one record of ours."""
    (found,) = [record for record in log.records if record.name == "django_ojs.job"]
    return found


def test_completed(frozen: FrozenClock, log: pytest.LogCaptureFixture) -> None:
    make(retry=SOON)
    (job,) = take()
    frozen.advance(0.3)
    settle([Outcome(held(job), Report.ACK, claimed=job)])
    record = only(log)
    assert (record.levelname, record.getMessage()) == (
        "INFO",
        f"test.job {job.id} completed: queue default, attempt 1 of 2, 0.300 s",
    )
    assert (record.job_id, record.job_type, record.queue) == (str(job.id), "test.job", "default")
    assert (record.attempt, record.max_attempts, record.duration) == (1, 2, 0.3)
    assert (record.outcome, record.worker_id) == ("completed", "w1")


def test_what_ends_in_one_transaction_differs_all_the_same(
    frozen: FrozenClock, log: pytest.LogCaptureFixture
) -> None:
    """Each part of a line but the id is another one's too."""
    found = []
    for queue, retry in (("a", SOON), ("a", SOON), ("b", SOON), ("a", {"max_attempts": None})):
        make(retry=retry, queue=queue)
        found += take(queues=(queue,))
        frozen.advance(1)
    settle([Outcome(held(job), Report.ACK, claimed=job) for job in found])
    one, two, three, four = (f"test.job {job.id} completed: queue" for job in found)
    assert {message for _, message in lines(log)} == {
        f"{one} a, attempt 1 of 2, 4.000 s",
        f"{two} a, attempt 1 of 2, 3.000 s",
        f"{three} b, attempt 1 of 2, 2.000 s",
        f"{four} a, attempt 1, 1.000 s",
    }


def test_where_there_is_no_limit_none_is_named(log: pytest.LogCaptureFixture) -> None:
    make(retry={"max_attempts": None})
    (job,) = take()
    settle([Outcome(held(job), Report.ACK, claimed=job)])
    assert "queue default, attempt 1, " in only(log).getMessage()


def test_retry_is_a_warning_and_the_last_failure_an_error(
    frozen: FrozenClock, log: pytest.LogCaptureFixture
) -> None:
    (job,) = make(retry=SOON)
    trace = ["Traceback (most recent call last):", '  File "x.py", line 1, in f\n    boom()']
    failure = Failure("ValueError", "no such\nreport \x1b[2J", backtrace=trace)
    (job,) = take()
    frozen.advance(1)
    settle([Outcome(held(job), Report.FAIL, failure=failure)])
    record = only(log)
    assert lines(log) == [
        (
            "WARNING",
            f"test.job {job.id} retryable: queue default, attempt 1 of 2, 1.000 s, again in 12.000 s:"
            " ValueError: no such\\nreport \\x1b[2J\n"
            "    Traceback (most recent call last):\n"
            '      File "x.py", line 1, in f\n'
            "        boom()",
        )
    ]
    assert (record.error_type, record.retry_delay) == ("ValueError", 12.0)
    assert record.traceback == "\n".join(trace)
    frozen.advance(12)
    promote.promote()
    (job,) = take()
    fail(job, backtrace=trace)
    ((level, message),) = lines(log)
    assert level == "ERROR"
    assert message.startswith(f"test.job {job.id} discarded: queue default, attempt 2 of 2, 0.000 s: ")
    assert "boom()" in message


def test_timeouts_are_what_they_lead_to(frozen: FrozenClock, log: pytest.LogCaptureFixture) -> None:
    make(timeout=2, grace_period=1, retry=SOON)
    make(timeout=2, grace_period=1, retry={"max_attempts": 1})
    make(heartbeat_timeout=2, retry=SOON)
    make(queue="elsewhere", enqueue_ttl=3)
    take(3)
    frozen.advance(3)
    reap.reap()
    found = sorted((level, message.split(" of ", 1)[1]) for level, message in lines(log))
    assert found == [
        ("ERROR", "1, 3.000 s: timeout: Job execution exceeded timeout of 2 seconds"),
        ("ERROR", "3: enqueue_ttl_expired: Job did not start within 3 seconds"),
        (
            "WARNING",
            "2, 3.000 s, again in 12.000 s: stalled: No heartbeat for 2 seconds",
        ),
        (
            "WARNING",
            "2, 3.000 s, again in 12.000 s: timeout: Job execution exceeded timeout of 2 seconds",
        ),
    ]


def test_what_operators_and_workers_decide(log: pytest.LogCaptureFixture) -> None:
    make(2)
    (job,) = take()
    operate.cancel([job.id], actor=Actor("admin"))
    assert [level for level, _ in lines(log)] == ["INFO"]
    (job,) = take()
    release(job)
    assert lines(log) == []
    (job,) = take()
    settle([Outcome(held(job), Report.REQUEUE)])
    ((level, message),) = lines(log)
    assert (level, "given back" in message) == ("INFO", True)


def test_started_is_for_debugging(log: pytest.LogCaptureFixture) -> None:
    log.set_level(logging.DEBUG, "django_ojs.job")
    make()
    (job,) = take()
    ((level, message),) = lines(log)
    assert level == "DEBUG"
    assert message == f"test.job {job.id} started: queue default, attempt 1 of 3"


def test_rolled_back_is_not_said(log: pytest.LogCaptureFixture) -> None:
    make()
    (job,) = take()
    with transaction.atomic():
        ack(job)
        assert lines(log) == []
        transaction.set_rollback(True)
    assert lines(log) == []
    ack(job)
    assert len(lines(log)) == 1
    ack(job)
    assert lines(log) == [], "a repeated report ends nothing"


def test_a_level_that_is_off_costs_nothing(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.set_level(logging.WARNING, "django_ojs.job")
    asked: list[int] = []
    logger = logging.getLogger("django_ojs.job")
    enabled = logger.isEnabledFor

    def ask(level: int) -> bool:
        asked.append(level)
        return enabled(level)

    monkeypatch.setattr(logger, "isEnabledFor", ask)
    api.enqueue_many("test.job", [[number] for number in range(20)])
    claimed = take(20)
    asked.clear()
    with transaction.atomic():
        settle([Outcome(held(job), Report.ACK, claimed=job) for job in claimed])
        assert not transaction.get_connection().run_on_commit
    assert asked == [logging.DEBUG, logging.INFO, logging.WARNING]


def test_lines_of_one_commit_share_the_time_and_nothing_else(
    frozen: FrozenClock, log: pytest.LogCaptureFixture
) -> None:
    make(retry=SOON)
    make(retry=SOON)
    one, two = take(limit=2)
    late = Failure("ValueError", "no such report")
    settle(
        [
            Outcome(held(one), Report.ACK, claimed=one),
            Outcome(held(two), Report.FAIL, failure=late),
        ]
    )
    records: list[Any] = [record for record in log.records if record.name == "django_ojs.job"]
    first, second = records
    assert {(r.job_id, r.levelname, r.levelno, r.outcome) for r in (first, second)} == {
        (str(one.id), "INFO", logging.INFO, "completed"),
        (str(two.id), "WARNING", logging.WARNING, "retryable"),
    }
    assert first.getMessage() != second.getMessage()
    assert {hasattr(record, "error_type") for record in (first, second)} == {False, True}
