"""Enqueue middleware: what it sees, changes, drops and refuses (OJS middleware 3 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from django_ojs import chain, enqueue, enqueue_many, enqueue_middleware, group, step
from django_ojs.api import InvalidRequest
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.job import JobRow
from django_ojs.models import Job, Workflow

pytestmark = pytest.mark.usefixtures("ojs_db")

Next = Callable[[EnqueueRequest], EnqueueRequest | None]
seen: list[str] = []


def first(request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
    seen.append("first")
    return next(request.replace(meta={**request.meta, "by": "first"}))


def second(request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
    seen.append(f"second after {request.meta.get('by')}")
    return next(request)


def dropping(request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
    return None if request.args == ["drop"] else next(request)


def refusing(request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
    if request.args == ["bad"]:
        raise InvalidRequest("args", "is refused")
    return next(request)


def forging(request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
    return EnqueueRequest(Job().pk or request.id.__class__(int=1), request.envelope, request.now)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    seen.clear()
    yield
    enqueue_middleware.reset()


def test_the_settings_name_it_in_order() -> None:
    names = [f"{__name__}.second", f"{__name__}.first"]
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": names}):
        assert enqueue_middleware.names() == names
        assert enqueue("test.job").meta == {"by": "first"}
    assert seen == ["second after None", "first"]
    assert enqueue_middleware.names() == []


def test_the_five_operations() -> None:
    enqueue_middleware.add(second, "b")
    enqueue_middleware.prepend(first, "a")
    enqueue_middleware.insert_after("a", dropping, "a2")
    enqueue_middleware.insert_before("b", refusing, "b0")
    assert enqueue_middleware.names() == ["a", "a2", "b0", "b"]
    enqueue("test.job")
    assert seen == ["first", "second after first"]
    enqueue_middleware.remove("a")
    assert enqueue_middleware.names() == ["a2", "b0", "b"]
    with pytest.raises(LookupError, match="there is no enqueue middleware named 'x'"):
        enqueue_middleware.remove("x")
    with pytest.raises(LookupError, match="there is no enqueue middleware named 'x'"):
        enqueue_middleware.insert_after("x", first)
    with pytest.raises(ValueError, match="named 'b' already"):
        enqueue_middleware.add(first, "b")


def test_what_an_app_has_added_is_there_after_and_under_other_settings() -> None:
    listed = f"{__name__}.first"
    enqueue_middleware.add(second, "of the app")
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [listed]}):
        assert enqueue_middleware.names() == [listed, "of the app"]
        enqueue_middleware.insert_after(listed, refusing, "of the test")
        with override_settings(OJS={}):
            assert enqueue_middleware.names() == ["of the app"], "beside what is not listed there"
        assert enqueue_middleware.names() == [listed, "of the test", "of the app"]
    assert enqueue_middleware.names() == ["of the app"]
    enqueue_middleware.reset()
    assert enqueue_middleware.names() == []


def test_what_is_dropped_is_not_stored_and_says_so() -> None:
    enqueue_middleware.add(dropping)
    assert enqueue("test.job", ["drop"]).state == "dropped"
    states = [job.state for job in enqueue_many("test.job", [["a"], ["drop"], ["b"]])]
    assert states == ["available", "dropped", "available"]
    assert Job.objects.count() == 2


def test_an_error_reaches_the_caller_and_nothing_is_stored() -> None:
    enqueue_middleware.add(refusing)
    with pytest.raises(InvalidRequest, match="args: is refused"):
        enqueue_many("test.job", [["a"], ["bad"]])
    assert Job.objects.count() == 0


@pytest.mark.parametrize("made", [forging, lambda request, next: "no request"])
def test_the_id_is_untouchable_and_a_request_is_returned(made: Any) -> None:
    enqueue_middleware.add(made, "made")
    with pytest.raises(TypeError, match="enqueue middleware made"):
        enqueue("test.job")
    assert Job.objects.count() == 0


def test_a_request_can_be_changed_and_options_taken_back() -> None:
    def change(request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
        with pytest.raises(TypeError, match="the id of a job cannot be changed"):
            request.replace(id="x")
        return next(request.replace(queue="other", args=[2], timeout=None, priority=3, delay="1h"))

    enqueue_middleware.add(change, "change")
    job = enqueue("test.job", [1], queue="mine", timeout=7, tags=["t"])
    assert (job.queue, job.args, job.priority, job.state) == ("other", [2], 3, "scheduled")
    assert job.timeout_ms != 7000
    assert job.tags == ["t"]


def test_steps_of_a_workflow_pass_once_each() -> None:
    enqueue_middleware.add(first, "first")
    chain(
        step("test.job"), group(step("test.job"), step("test.job")), on_failure=step("test.job")
    ).enqueue()
    assert seen == ["first"] * 4


def test_a_step_cannot_be_dropped() -> None:
    enqueue_middleware.add(dropping)
    with pytest.raises(InvalidRequest, match="a workflow cannot do without it"):
        chain(step("test.job"), step("test.job", ["drop"])).enqueue()
    assert (Job.objects.count(), Workflow.objects.count()) == (0, 0)


def test_what_cannot_be_imported_is_an_error_of_the_checks() -> None:
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": ["nowhere.at_all"]}):
        found = [message for message in run_checks() if message.id == "ojs.E009"]
    assert len(found) == 1
    assert "ENQUEUE_MIDDLEWARE" in found[0].msg


class Counting:
    """Shared middleware that is told of each call."""

    shared = True

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def __call__(self, request: EnqueueRequest, next: Next) -> EnqueueRequest | None:
        seen.append("called")
        return dropping(request.replace(meta={"by": "shared"}), next)

    def around(
        self, request: EnqueueRequest, count: int, store: Callable[[], list[JobRow]]
    ) -> list[JobRow]:
        records = store()
        self.calls.append((request.type, count, len(records)))
        assert records[0].id == request.id
        return records


def test_shared_middleware_is_called_once_for_jobs_that_differ_in_their_arguments() -> None:
    counting = Counting()
    enqueue_middleware.add(counting, "counting")
    made = enqueue_many("test.job", [[1], [2], [3]])
    assert seen == ["called"]
    assert [(one.args, one.meta) for one in made] == [
        ([number], {"by": "shared"}) for number in (1, 2, 3)
    ]
    assert len({one.id for one in made}) == Job.objects.count() == 3
    assert counting.calls == [("test.job", 3, 3)]
    assert [one.state for one in enqueue_many("test.job", [["drop"], ["drop"]])] == ["dropped"] * 2
    assert Job.objects.count() == 3
    assert enqueue_many("test.job", []) == []


def test_beside_middleware_that_is_not_shared_it_is_called_for_each() -> None:
    counting = Counting()
    enqueue_middleware.add(counting, "counting")
    enqueue_middleware.add(second, "second")
    enqueue_many("test.job", [[1], [2]])
    assert seen == ["called", "second after shared"] * 2
    assert counting.calls == [("test.job", 2, 2)]
