"""What the process tests share beside fixtures."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any, Protocol

from django.db import connection

from django_ojs import api
from django_ojs.domain.job_record import JobRecord
from django_ojs.models import Attempt
from tests.support import PATIENCE, AnyJob, Manage, poll


class Start(Protocol):
    """Starts a program with arguments; keywords are environment variables."""

    def __call__(self, *arguments: str, **environment: str) -> Manage: ...


StartWorker = Start
LATE = 10.0
"""Seconds after a limit by which a busy machine has enforced it."""


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

    def wait(self, word: str, count: int = 1, timeout: float = PATIENCE) -> list[str]:
        """The ``count``-th line that begins with a word, as soon as it is there."""
        return poll(lambda: self.lines(word)[count - 1 : count], timeout)[0]


class Flag:
    """A file whose appearance lets handlers go on."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def set(self) -> None:
        """Let them go on."""
        Path(self.path).touch()

    def clear(self) -> None:
        """Take it away again."""
        Path(self.path).unlink()


def sabotaged(how: str, flag: Flag | None = None, **settings: object) -> dict[str, str]:
    """The environment of a worker that ``tests.workload.sabotage`` breaks, while the flag is set.

    The keywords are settings of ``OJS`` for it.
    """
    return {
        "DJANGO_SETTINGS_MODULE": "tests.workload.settings_sabotaged",
        "OJS_SABOTAGE": how,
        "OJS_TEST_SETTINGS": json.dumps(settings),
        **({"OJS_SABOTAGE_WHILE": flag.path} if flag is not None else {}),
    }


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def in_state(job: AnyJob, *states: str, timeout: float = PATIENCE) -> JobRecord:
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


def attempts(job: AnyJob) -> list[Attempt]:
    """How the attempts of a job ended, in order."""
    return list(Attempt.objects.filter(job_id=job.id).order_by("lease_seq"))


def outcomes(job: AnyJob) -> list[str]:
    """How the attempts of a job ended that had begun, in order."""
    return [attempt.outcome for attempt in attempts(job) if attempt.outcome != "released"]


def lasted(attempt: Attempt) -> float:
    """Seconds from the claim to the end of an attempt, by the database."""
    return (attempt.ended_at - attempt.started_at).total_seconds()


def on_time(attempt: Attempt, limit: float) -> bool:
    """Whether an attempt was ended by a limit of so many seconds: never before, and soon after.

    How soon on a machine that has time is measured by ``test_promises``.
    """
    return limit <= lasted(attempt) < limit + LATE


def failed(job: AnyJob, *states: str, timeout: float = PATIENCE) -> dict[str, Any]:
    """The error of a job as soon as it is in one of the states, ``retryable`` if none is named."""
    error = in_state(job, *(states or ("retryable",)), timeout=timeout).error
    assert error is not None
    return error


def suspend(*pids: int) -> None:
    """SIGSTOP processes, but not in the middle of a write to a SQLite file.

    A stopped process keeps the one write lock of the file, and with it everybody else.
    """

    def stopped_between_writes() -> bool:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        if not _write_lock_is_held():
            return True
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return False

    poll(stopped_between_writes)


def _write_lock_is_held() -> bool:
    if connection.vendor != "sqlite":
        return False
    other = sqlite3.connect(connection.settings_dict["NAME"], timeout=0.5, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        other.close()
    return False
