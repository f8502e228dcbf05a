"""Results are read from the job and its attempts; nothing in a row is trusted."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import api, clock, exceptions
from django_ojs.domain.job import JobRow
from django_ojs.models import Attempt, Job
from django_ojs.services.promote import promote
from django_ojs.services.reap import reap
from django_ojs.tasks_backend.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from tests.services.support import ack, fail, release, take
from tests.workload.django_tasks import Rejected, add, flaky, overrun

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
PATH = "django_ojs.tasks_backend.OJSBackend"


def claimed(task: Any, worker: str = "w1") -> JobRow:
    """The job of a task, claimed."""
    from django_ojs.tasks_backend.task import type_of

    (job,) = take(types=[type_of(task)], worker=worker)
    return job


def test_a_result_follows_its_job() -> None:
    result = add.enqueue(1)
    assert (result.status, result.is_finished, result.attempts) == (READY, False, 0)
    assert (result.started_at, result.finished_at) == (None, None)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    job = claimed(add)
    result.refresh()
    assert (result.status, result.worker_ids, result.attempts) == (RUNNING, ["w1"], 1)
    assert result.started_at == result.last_attempted_at == job.started_at
    ack(job, result='{"of":[1]}')
    result.refresh()
    assert (result.status, result.is_finished) == (SUCCESSFUL, True)
    assert result.return_value == {"of": [1]}
    assert result.finished_at == api.get(job).finished_at
    assert (result.errors, result.worker_ids) == ([], ["w1"])


def test_errors_and_workers_are_those_of_the_attempts() -> None:
    result = flaky.enqueue(3)
    first = claimed(flaky)
    fail(first, type="tests.workload.django_tasks.Rejected", backtrace=["Traceback", "line"])
    result.refresh()
    # It will be tried again.
    assert (result.status, result.is_finished, result.attempts) == (READY, False, 1)
    Job.objects.update(state="available")
    release(claimed(flaky, "w2"))
    second = claimed(flaky, "w3")
    fail(second, type="worker_crash")
    result.refresh()
    assert result.status == FAILED
    assert result.worker_ids == ["w1", "w3"]
    assert result.started_at == first.started_at
    assert result.last_attempted_at == second.started_at
    assert [one.exception_class for one in result.errors] == [Rejected, exceptions.WorkerLost]
    assert result.errors[0].traceback.startswith("Traceback\nline\n")
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ("timeout", exceptions.JobTimeout),
        ("total_timeout", exceptions.TotalTimeout),
        ("enqueue_ttl_expired", exceptions.EnqueueExpired),
        ("stalled", exceptions.HeartbeatLost),
        ("visibility_timeout", exceptions.HeartbeatLost),
        ("shutdown", exceptions.WorkerLost),
        ("handler_not_found", exceptions.UnknownTask),
        ("result_unserialisable", TypeError),
        ("result_too_large", ValueError),
        ("builtins.ZeroDivisionError", ZeroDivisionError),
        ("ValidationError", exceptions.JobFailed),
        ("com.example.Trouble", exceptions.JobFailed),
        ("os.path", exceptions.JobFailed),
        ("django.contrib.auth.models.User.DoesNotExist", User.DoesNotExist),
        ("django.contrib.auth.models.User.objects", exceptions.JobFailed),
        ("django.contrib.auth.models.User.DoesNotExist.nothing", exceptions.JobFailed),
    ],
)
def test_each_kind_of_error_has_a_class(stored: str, found: type[BaseException]) -> None:
    result = add.enqueue(1)
    fail(claimed(add), type=stored, retryable=False)
    result.refresh()
    (error,) = result.errors
    assert error.exception_class is found
    assert "no" in error.traceback


def test_timeouts_are_timeout_errors() -> None:
    """So that ``except TimeoutError`` and ``issubclass`` know them."""
    names = ("JobTimeout", "TotalTimeout", "EnqueueExpired", "HeartbeatLost")
    assert all(issubclass(getattr(exceptions, name), TimeoutError) for name in names)


@pytest.mark.usefixtures("frozen")
def test_a_job_that_ended_without_an_attempt_says_why(frozen: clock.FrozenClock) -> None:
    expired = add.using(enqueue_ttl=5).enqueue(1)
    frozen.advance(6)
    reap(using="default")
    cancelled = add.enqueue(2)
    api.cancel(cancelled.id)
    for result, kind in ((expired, exceptions.EnqueueExpired), (cancelled, exceptions.JobCancelled)):
        result.refresh()
        assert result.status == FAILED
        assert [one.exception_class for one in result.errors] == [kind]
        assert (result.attempts, result.started_at) == (0, None)


@pytest.mark.usefixtures("frozen")
def test_a_total_timeout_between_attempts_comes_after_their_errors(frozen: clock.FrozenClock) -> None:
    result = flaky.using(total_timeout="1m", retry={"max_attempts": 5, "initial_interval": 30}).enqueue(
        9
    )
    fail(claimed(flaky), type="builtins.KeyError")
    frozen.advance(61)
    reap(using="default")
    result.refresh()
    assert [one.exception_class for one in result.errors] == [KeyError, exceptions.TotalTimeout]


def test_what_has_no_row_or_no_task_does_not_exist() -> None:
    others = api.enqueue("work.keywords", [1], kwargs={"only": 2})
    for result_id in ("123", "", str(api.new_id()), str(others.id)):
        with pytest.raises(TaskResultDoesNotExist):
            add.get_backend().get_result(result_id)
    assert add.get_backend().get_result(str(add.enqueue(1).id)).args == [1]


def test_the_result_of_another_task_does_not_match() -> None:
    made = add.enqueue(1)
    with pytest.raises(Exception, match="does not match"):
        flaky.get_result(made.id)


def test_a_result_is_one_query_and_two_after_an_attempt() -> None:
    from django.db import connection

    result = add.enqueue(1)
    with CaptureQueriesContext(connection) as seen:
        result.refresh()
    assert len(seen) == 1
    ack(claimed(add))
    with CaptureQueriesContext(connection) as seen:
        result.refresh()
    assert len(seen) == 2


def test_a_task_rebuilt_from_a_row_is_not_validated() -> None:
    """An operator may have changed the queue, or the queue may have left the settings."""
    with override_settings(TASKS={"default": {"BACKEND": PATH, "QUEUES": ["default"]}}):
        result = add.enqueue(1)
        Job.objects.update(queue="elsewhere", priority=100)
        result.refresh()
        found = add.get_result(result.id)
        assert (found.task.queue_name, found.task.priority) == ("elsewhere", 100)
        assert (type(found.task), found.task.func) == (type(add), add.func)
        assert found.task.name == "add"
        # Enqueueing it is another matter.
        with pytest.raises(InvalidTask, match="elsewhere"):
            found.task.enqueue(1)
    assert found.task.enqueue(1).task.queue_name == "elsewhere"


def test_a_row_never_chooses_what_is_imported() -> None:
    """Neither its type, nor its error, nor the backend in its meta."""
    absent = "tests.workload.settings_traced"
    sys.modules.pop(absent, None)
    result = add.enqueue(1)
    Job.objects.update(type=f"{absent}.anything", meta={"ojs.backend": absent})
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(result.id)
    Job.objects.update(type="tests.workload.django_tasks.add", meta={})
    fail(claimed(add), type=f"{absent}.DATABASES", retryable=False)
    result.refresh()
    assert result.errors[0].exception_class_path == f"{absent}.DATABASES"
    assert result.errors[0].exception_class is exceptions.JobFailed
    assert absent not in sys.modules


def test_a_retry_moves_no_time_of_the_task() -> None:
    result = flaky.enqueue(1)
    fail(claimed(flaky))
    result = flaky.get_result(result.id)
    assert (result.status, result.task.run_after) == (READY, None)


def test_a_task_was_enqueued_once(frozen: clock.FrozenClock) -> None:
    """Its job becomes available again and again: when its time comes, and for each attempt."""
    result = flaky.using(delay="1h").enqueue(1)
    enqueued_at = result.enqueued_at
    assert enqueued_at == clock.now("default")
    for _ in range(2):
        frozen.advance(3600)
        assert promote(using="default") == 1
        result.refresh()
        assert result.enqueued_at == enqueued_at
        fail(claimed(flaky))


def test_middleware_that_drops_a_task_fails_it() -> None:
    sent: list[Any] = []
    api.enqueue_middleware.add(lambda request, store: None, name="drop")
    try:
        result = add.enqueue(1)
        sent.append(result)
    finally:
        api.enqueue_middleware.remove("drop")
    assert (result.status, [e.exception_class for e in result.errors]) == (
        FAILED,
        [exceptions.JobDropped],
    )
    assert not Job.objects.exists()


def test_attempts_that_were_given_back_count_for_nothing() -> None:
    result = overrun.enqueue("x")
    release(claimed(overrun))
    result.refresh()
    assert Attempt.objects.count() == 1
    assert (result.status, result.attempts, result.started_at) == (READY, 0, None)
