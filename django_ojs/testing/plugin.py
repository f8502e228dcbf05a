"""The pytest plugin. Imports nothing of Django until a fixture is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_ojs.testing.job_clock import JobClock
    from django_ojs.testing.worker_process import WorkerProcess


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting ``ojs_mode``."""
    parser.addini("ojs_mode", "what becomes of jobs: manual, inline or fake", default="manual")


def pytest_configure(config: pytest.Config) -> None:
    """The mark ``ojs``."""
    config.addinivalue_line(
        "markers", "ojs(mode): what becomes of the jobs of this test: manual, inline or fake"
    )


@pytest.fixture(autouse=True)
def _ojs_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    mark = request.node.get_closest_marker("ojs")
    if mark is not None and len(mark.args) != 1:
        raise pytest.UsageError('@pytest.mark.ojs takes a mode: "manual", "inline" or "fake"')
    name = request.config.getini("ojs_mode") if mark is None else mark.args[0]
    if name == "manual":
        yield
        return
    from django_ojs.testing.modes import mode

    with mode(name, **({} if mark is None else mark.kwargs)):
        yield


@pytest.fixture
def ojs() -> ModuleType:
    """What ``django_ojs.testing`` has: ``ojs.drain()``, ``ojs.assert_enqueued(...)``."""
    from django_ojs import testing

    return testing


@pytest.fixture
def ojs_clock() -> Iterator[JobClock]:
    """The clock of the jobs: ``ojs_clock.advance(hours=1)``. It goes on when the test ends."""
    from django_ojs.testing.job_clock import JobClock

    with JobClock() as clock:
        yield clock


@pytest.fixture
def ojs_worker(transactional_db: None) -> Iterator[WorkerProcess]:
    """A real worker on the test database, with one executor; the test commits."""
    from django_ojs.testing.worker_process import WorkerProcess

    with WorkerProcess() as worker:
        yield worker


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Forget what the process remembers of the rows of the test."""
    if "django_ojs.services.enqueue" in sys.modules:
        from django_ojs.testing.resetting import forget

        forget()
