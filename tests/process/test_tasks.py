"""Tasks of ``django.tasks`` run in real workers, and their results are there for everybody."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model

from django_ojs import api, batch, chain, exceptions, group, step, workflow
from django_ojs.models import Job
from tests.process.tools import Diary, StartWorker, in_state
from tests.settings import HAS_TASKS

pytestmark = [
    pytest.mark.process,
    pytest.mark.every_database,
    pytest.mark.skipif(not HAS_TASKS, reason="django-tasks is not installed"),
]


@pytest.fixture
def tasks() -> Any:
    """The tasks of the workload."""
    from tests.workload import django_tasks

    return django_tasks


def value(result: Any) -> Any:
    """What a task has returned, read anew."""
    result.refresh()
    return result.return_value


def test_tasks_run_and_return(drained: StartWorker, tasks: Any) -> None:
    made = {
        "plain": tasks.add.enqueue(1, 2, 3, scale=2),
        "defaults": tasks.add.enqueue(1),
        "async": tasks.count_users.enqueue(minus=-5),
        "tuples": tasks.shape.enqueue({"a": (1,)}),
        "context": tasks.flaky.enqueue(1),
        "async context": tasks.flaky_async.enqueue(),
        "ours": tasks.both.enqueue(7),
        "from a job": api.enqueue("tests.workload.django_tasks.add", [4], kwargs={"scale": 5}),
        "queue": tasks.add.using(queue_name="low_priority").enqueue(9),
    }
    misfit = tasks.add.enqueue(nothing=1)
    drained()
    found = {
        name: api.get(one).result if name == "from a job" else value(one) for name, one in made.items()
    }
    assert found == {
        "plain": 12,
        "defaults": 2,
        "async": get_user_model().objects.count() + 5,
        "tuples": [{"a": [1]}, {"of": [1, 2]}],
        "context": [1, made["context"].id, "RUNNING", 0, made["context"].id],
        "async context": [1, made["async context"].id, "flaky_async"],
        "ours": [1, 7],
        "from a job": 25,
        "queue": 10,
    }
    misfit.refresh()
    assert misfit.errors[0].exception_class is TypeError
    assert "'nothing'" in misfit.errors[0].traceback


def test_a_retry_is_seen_in_the_result(worker: StartWorker, tasks: Any) -> None:
    result = tasks.flaky.using(backoff="1s").enqueue(2)
    given_up = tasks.flaky.using(max_attempts=1).enqueue(9)
    worker()
    in_state(api.get(result.id), "completed")
    in_state(api.get(given_up.id), "discarded")
    assert value(result) == [2, result.id, "RUNNING", 1, result.id]
    assert (result.attempts, len(set(result.worker_ids))) == (2, 1)
    (error,) = result.errors
    assert error.exception_class is tasks.Rejected
    assert 'raise Rejected(f"attempt {context.attempt}")' in error.traceback
    assert error.traceback.rstrip().endswith("Rejected: attempt 1")
    given_up.refresh()
    assert given_up.status == "FAILED"


def test_a_task_that_runs_too_long_is_ended(worker: StartWorker, diary: Diary, tasks: Any) -> None:
    result = tasks.overrun.enqueue(diary.path)
    worker()
    in_state(api.get(result.id), "discarded")
    result.refresh()
    (error,) = result.errors
    assert error.exception_class is exceptions.JobTimeout
    assert issubclass(error.exception_class, TimeoutError)
    assert len(diary.lines("started")) == 1


def test_tasks_are_steps_of_workflows(drained: StartWorker, tasks: Any) -> None:
    add = tasks.add
    with workflow("sums") as dag:
        first = dag.add(add.step(1))
        second = dag.add(step(add, [2], kwargs={"scale": 3}), after=first)
        dag.add(step(tasks.count_users, when="ended"), after=[first, second])
    flows = [
        chain(add.step(10), step(add.using(queue_name="low_priority"), [20]), add.step(30)).enqueue(),
        group(add.steps([[40], {"first": 41, "scale": 2}])).enqueue(),
        batch(add.step(50), on_success=tasks.shape.step("done")).enqueue(),
        dag.record,
    ]
    drained()
    assert [api.get_workflow(flow).state for flow in flows] == ["completed"] * 4
    rows = Job.objects.filter(type="tests.workload.django_tasks.add").order_by("args")
    results = sorted(value(add.get_result(str(row.id))) for row in rows)
    assert results == [2, 9, 11, 21, 31, 41, 51, 84]
    assert Job.objects.filter(queue="low_priority").count() == 1


def test_limits_declare_how_a_task_is_told_to_stop(drained: StartWorker, tasks: Any) -> None:
    """Nothing is raised in it at its timeout, and what it returns within its grace period counts."""
    made = tasks.patient.enqueue("x")
    drained()
    assert value(made) == "told: timeout"
