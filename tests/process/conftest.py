"""Workers and reapers on the test database, ended with the test that started them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from django_ojs import api
from django_ojs.domain.job import JobRecord
from tests.support import Manage, poll


class Start(Protocol):
    """Starts ``manage.py`` with arguments; keywords are environment variables."""

    def __call__(self, *arguments: str, **environment: str) -> Manage: ...


class Diary:
    """The file into which handlers write what happens to them."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def lines(self, word: str) -> list[list[str]]:
        """The lines that begin with a word, without it."""
        try:
            text = Path(self.path).read_text()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1]
        return [line.split()[1:] for line in whole.splitlines() if line.split()[0] == word]

    def wait(self, word: str, count: int = 1, timeout: float = 10.0) -> list[str]:
        """The ``count``-th line that begins with a word, as soon as it is there."""
        return poll(lambda: self.lines(word)[count - 1 : count], timeout)[0]


class Flag:
    """A file whose appearance lets handlers go on."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def set(self) -> None:
        """Let them go on."""
        Path(self.path).touch()


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
def worker(manage: Start) -> Callable[..., Manage]:
    """Start ``runworker`` with one executor, unless the arguments say otherwise."""

    def start(*arguments: str, **environment: str) -> Manage:
        chosen = arguments if "--concurrency" in arguments else ("--concurrency=1", *arguments)
        return manage("runworker", *chosen, **environment)

    return start


@pytest.fixture
def drained(worker: Callable[..., Manage]) -> Callable[..., Manage]:
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


def in_state(job: JobRecord, *states: str, timeout: float = 10.0) -> JobRecord:
    """The job as soon as it is in one of the states."""

    def look() -> JobRecord | None:
        found = api.get(job)
        return found if found.state in states else None

    try:
        return poll(look, timeout)
    except AssertionError:
        found = api.get(job)
        raise AssertionError(
            f"{found.type} is {found.state}, not {states}, after {timeout:g} s: {found.error}"
        ) from None
