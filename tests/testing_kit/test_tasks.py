"""Tasks of ``django.tasks`` in tests."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from tests.settings import HAS_TASKS

if not HAS_TASKS:
    pytest.skip("django-tasks is not installed", allow_module_level=True)

from django_ojs import enqueue, get
from django_ojs.tasks_backend import OJSTask, TaskContext, task
from django_ojs.tasks_backend.compat import (
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from django_ojs.testing import Drained, assert_enqueued, drain, fail_next, perform
from tests.workload.django_tasks import add, patient

KIT = "django_ojs.testing"


def backend(name: str) -> Any:
    """Settings with a backend of the testing kit."""
    return override_settings(TASKS={"default": {"BACKEND": f"{KIT}.{name}", "QUEUES": []}})


def double(number: int) -> int:
    """A task."""
    return 2 * number


async def needless(context: TaskContext, number: int) -> int:
    """A task that never asks for its result."""
    return number


async def curious(context: TaskContext) -> list[str]:
    """A task that does."""
    return [context.task_result.id, context.task_result.backend]


def test_immediately() -> None:
    with backend("ImmediateBackend"):
        made = task(timeout="10m", retry={"max_attempts": 5})(double)
        assert isinstance(made, OJSTask)
        result = made.enqueue(4)
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 8)
        assert made.using(priority=0).enqueue(1).return_value == 2


def test_only_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    with backend("DummyBackend"):
        made = task(timeout="10m")(double)
        # The backend copies its tasks by the name of the module that they are in.
        monkeypatch.setitem(globals(), "double", made)
        made.enqueue(4)
        known: Any = task_backends["default"]
        assert [one.args for one in known.results] == [[4]]
        known.clear()
        assert known.results == []


def test_tasks_are_drained_and_found(database: str) -> None:
    result = add.enqueue(1, 2, scale=3)
    assert_enqueued(add, args=[1, 2], kwargs={"scale": 3}, count=1)
    assert drain() == Drained(completed=1)
    result.refresh()
    assert result.status is TaskResultStatus.SUCCESSFUL
    fail_next(add, ValueError)
    again = add.enqueue(1, 2)
    assert drain() == Drained(failed=1, discarded=1)
    again.refresh()
    assert again.status is TaskResultStatus.FAILED


def test_a_task_is_performed() -> None:
    assert perform(add, 1, 2, kwargs={"scale": 3}).state == "completed"


def test_a_task_with_a_context_is_performed_and_found(database: str) -> None:
    """The context is no argument of a call."""
    done = perform(patient, "diary", stop_after=1)
    assert (done.state, done.result) == ("completed", "told: timeout")
    with pytest.raises(TypeError, match=r"patient\(diary\): missing a required argument: 'diary'"):
        perform(patient)
    patient.enqueue("diary")
    assert_enqueued(patient, kwargs={"diary": "diary"}, count=1)


@pytest.mark.usefixtures("ojs_db")
def test_a_coroutine_that_does_not_ask_for_its_result_needs_none() -> None:
    """That is read before it runs; of an attempt that is only performed there is none."""
    assert perform(task(takes_context=True)(needless), 2).result == 2
    assert isinstance(perform(task(takes_context=True)(curious)).error, TaskResultDoesNotExist)


@pytest.mark.usefixtures("ojs_db")
def test_the_backend_of_a_task_is_that_of_its_declaration_if_no_other_has_enqueued_it() -> None:
    immediate = f"{Task.__module__.rpartition('.')[0]}.backends.immediate.ImmediateBackend"
    ours = "django_ojs.tasks_backend.OJSBackend"
    both = {"default": {"BACKEND": immediate}, "ojs": {"BACKEND": ours}}
    with override_settings(TASKS=both):
        task(type="kit.curious", backend="ojs", takes_context=True)(curious)
        made = enqueue("kit.curious")
        assert drain() == Drained(completed=1)
        assert get(made).result == [str(made.id), "ojs"]
