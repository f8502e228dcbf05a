"""What a handler may look like, and errors that say which handler they are about."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from django_ojs.domain.errors import InvalidRequest
from django_ojs.handlers import workflows
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.registry import JobHandler, job


def render(ctx: JobContext, year: int, month: int = 1) -> None:
    """A handler."""


def test_arguments_that_do_not_fit_name_the_type_and_the_function() -> None:
    """Where many kinds of jobs are enqueued in one place, a parameter's name alone tells little."""
    handler: JobHandler[..., Any] = JobHandler(render, "report.render")
    said = "report.render: tests.handlers.test_registry.render(year, month=1): "
    calls: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, "missing a required argument: 'year'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((), {"month": 2}, "missing a required argument: 'year'"),
        ((1,), {"yaer": 2}, "got an unexpected keyword argument 'yaer': did you mean 'year'?"),
    ]
    for args, kwargs, why in calls:
        with pytest.raises(TypeError) as refused:
            handler.envelope(args, kwargs)
        assert str(refused.value) == said + why
    with pytest.raises(TypeError, match=r"^report\.render: .*: too many positional arguments$"):
        handler.enqueue_many([(1,), (1, 2, 3)])


def test_a_method_is_no_handler() -> None:
    """There is nothing that it could be called on: each job would fail, instead of the import."""
    with pytest.raises(TypeError) as refused:

        class Reports:
            @job("test.method")
            def render(self, year: int) -> None: ...

    said = str(refused.value)
    assert said.startswith("@job('test.method'): ")
    assert "Reports.render" in said
    assert "@staticmethod" in said
    with pytest.raises(TypeError, match="'cls'"):
        JobHandler(lambda cls: None, "test.class")


def test_a_static_method_is_one() -> None:
    def add(one: int, other: int) -> int:
        return one + other

    handler: JobHandler[..., Any] = JobHandler(staticmethod(add), "test.static")
    assert handler(1, 2) == 3
    assert handler.envelope((1, 2), {}).args_json == "[1,2]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 1.5}, "@job('test.odd'): timeout: must be whole seconds"),
        ({"queue": "No Good"}, "@job('test.odd'): queue: must be of a-z"),
        ({"priority": 500}, "@job('test.odd'): priority: must be an integer"),
        ({"heartbeat": "never"}, "@job('test.odd'): heartbeat: must be one of auto, manual"),
        ({"soft": "never"}, "@job('test.odd'): soft: must be one of raise, flag"),
        ({"retry": {"max_attempts": -1}}, "@job('test.odd'): retry.max_attempts: must be"),
    ],
)
def test_a_bad_option_names_the_job_type(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job("test.odd", **options)
    assert str(refused.value).startswith(said)


def send(to: str, copies: int = 1, /, *extra: str, subject: str, urgent: bool = False) -> None:
    """A handler with every kind of parameter but ``**``."""


def page(first: int, second: int = 2, third: int = 3, **more: int) -> None:
    """A handler whose call may leave out one in the middle."""


def test_what_can_be_sent_by_position_is() -> None:
    """So that a worker in another language needs to know of nothing else."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]] = [
        (render, (), {"month": 2, "year": 2026}, [2026, 2]),
        (render, (2026,), {}, [2026]),
        (page, (1,), {"second": 5}, [1, 5]),
        (page, (1,), {"third": 5}, [1, {"third": 5}]),
        (page, (), {"first": 1, "fourth": 4}, [1, {"fourth": 4}]),
        (send, ("a", 2, "b"), {"subject": "s"}, ["a", 2, "b", {"subject": "s"}]),
    ]
    for function, args, kwargs, sent in calls:
        handler: JobHandler[..., Any] = JobHandler(function, "test.sent")
        envelope = handler.envelope(args, kwargs)
        assert json.loads(envelope.args_json) == sent
        marked = json.loads(envelope.meta_json).get("ojs.kwargs", False)
        assert marked is isinstance(sent[-1], dict)


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (("a",), {}, "'subject'"),
        (("a",), {"urgent": True}, "'subject'"),
        (("a",), {"subjet": "s", "subject": "s"}, "'subjet': did you mean 'subject'?"),
        ((), {"subject": "s"}, "'to'"),
        ((), {"to": "a", "subject": "s"}, "'to'"),
    ],
)
def test_a_call_that_does_not_fit_names_the_parameter(
    args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    handler: JobHandler[..., Any] = JobHandler(send, "test.send")
    for call in (handler.envelope, handler.arguments):
        with pytest.raises(TypeError) as refused:
            call(args, kwargs)
        assert str(refused.value).startswith("test.send: tests.handlers.test_registry.send(")
        assert said in str(refused.value)


def test_a_value_by_keyword_that_is_no_json_is_named() -> None:
    handler: JobHandler[..., Any] = JobHandler(send, "test.send")
    with pytest.raises(InvalidRequest, match=r"args\[1\]\.subject: must be a JSON value, not UUID"):
        handler.envelope(("a",), {"subject": UUID(int=1)})


def test_many_calls_share_what_says_that_there_are_keywords() -> None:
    """They share their meta: each then has the object, an empty one where there are none."""
    handler: JobHandler[..., Any] = JobHandler(page, "test.page")
    fan = handler.steps([[1, 2], {"first": 3, "third": 4}])
    assert [json.loads(text) for text in fan.args] == [[1, 2, {}], [3, {"third": 4}]]
    assert json.loads(fan.call.envelope.meta_json) == {"ojs.kwargs": True}
    plain = handler.steps([[1, 2], {"first": 3, "second": 4}])
    assert [json.loads(text) for text in plain.args] == [[1, 2], [3, 4]]
    assert plain.call.envelope.meta_json == "{}"
    with pytest.raises(TypeError, match="'kwargs': a call may be a mapping"):
        workflows.steps("test.page", [[1]], kwargs={"third": 3})  # type: ignore[call-arg]


@pytest.mark.parametrize("call", [7, None, "ab", b"ab", {1, 2}])
def test_each_of_many_calls_has_a_list_of_arguments(call: Any) -> None:
    """A text is not its letters, which could even fit."""
    handler: JobHandler[..., Any] = JobHandler(render, "test.render")
    for several in (handler.steps, handler.enqueue_many):
        with pytest.raises(InvalidRequest, match=r"^args: must be a list or a tuple$"):
            several([call])
    assert json.loads(handler.steps([range(2)]).args[0]) == [0, 1]


def test_the_context_comes_by_position() -> None:
    def odd(*, ctx: JobContext) -> None: ...

    with pytest.raises(TypeError, match=r"^@job\('test\.odd'\): .*'ctx'"):
        JobHandler(odd, "test.odd")
