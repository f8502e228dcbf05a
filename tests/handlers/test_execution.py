"""The chain of execution middleware, without a worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from django_ojs import execution_middleware
from django_ojs.handlers import execution
from django_ojs.handlers.context import JobContext
from tests.support import ROOT

Next = Callable[[JobContext], Any]
CONTEXT = cast(JobContext, object())
OTHER = cast(JobContext, object())


def first(context: JobContext, next: Next) -> Any:
    return ["first", next(OTHER)]


def second(context: JobContext, next: Next) -> Any:
    return ["second", next(context)]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    execution_middleware.reset()


def handle(context: JobContext) -> Any:
    return context


def test_without_middleware_the_handler_is_called_at_once() -> None:
    assert execution.run(CONTEXT, handle) is CONTEXT


def test_the_settings_name_it_in_order() -> None:
    names = [f"{__name__}.second", f"{__name__}.first"]
    with override_settings(OJS={"EXECUTION_MIDDLEWARE": names}):
        assert execution_middleware.names() == names
        assert execution.run(CONTEXT, handle) == ["second", ["first", OTHER]]
    assert execution_middleware.names() == []


def test_the_list_operations() -> None:
    execution_middleware.add(second)
    execution_middleware.insert_before(f"{__name__}.second", first, "a")
    execution_middleware.prepend(second, "b")
    execution_middleware.insert_after("b", first, "c")
    assert execution_middleware.names() == ["b", "c", "a", f"{__name__}.second"]
    execution_middleware.remove("c")
    assert execution.run(CONTEXT, handle) == ["second", ["first", ["second", OTHER]]]
    with pytest.raises(ValueError, match="there is an execution middleware named 'a' already"):
        execution_middleware.add(first, "a")
    with pytest.raises(LookupError, match="there is no execution middleware named 'x'"):
        execution_middleware.remove("x")


@pytest.mark.usefixtures("ojs_db")
def test_a_name_that_cannot_be_imported_is_an_error_of_the_settings() -> None:
    with override_settings(OJS={"EXECUTION_MIDDLEWARE": ["tests.nowhere.at_all"]}):
        (found,) = [one for one in run_checks() if one.id == "ojs.E009"]
    assert "OJS['EXECUTION_MIDDLEWARE']" in found.msg


_EARLY = """
import django, sys
from django.conf import settings
from django_ojs.handlers.execution import chain, current
from django_ojs.services.middleware import chain as enqueue_chain
chain.prepend(lambda context, next: next(context), "early")
enqueue_chain.add(lambda request, next: next(request), "early")
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django_ojs"],
    OJS={"EXECUTION_MIDDLEWARE": ["tests.handlers.test_execution.second"]},
)
django.setup()
print(chain.names(), enqueue_chain.names(), current())
"""


@pytest.mark.slow
def test_it_can_be_added_while_the_settings_are_read() -> None:
    """As ``sentry_sdk.init`` in a settings module does."""
    done = subprocess.run(
        [sys.executable, "-c", _EARLY], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )
    assert done.stdout == "['early', 'tests.handlers.test_execution.second'] ['early'] None\n"
