"""What handlers log is stored with their attempts, however those end (``OJS["LOGS"]``)."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from django.db import connection

from django_ojs import api
from django_ojs.models import AttemptLog
from django_ojs.worker.prefork.log_tail import MOST_BYTES, MOST_LINES
from tests.process.tools import (
    LATE,
    Diary,
    Flag,
    Start,
    StartWorker,
    attempts,
    failed,
    in_state,
    lasted,
    sabotaged,
)
from tests.services.support import elsewhere
from tests.support import AnyJob, family, poll
from tests.workload import jobs, logged
from tests.workload.tools import AT_ONCE

pytestmark = [pytest.mark.every_database, pytest.mark.process]
LOGS = {"DJANGO_SETTINGS_MODULE": "tests.workload.settings_logs"}
CONSOLE = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "PROJECT %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {"shop.apart": {"handlers": ["console"], "propagate": False}},
}


def log_of(job: AnyJob, attempt: int = 0) -> AttemptLog:
    """The log of an ended attempt, as soon as it is stored."""
    (lease,) = [one.lease_id for one in attempts(job)[attempt : attempt + 1]]
    return poll(lambda: AttemptLog.objects.filter(job_id=job.id, lease_id=lease).first())


def said(log: AttemptLog) -> list[str]:
    """The lines of a log, without their times."""
    lines = log.text.split("\n")
    assert len(lines) == log.lines
    return [re.sub(r"^\d\d:\d\d:\d\d\.\d{3} ", "", line) for line in lines]


def test_a_handler_that_completes_leaves_its_lines(drained: StartWorker) -> None:
    job = logged.completes.enqueue("one")
    drained(**LOGS)
    in_state(job, "completed")
    log = log_of(job)
    first, second, *trace = said(log)
    assert first == "INFO shop.orders: began one"
    assert second == "ERROR shop.orders: went on with a� \\x1b[31m �"
    assert trace[0] == "    Traceback (most recent call last):"
    assert trace[-2:] == ["    LookupError: one", "    of two lines"]
    assert log.dropped == 0
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} INFO ", log.text)


def test_a_handler_that_fails_leaves_its_lines_in_each_attempt(worker: StartWorker) -> None:
    job = logged.fails.using(retry={**AT_ONCE, "max_attempts": 2}).enqueue("it")
    worker(**LOGS)
    in_state(job, "discarded")
    assert [said(log_of(job, number)) for number in range(2)] == [["WARNING shop.orders: about it"]] * 2
    assert AttemptLog.objects.count() == 2


def test_a_handler_that_is_killed_leaves_its_last_lines(worker: StartWorker, diary: Diary) -> None:
    job = logged.deaf.enqueue(diary.path)
    worker(**LOGS)
    diary.wait("started")
    assert failed(job)["type"] == "timeout"
    log = log_of(job)
    assert said(log)[-3:] == [
        "INFO shop.orders: line 999",
        "ERROR shop.orders: now it hangs",
        "INFO shop.orders: asked to stop",
    ]
    assert (log.lines, log.dropped) == (MOST_LINES, 1002 - MOST_LINES)


@pytest.mark.parametrize(("how", "why"), [("segfault", "SIGSEGV"), ("exit", "status 3")])
def test_a_handler_that_takes_its_process_along_leaves_its_last_line(
    drained: StartWorker, how: str, why: str
) -> None:
    job = logged.crashes.enqueue(how)
    drained(**LOGS)
    assert why in failed(job, "discarded")["message"]
    assert said(log_of(job)) == ["INFO shop.orders: last words"]


def test_executors_that_are_fresh_interpreters_keep_lines_too(drained: StartWorker) -> None:
    job = logged.crashes.enqueue("segfault")
    drained(**sabotaged("thread at import", LOGS="INFO"))
    assert "SIGSEGV" in failed(job, "discarded")["message"]
    assert said(log_of(job)) == ["INFO shop.orders: last words"]


def test_a_handler_that_logs_in_a_loop_is_bounded_and_delays_no_other(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    flood = logged.floods.enqueue(100_000)
    runner = worker("--concurrency=2", **LOGS)
    others = [jobs.echo.enqueue(number) for number in range(20)]
    for job in others:
        in_state(job, "completed")
    in_state(flood, "completed", timeout=60)
    log = log_of(flood)
    assert said(log)[-1] == "INFO shop.orders: line 99999"
    assert log.lines + log.dropped == 100_000
    assert log.lines <= MOST_LINES
    assert len(log.text.encode()) <= MOST_BYTES
    assert runner.running


def test_what_cannot_be_formatted_harms_nothing(drained: StartWorker) -> None:
    job = logged.broken.enqueue()
    drained(**LOGS)
    assert in_state(job, "completed").result == "completed"
    log = log_of(job)
    assert len(log.text.encode()) <= MOST_BYTES
    lines = said(log)
    assert lines[:3] == [
        "INFO shop.orders: a number: %d (not formatted: TypeError)",
        "INFO shop.orders: a thing: %s (not formatted: RuntimeError)",
        "INFO shop.orders: <Broken> (not formatted: RuntimeError)",
    ]
    assert lines[3] == "INFO shop.orders: " + "x" * 2000 + "… (1000000 characters)"
    assert lines[4:6] == ["INFO shop.orders: many", "    many"]
    assert lines[-1] == "    … (400 lines)"


def test_a_handler_is_stopped_while_it_logs(worker: StartWorker) -> None:
    job = logged.stops.enqueue()
    worker(**LOGS)
    assert failed(job)["type"] == "timeout"
    assert lasted(attempts(job)[0]) < 4 + LATE, "softly: its grace period is a minute"
    assert said(log_of(job))[-1] == "INFO shop.orders: stopped"


def test_who_is_interrupted_while_he_sends_may_log(drained: StartWorker) -> None:
    job = logged.interrupted.enqueue()
    runner = drained(**LOGS)
    assert in_state(job, "completed").result > 10
    assert "message" not in runner.stderr, "no torn frame"
    log = log_of(job)
    assert log.lines + log.dropped > 1_000


def test_the_exception_of_an_alarm_may_come_anywhere(drained: StartWorker) -> None:
    job = logged.alarms.enqueue()
    runner = drained(**LOGS)
    assert in_state(job, "completed").result > 450
    assert "message" not in runner.stderr
    assert said(log_of(job))[-1] == "INFO shop.orders: at the end"


def test_threads_and_loggers_apart_belong_to_the_job_and_children_do_not(drained: StartWorker) -> None:
    job = logged.threads.enqueue()
    runner = drained(**LOGS, OJS_TEST_LOGGING=json.dumps(CONSOLE))
    in_state(job, "completed")
    found = [line.rpartition(": ")[2] for line in said(log_of(job))]
    assert found == ["in a thread", "in a signal handler", "apart", "at the end"]
    for line in (*found, "in an exporter", "in a child"):
        assert runner.stderr.count(f"{line}\n") == 1, "the console is as it was"


def test_without_a_configuration_the_console_is_as_it_was(drained: StartWorker) -> None:
    job, failing = logged.completes.enqueue("quiet"), logged.fails.enqueue("loud")
    runner = drained(**LOGS)
    in_state(job, "completed")
    assert said(log_of(job))[0] == "INFO shop.orders: began quiet"
    assert said(log_of(failing)) == ["WARNING shop.orders: about loud"]
    assert "began quiet" not in runner.stderr
    assert runner.stderr.count("about loud\n") == 1


def test_a_project_that_configures_logging_in_a_handler(drained: StartWorker) -> None:
    first = logged.configures.enqueue()
    second = logged.fails.enqueue("the next one")
    drained(**LOGS)
    assert said(log_of(first)) == ["INFO shop.orders: before"]
    assert said(log_of(second)) == ["WARNING shop.orders: about the next one"]


def test_a_running_attempt_shows_what_it_has_logged_and_outlives_its_worker(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    job = logged.waits.enqueue(diary.path, flag.path)
    runner = worker("--no-maintenance", **LOGS)
    diary.wait("started")
    log = poll(lambda: AttemptLog.objects.filter(job_id=job.id).first())
    assert api.get(job).state == "active"
    assert said(log) == ["INFO shop.orders: waiting"]
    runner.send(signal.SIGKILL)
    manage("reap_timeouts", "--loop")
    assert failed(job)["type"] == "stalled"
    assert said(log_of(job)) == ["INFO shop.orders: waiting"]


def test_what_was_stored_of_a_running_attempt_is_replaced(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    job = logged.waits.enqueue(diary.path, flag.path)
    worker(**LOGS)
    poll(lambda: AttemptLog.objects.filter(job_id=job.id).exists())
    flag.set()
    in_state(job, "completed")
    poll(lambda: log_of(job).lines == 2)
    assert [line.rpartition(": ")[2] for line in said(log_of(job))] == ["waiting", "waited"]
    assert AttemptLog.objects.count() == 1


def test_coroutines_that_share_a_process_have_their_own_lines(drained: StartWorker) -> None:
    made = [(f"n{number}", logged.turns.enqueue(f"n{number}")) for number in range(12)]
    drained("--async-slots=4", **LOGS)
    assert len({in_state(job, "completed").result for _, job in made}) == 1
    for name, job in made:
        found = [line.partition(": ")[2] for line in said(log_of(job))]
        expected = ["0", "1", "2", "in a task", "in a thread", "in a thread"]
        assert found == [f"{name} {word}" for word in expected]


def test_coroutines_leave_their_lines_when_one_takes_their_process_along(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    made = [logged.turns_crash.enqueue(diary.path, flag.path) for _ in range(3)]
    worker("--async-slots=3", **LOGS)
    diary.wait("began", 3)
    flag.set()
    for job in made:
        poll(partial(attempts, job))
        assert said(log_of(job)) == ["INFO shop.orders: it will crash"]


@contextmanager
def without_the_table() -> Iterator[None]:
    """For the block the table of logs has another name: every statement that names it fails."""
    table = AttemptLog._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table}_away RENAME TO {table}")


def test_without_the_setting_the_table_is_not_touched(drained: StartWorker) -> None:
    done, failing = logged.completes.enqueue("one"), logged.fails.enqueue("two")
    with without_the_table():
        runner = drained("--no-maintenance")
        assert [in_state(job, "completed", "discarded").state for job in (done, failing)] == [
            "completed",
            "discarded",
        ]
    assert "attemptlog" not in runner.stderr
    assert "logs of attempts" not in runner.stderr


def test_a_log_that_cannot_be_stored_costs_no_outcome(drained: StartWorker) -> None:
    done, failing = logged.completes.enqueue("one"), logged.fails.enqueue("two")
    with without_the_table():
        runner = drained("--no-maintenance", **LOGS)
        assert in_state(done, "completed").attempt == 1
        assert in_state(failing, "discarded").attempt == 1
    assert f"the database refused a log: job {done.id}" in runner.stderr


@pytest.mark.skipif(family() == "sqlite", reason="whoever writes has the file to himself")
def test_a_locked_table_of_logs_holds_up_nothing(worker: StartWorker) -> None:
    table = AttemptLog._meta.db_table
    lock = {
        "postgresql": f"LOCK TABLE {table} IN SHARE MODE",
        "mysql": f"LOCK TABLES {table} READ",
    }[family()]

    def hold() -> None:
        with connection.cursor() as cursor:
            cursor.execute(lock)

    with elsewhere(hold):
        runner = worker("--concurrency=2", **LOGS)
        made = [logged.completes.enqueue(str(number)) for number in range(20)]
        for job in made:
            in_state(job, "completed")
            assert lasted(attempts(job)[0]) < LATE
        assert not AttemptLog.objects.exists()
        assert runner.running
    for job in made:
        assert said(log_of(job))[0].startswith("INFO shop.orders: began ")
    assert "refused" not in runner.stderr
