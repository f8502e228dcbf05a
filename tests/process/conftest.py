"""Workers and reapers on the test database, ended with the test that started them.

After every test nothing is left below them, and the invariants of the stored jobs hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from django_ojs import clock
from django_ojs.store import invariants
from tests.faults import tally
from tests.process.tools import Diary, Flag, Start, StartWorker
from tests.support import Manage, poll

REAPED_WITHIN = timedelta(seconds=30)
"""How late a reaper may be here: many tests run without one."""


@pytest.fixture
def python(ojs_db: None, tmp_path: Path) -> Iterator[Start]:
    """Start Python processes; what still runs at the end is stopped, and must leave nothing."""
    started: list[Manage] = []
    numbers = itertools.count()

    def start(*arguments: str, **environment: str) -> Manage:
        folder = tmp_path / f"process-{next(numbers)}"
        started.append(Manage(arguments, folder, environment, program=()))
        return started[-1]

    yield start
    try:
        for process in started:
            process.end()
        poll(lambda: not any(process.left() for process in started))
        found = invariants.check(now=clock.now("default"), slack=REAPED_WITHIN, using="default")
        assert not found
        tally.checked(*invariants.RULES)
    finally:
        for process in started:
            process.stop()


@pytest.fixture
def manage(python: Start) -> Start:
    """Start ``manage.py`` with arguments."""
    return partial(python, "manage.py")


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

    def run(*arguments: str, **environment: str) -> Manage:
        process = worker("--drain", *arguments, **environment)
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
