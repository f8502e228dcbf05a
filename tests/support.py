"""Real processes for tests: started on the test database, watched with deadlines, cleaned up."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from django.db import connections, transaction

from django_ojs.domain.job import JobRow
from django_ojs.domain.job_record import JobRecord
from django_ojs.engines import EngineFamily, family_of
from django_ojs.store.contention import see_latest

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")
AnyJob = JobRow | JobRecord
PATIENCE = 30.0
"""Seconds that a busy machine may take for whatever a test waits for."""


def poll(look: Callable[[], T | None], timeout: float = PATIENCE, *, every: float = 0.01) -> T:
    """The first truthy value of ``look``; fails the test when there is none within ``timeout``."""
    until = time.monotonic() + timeout
    while True:
        value = look()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout:g} s: {_what(look)} (last: {value!r})")
        time.sleep(every)


def not_none(value: T | None) -> T:
    """The value of what may be unset, and is not here."""
    assert value is not None
    return value


def _what(look: Callable[[], object]) -> str:
    code = getattr(look, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(look)


def family() -> EngineFamily:
    """The family of the database under test, also where its backend has a name of its own."""
    return family_of(connections["default"])


@contextmanager
def unjudged() -> Iterator[None]:
    """A transaction in which a test clears up; where all are serializable, one that nothing refuses."""
    with transaction.atomic():
        if "serializable" in str(connections["default"].settings_dict["OPTIONS"].get("options")):
            see_latest("default")
        yield


def database_url() -> str:
    """The URL under which another process finds the database of this test."""
    database = connections["default"].settings_dict
    if family() == "sqlite":
        return f"sqlite:///{quote(str(database['NAME']))}"
    scheme = {"postgresql": "postgres", "mysql": "mysql"}[family()]
    account = quote(database["USER"], safe="")
    if database["PASSWORD"]:
        account += ":" + quote(database["PASSWORD"], safe="")
    port = f":{database['PORT']}" if database["PORT"] else ""
    return f"{scheme}://{account}@{database['HOST']}{port}/{quote(database['NAME'], safe='')}"


def processors() -> tuple[int, int]:
    """How many ticks the processors were idle, and how many there were."""
    ticks = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def alive(pid: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def descendants(pid: int) -> list[int]:
    """Every living process below ``pid``, parents before children."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in ("Z", "X"):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


class Manage:
    """``manage.py ...``, or another program of Python, in a session of its own; output in files."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        environment: Mapping[str, str],
        program: tuple[str, ...] = ("manage.py",),
    ) -> None:
        folder.mkdir(parents=True)
        self._mark = uuid.uuid4().hex
        self.stdout_file, self.stderr_file = folder / "stdout", folder / "stderr"
        with self.stdout_file.open("wb") as out, self.stderr_file.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "tests.settings",
                    "DATABASE_URL": database_url(),
                    "PYTHONUNBUFFERED": "1",
                    "OJS_TEST_MARK": self._mark,
                    **environment,
                },
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._seen: set[int] = set()

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self.stdout_file.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What it has written so far."""
        return self.stderr_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send(self, number: int) -> None:
        """Send it a signal, and remember who is below it."""
        self.below()
        if self.running:
            os.kill(self.pid, number)

    def below(self) -> list[int]:
        """Every living process that it or its descendants started."""
        found = descendants(self.pid)
        self._seen.update(found)
        return found

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit code. Fails the test when it does not end in time."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running after {timeout:g} s\n{self.stdout}\n{self.stderr}"
            ) from None

    def left(self) -> list[int]:
        """Which of the processes that were ever seen below it are alive, and still its own."""
        return [pid for pid in self._seen if alive(pid) and self._owns(pid)]

    def end(self) -> None:
        """End it; what was below it is left to itself."""
        self.below()
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGTERM)
            try:
                self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                self.below()
                os.kill(self.pid, signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> None:
        """End it and everything that was ever seen below it."""
        self.end()
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _owns(self, pid: int) -> bool:
        """Whether the pid is a process of this one, not one that took the number over."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"OJS_TEST_MARK={self._mark}".encode() in environment


@contextmanager
def gunicorn(
    application: str, ready: str, folder: Path, threads: int, environment: Mapping[str, str]
) -> Iterator[int]:
    """The port of a server on the test database, from when the path ``ready`` answers 200."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    web = Manage(
        (
            application,
            f"--bind=127.0.0.1:{port}",
            "--worker-class=gthread",
            "--workers=1",
            f"--threads={threads}",
            "--timeout=60",
            "--graceful-timeout=2",
        ),
        folder,
        environment,
        program=("-m", "gunicorn"),
    )
    try:
        poll(lambda: _answers(port, ready) or not web.running)
        assert web.running, web.stderr
        yield port
    finally:
        web.stop()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def lock_job_table(patience_s: int = 60) -> None:
    """Lock it in this transaction as a plain CREATE INDEX, or its like, does: reading goes on.

    On SQLite to have begun a transaction is enough: whoever writes has the file to himself.
    """
    from django.db import connection

    statements = {
        "postgresql": [
            f"SET LOCAL lock_timeout = '{patience_s}s'",
            "LOCK TABLE django_ojs_job IN SHARE MODE",
        ],
        "mysql": [f"SET lock_wait_timeout = {patience_s}", "LOCK TABLES django_ojs_job READ"],
        "sqlite": [],
    }
    with connection.cursor() as cursor:
        for statement in statements[family()]:
            cursor.execute(statement)


def tidy_tables() -> None:
    """After many rows were deleted: what is left of them would be read by every test that follows, and
    the statistics would be theirs.
    """
    from django.db import connection

    tables = "django_ojs_job, django_ojs_attempt"
    with connection.cursor() as cursor:
        if family() == "postgresql":
            cursor.execute(f"VACUUM (ANALYZE) {tables}")
        elif family() == "mysql":
            cursor.execute(f"ANALYZE TABLE {tables}")
            cursor.fetchall()
        else:
            cursor.execute("ANALYZE")


def analyze_jobs() -> None:
    """Fresh statistics of the table of jobs."""
    from django.db import connection

    with connection.cursor() as cursor:
        if family() == "mysql":
            cursor.execute("ANALYZE TABLE django_ojs_job")
            cursor.fetchall()
        else:
            cursor.execute("ANALYZE django_ojs_job")


def drop_dead_rows() -> None:
    """What earlier tests deleted is gone: PostgreSQL would go through it in each range of an index, as
    long as some session, such as a worker of autovacuum, might still see it.
    """
    from django.db import connection

    if family() == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '60s'")
            cursor.execute(
                "TRUNCATE django_ojs_job, django_ojs_queue, django_ojs_event, django_ojs_attempt"
                " CASCADE"
            )
            cursor.execute("RESET lock_timeout")
