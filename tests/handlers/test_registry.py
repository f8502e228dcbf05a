"""What a handler may look like, and errors that say which handler they are about."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.domain.errors import InvalidRequest
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
        ((1,), {"yaer": 2}, "got an unexpected keyword argument 'yaer'"),
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
        ({"retry": {"max_attempts": -1}}, "@job('test.odd'): retry.max_attempts: must be"),
    ],
)
def test_a_bad_option_names_the_job_type(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job("test.odd", **options)
    assert str(refused.value).startswith(said)


def test_a_keyword_only_parameter_is_refused_by_name() -> None:
    def odd(*, year: int) -> None: ...

    with pytest.raises(TypeError, match=r"^@job\('test\.odd'\): .*'year'"):
        JobHandler(odd, "test.odd")
