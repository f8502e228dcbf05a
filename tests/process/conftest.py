"""Workers and reapers on the test database, ended with the test that started them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.tools import Diary, Flag, Start, StartWorker
from tests.support import Manage


@pytest.fixture
def manage(ojs_db: None, tmp_path: Path) -> Iterator[Start]:
    """Start ``manage.py`` processes; what still runs at the end is stopped."""
    started: list[Manage] = []
    numbers = itertools.count()

    def start(*arguments: str, **environment: str) -> Manage:
        folder = tmp_path / f"process-{next(numbers)}"
        started.append(Manage(arguments, folder, environment))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def worker(manage: Start) -> StartWorker:
    """Start ``runworker`` with one executor, unless the arguments say otherwise."""

    def start(*arguments: str, **environment: str) -> Manage:
        chosen = arguments if "--concurrency" in arguments else ("--concurrency=1", *arguments)
        return manage("runworker", *chosen, **environment)

    return start


@pytest.fixture
def drained(worker: StartWorker) -> StartWorker:
    """Run ``runworker --drain`` to its end."""

    def run(*arguments: str) -> Manage:
        process = worker("--drain", *arguments)
        assert process.wait(30) == 0, process.stderr
        return process

    return run


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    """What handlers write."""
    return Diary(tmp_path / "diary")


@pytest.fixture
def flag(tmp_path: Path) -> Flag:
    """What handlers wait for."""
    return Flag(tmp_path / "flag")
