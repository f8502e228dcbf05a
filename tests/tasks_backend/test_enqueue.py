"""Tasks become jobs in the caller's transaction, with the limits of task, function and settings."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import api, clock, periodic
from django_ojs.clock import FrozenClock
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import Duplicate, InvalidRequest
from django_ojs.handlers import registry
from django_ojs.models import Job, Schedule
from django_ojs.services.schedules import declared, fire
from django_ojs.tasks_backend import OJSBackend, OJSTask, handlers, limits, task
from django_ojs.tasks_backend.compat import InvalidTask, Task, TaskResultStatus, task_backends
from django_ojs.tasks_backend.handlers import TaskHandler, adopt, adopt_all
from tests.support import not_none
from tests.workload.django_tasks import add, flaky, limited, overrun, patient, shape, throttled

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
PATH = "django_ojs.tasks_backend.OJSBackend"
TYPE = "tests.workload.django_tasks.add"


def two_backends(**settings: Any) -> Any:
    """Settings with a second backend, named ``second``."""
    second = {"BACKEND": PATH, "QUEUES": [], **settings}
    return override_settings(TASKS={"default": {"BACKEND": PATH, "QUEUES": []}, "second": second})


def test_a_task_is_a_job() -> None:
    result = add.using(queue_name="low_priority", priority=7).enqueue(1, 2, scale=3)
    row = Job.objects.get(pk=result.id)
    assert (row.type, row.queue, row.priority, row.state) == (TYPE, "low_priority", 7, "available")
    assert (row.args, row.meta) == ([1, 2, {"scale": 3}], {"ojs.kwargs": True})
    assert (result.args, result.kwargs, result.status) == ([1, 2], {"scale": 3}, TaskResultStatus.READY)
    assert (result.task.queue_name, result.enqueued_at) == ("low_priority", row.created_at)
    assert result == add.get_result(result.id)


def test_without_keywords_there_is_no_mark() -> None:
    row = Job.objects.get(pk=add.enqueue(1).id)
    assert (row.args, row.meta) == ([1], {})


def test_a_rolled_back_transaction_leaves_no_task() -> None:
    with transaction.atomic():
        add.enqueue(1)
        transaction.set_rollback(True)
    assert not Job.objects.exists()


def test_an_enqueue_is_one_statement() -> None:
    with override_settings(OJS={}):
        add.enqueue(0)
        with CaptureQueriesContext(transaction.get_connection("default")) as seen:
            add.enqueue(1, scale=2)
    assert len(seen) == 1


def test_arguments_become_json_as_for_every_backend() -> None:
    result = shape.enqueue(((1, 2), {"a": b"text"}), **{})
    assert result.args == [[[1, 2], {"a": "text"}]]
    assert Job.objects.get(pk=result.id).args == result.args
    with pytest.raises(TypeError, match="Unsupported type"):
        shape.enqueue(datetime.now(UTC))
    with pytest.raises(InvalidRequest, match="finite"):
        shape.enqueue(float("nan"))


def test_a_time_to_run_after() -> None:
    later = clock.now("default").replace(microsecond=0) + timedelta(hours=1)
    first = add.using(run_after=later).enqueue(1)
    row = Job.objects.get(pk=first.id)
    assert (row.state, row.scheduled_at) == ("scheduled", later)
    assert add.get_result(first.id).task.run_after == later
    for task_ in (add.using(run_after=timedelta(hours=1)), add.using(delay="1h")):
        made: Any = Job.objects.get(pk=task_.enqueue(1).id)
        assert abs((made.scheduled_at - made.created_at).total_seconds() - 3600) < 60
    with pytest.raises(TypeError, match="excludes"):
        add.using(run_after=later, delay=5)


def test_the_same_id_is_the_same_job() -> None:
    job_id = api.new_id()
    first = add.using(id=job_id).enqueue(1)
    again = add.using(id=str(job_id)).enqueue(1)
    assert first.id == again.id == str(job_id)
    with pytest.raises(Duplicate):
        add.using(id=job_id).enqueue(2)
    with pytest.raises(InvalidTask, match="id"):
        add.using(id=UUID(int=1))
    assert Job.objects.count() == 1


def test_tasks_may_be_unique() -> None:
    first = add.using(unique=True).enqueue(1, 2)
    with pytest.raises(Duplicate) as caught:
        add.using(unique=True).enqueue(1, 2)
    assert caught.value.details["existing_job_id"] == first.id
    again = add.using(throttle="1h").enqueue(1, 2)
    assert again.id == first.id
    for chosen, name in ((add, "first"), (flaky, "good_from")):
        latest = chosen.using(unique={"args_keys": [name]}, debounce="30s")
        before = latest.enqueue(7)
        assert latest.enqueue(7).id != before.id
        assert api.get(before.id).state == "cancelled"


def test_a_declared_policy_holds_for_every_job_of_the_type() -> None:
    assert throttled.enqueue(1).id == throttled.enqueue(1).id
    assert throttled.enqueue(2).id != throttled.enqueue(1).id
    assert api.enqueue("tests.workload.django_tasks.throttled", [2]).deduplicated
    assert not api.enqueue("tests.workload.django_tasks.throttled", [2], unique=False).deduplicated
    assert throttled.using(unique=False).enqueue(1).id != throttled.enqueue(1).id


def test_who_says_what_the_limits_are() -> None:
    """``using()``, then ``@task``, then ``@limits``, then the queue, then ``DEFAULTS``."""
    settings = {
        "DEFAULTS": {"grace_period": "7s", "timeout": "1h"},
        "QUEUES": {"slow": {"grace_period": "8s", "timeout": "2h", "enqueue_ttl": "3h"}},
    }
    with override_settings(OJS=settings):
        made = {
            "plain": Job.objects.get(pk=add.enqueue(1).id),
            "queue": Job.objects.get(pk=add.using(queue_name="slow").enqueue(1).id),
            "function": Job.objects.get(pk=limited.using(queue_name="slow").enqueue().id),
            "task": Job.objects.get(pk=overrun.using(queue_name="slow").enqueue("x").id),
            "call": Job.objects.get(pk=overrun.using(timeout=2, max_attempts=5).enqueue("x").id),
        }
    found = {name: (j.timeout_ms, j.grace_period_ms, j.max_attempts) for name, j in made.items()}
    assert found == {
        "plain": (3_600_000, 7_000, 1),
        "queue": (7_200_000, 8_000, 1),
        "function": (600_000, 8_000, 7),
        "task": (1_000, 0, 1),
        "call": (2_000, 0, 5),
    }
    assert made["queue"].enqueue_ttl_ms == 10_800_000
    assert made["function"].heartbeat_timeout_ms == 60_000


def test_limits_hold_for_jobs_of_the_type_from_elsewhere() -> None:
    """As those of ``@job``: who enqueues it over HTTP gets them too."""
    assert api.enqueue("work.tasks.limited").timeout_ms == 600_000


def test_the_short_forms_are_parts_of_the_policy() -> None:
    row = Job.objects.get(pk=flaky.enqueue(1).id)
    assert row.retry["backoff_strategy"] == "constant"
    assert (row.max_attempts, row.retry["initial_interval"]) == (2, "PT1S")
    other = flaky.using(backoff="exponential", retry={"max_attempts": 9}, max_attempts=4)
    row = Job.objects.get(pk=other.enqueue(1).id)
    assert (row.max_attempts, row.retry["backoff_strategy"]) == (4, "exponential")


def test_a_policy_of_the_call_replaces_what_short_forms_have_declared() -> None:
    """Each for the parts that it names; a short form of the same call holds."""
    called = flaky.using(retry={"max_attempts": 9, "initial_interval": 30})
    row = Job.objects.get(pk=called.enqueue(1).id)
    assert (row.max_attempts, row.retry["initial_interval"]) == (9, "PT30S")
    row = Job.objects.get(pk=flaky.using(retry={"maxAttempts": 9, "backoff": "linear"}).enqueue(1).id)
    assert (row.max_attempts, row.retry["backoff_strategy"]) == (9, "linear")
    row = Job.objects.get(pk=flaky.using(retry={"jitter": False}).enqueue(1).id)
    assert (row.max_attempts, row.retry["initial_interval"]) == (2, "PT1S")
    short = flaky.using(retry={"max_attempts": 9, "backoff_strategy": "exponential"}, backoff=60)
    row = Job.objects.get(pk=short.enqueue(1).id)
    assert (row.max_attempts, row.retry["backoff_strategy"]) == (9, "constant")


def test_meta_and_tags() -> None:
    with two_backends():
        tagged = add.using(meta={"tenant": "acme"}, tags=["a"], backend="second")
        result = tagged.enqueue(1, scale=2)
        row = Job.objects.get(pk=result.id)
        assert row.tags == ["a"]
        assert row.meta == {"tenant": "acme", "ojs.backend": "second", "ojs.kwargs": True}
        # Whoever is asked says by whom it was enqueued.
        assert add.get_result(result.id).backend == result.backend == "second"


def not_decorated() -> None: ...


def foreign() -> None: ...


def _private() -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": "soon"}, "timeout"),
        ({"retry": {"max_attempts": -1}}, "max_attempts"),
        ({"retry": {"attempts": 1}}, "attempts"),
        ({"backoff": len}, "backoff"),
        ({"queue_name": "No Good"}, "queue"),
        ({"priority": 101}, "priority"),
        ({"type": "No.Type"}, "type="),
        ({"type": "ojs.mine"}, "must not begin"),
        ({"heartbeat": "never"}, "heartbeat"),
        ({"meta": {"_ojs_x": 1}}, "must not begin"),
        ({"meta": "x"}, "meta: must be an object"),
        ({"total_timeout": 1, "timeout": 2}, "total_timeout"),
        ({"takes_context": True}, "context"),
    ],
)
def test_a_wrong_option_is_an_invalid_task(options: dict[str, Any], said: str) -> None:
    before = registry.types()
    with pytest.raises(InvalidTask, match=said):
        task(**options)(not_decorated)
    assert registry.types() == before or not {"type", "heartbeat"} & options.keys()


def test_a_function_whose_name_cannot_be_a_type_says_what_to_do() -> None:
    with pytest.raises(InvalidTask, match=r"_private.*type=\.\.\."):
        task(_private)


def test_unknown_options_are_refused_where_they_are_written() -> None:
    with pytest.raises(TypeError, match="timeuot"):
        task(timeuot=5)(not_decorated)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="did you mean 'timeout'"):
        add.using(timeuot=5)  # type: ignore[call-arg]
    for name in ("type", "takes_context", "func", "heartbeat"):
        with pytest.raises(TypeError, match=name):
            add.using(**dict[str, Any]({name: "x"}))
    for name in ("run_after", "id"):
        with pytest.raises(TypeError, match=r"using\(" + name):
            task(**dict[str, Any]({name: None}))(not_decorated)
    with pytest.raises(InvalidRequest, match=r"@limits\('not_decorated'\): timeout"):
        limits(timeout="soon")(not_decorated)


def test_two_functions_cannot_share_a_type() -> None:
    with pytest.raises(InvalidTask, match="is both"):
        task(type=TYPE)(not_decorated)
    # That of a job neither.
    with pytest.raises(InvalidTask, match="is both"):
        task(type="work.keywords")(not_decorated)


def also_a_job(value: int) -> int:
    return value


def test_one_function_may_be_a_job_and_a_task() -> None:
    handler = api.job("test.also-a-job", timeout=5)(also_a_job)
    made = task(type="test.also-a-job", timeout=9)(also_a_job)
    assert registry.find("test.also-a-job") is handler
    assert Job.objects.get(pk=made.enqueue(1).id).timeout_ms == 9_000
    assert handler.enqueue(1).timeout_ms == 5_000
    assert made.get_result(str(handler.enqueue(2).id)).args == [2]


def test_a_task_of_another_class_is_enqueued_too() -> None:
    """What an app has declared for another backend: it is moved with ``using(backend=...)``."""
    immediate = f"{Task.__module__.rpartition('.')[0]}.backends.immediate.ImmediateBackend"
    both = {"default": {"BACKEND": immediate, "QUEUES": []}, "ojs": {"BACKEND": PATH, "QUEUES": []}}
    with override_settings(TASKS=both):
        plain: Any = Task(
            func=foreign,
            priority=0,
            backend="default",
            queue_name="default",
            run_after=None,
        )
        moved = plain.using(backend="ojs", queue_name="moved")
        first, second = moved.enqueue(), moved.enqueue()
        assert Job.objects.get(pk=first.id).queue == "moved"
        assert moved.get_result(second.id).task == moved
        assert isinstance(registry.find("tests.tasks_backend.test_enqueue.foreign"), TaskHandler)


def test_options_of_ours_are_left_out_for_other_backends() -> None:
    """An import must not fail because a test uses another backend."""
    immediate = f"{Task.__module__.rpartition('.')[0]}.backends.immediate.ImmediateBackend"
    with override_settings(TASKS={"default": {"BACKEND": immediate, "QUEUES": []}}):
        plain = task(timeout="10m", priority=0)(not_decorated)
        assert type(plain) is Task
        with pytest.raises(TypeError, match="timeuot"):
            task(timeuot=5)(not_decorated)  # type: ignore[call-overload]


def test_queues_are_checked_when_the_settings_have_changed() -> None:
    other = add.using(queue_name="elsewhere")
    with (
        override_settings(TASKS={"default": {"BACKEND": PATH, "QUEUES": ["here"]}}),
        pytest.raises(InvalidTask, match="elsewhere"),
    ):
        other.enqueue(1)
    assert Job.objects.count() == 0
    assert other.enqueue(1).task.queue_name == "elsewhere"


def test_asynchronous_twins() -> None:
    async def work() -> tuple[Any, Any]:
        made = await add.aenqueue(1, scale=2)
        found = await add.aget_result(made.id)
        await made.arefresh()
        # The thread in which it was done has a connection of its own.
        await sync_to_async(connections.close_all)()
        return made, found

    made, found = asyncio.run(work())
    assert made == found
    assert Job.objects.get(pk=made.id).args == [1, {"scale": 2}]


def test_a_task_that_a_worker_may_not_know_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    made = task(type="test.late-task")(late)
    with caplog.at_level(logging.WARNING, "django_ojs.tasks"):
        made.enqueue()
        made.enqueue()
        add.enqueue(1)
    assert [record.getMessage().split(" ")[2] for record in caplog.records] == ["'test.late-task'"]


def late() -> None: ...


def test_adopting_all_looks_through_what_is_imported() -> None:
    adopt_all(["tasks", "no_such_module"])
    assert adopt(add) == TYPE
    handler = registry.find(TYPE)
    assert isinstance(handler, TaskHandler)
    assert handler.function is add.func


def test_what_is_declared_is_of_our_class() -> None:
    assert isinstance(add, OJSTask)
    assert isinstance(task_backends["default"], OJSBackend)
    assert hash(add) == hash(add.using())
    assert add.using() == add
    # Nothing beside the arguments is made anew at an enqueue.
    assert Envelope._fields[:2] == ("type", "args_json")


def test_the_checks_of_a_project_with_tasks_are_silent() -> None:
    assert run_checks() == []


def test_limits_say_how_a_task_is_told_to_stop() -> None:
    handler = registry.find("tests.workload.django_tasks.patient")
    assert (handler.soft, handler.heartbeat) == ("flag", "manual")
    assert Job.objects.get(pk=patient.enqueue("x").id).timeout_ms == 1_000
    for name, wrong in (("soft", "hard"), ("heartbeat", "never")):
        with pytest.raises(InvalidRequest, match=f"{name}: must be one of"):
            limits(**{name: wrong})  # type: ignore[arg-type]


async def alone() -> None: ...


@pytest.mark.parametrize(
    ("below", "own", "found"),
    [(True, None, True), (True, False, False), (False, True, True), (None, None, False)],
)
def test_a_task_has_the_last_word_over_limits(
    monkeypatch: pytest.MonkeyPatch, below: bool | None, own: bool | None, found: bool
) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(handlers, "_declared", dict(handlers._declared))
    monkeypatch.setattr(alone, "__ojs_limits__", {}, raising=False)
    declared = alone if below is None else limits(isolate=below)(alone)
    task(type="test.alone", isolate=own)(declared)
    assert registry.find("test.alone").isolate is found


def test_a_task_is_enqueued_on_a_schedule(frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_declared", {})
    decorated = periodic("@hourly", name="tasks.hourly", args=[1], kwargs={"scale": 2})(add)
    assert decorated is add
    with pytest.raises(ValueError, match="declared twice"):
        periodic("@daily", name="tasks.hourly")(add)
    declared.sync(using="default")
    row = Schedule.objects.get()
    frozen.time = not_none(row.due_at)
    fire.fire_due(using="default")
    job = Job.objects.get()
    assert (job.type, job.args, job.meta["cron_name"]) == (TYPE, [1, {"scale": 2}], "tasks.hourly")
    assert add.get_result(str(job.id)).kwargs == {"scale": 2}


def test_the_arguments_of_a_step_are_checked_at_once() -> None:
    assert add.step(1, scale=3) is not None
    assert add.steps([(1, 2), {"first": 1}]) is not None
    for args, kwargs in (((), {}), ((), {"skale": 3})):
        with pytest.raises(TypeError, match=f"^{TYPE}: .*'first'"):
            add.step(*args, **kwargs)
        with pytest.raises(TypeError, match=f"^{TYPE}: .*'first'"):
            add.steps([(1, 2), kwargs or args])
    assert patient.step("diary") is not None, "its context is no argument"
    with pytest.raises(TypeError, match="too many positional arguments"):
        patient.step("context", "diary")
