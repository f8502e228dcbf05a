"""A real worker on the database of a test."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Self

from django.conf import settings
from django.db import connections

from django_ojs import clock, conf
from django_ojs.domain.errors import NotFound
from django_ojs.domain.job_record import JobRecord, JobRef, id_of
from django_ojs.domain.states import TERMINAL
from django_ojs.engines import EngineFamily, family_of
from django_ojs.services import databases
from django_ojs.store import selectors
from django_ojs.testing.reach import databases_of

_SETTINGS = "django_ojs.testing.worker_settings"
_PATIENCE = 30.0


class WorkerProcess:
    """``manage.py runworker`` on the test database, during a ``with`` block.

    For what :func:`drain` cannot show: handlers that are killed, processes that crash, jobs beside each
    other. It sees what is committed: use ``TransactionTestCase``, or ``django_db(transaction=True)``.
    ``options`` are those of ``runworker``; without any it has one executor.

    Raises ``RuntimeError`` in ``TestCase``, for SQLite in memory, and for settings without a module.
    """

    def __init__(self, *options: str, environment: dict[str, str] | None = None) -> None:
        self._options = options or ("--concurrency", "1")
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self._file is not None:
            self._file.close()

    def start(self) -> None:
        """Start it; returns before it is ready."""
        _require_shared(self._database())
        # Read with the name, so that what was printed can be shown after the end too.
        self._file = tempfile.NamedTemporaryFile(prefix="ojs-worker-")  # noqa: SIM115
        names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django", "runworker", "--settings", _SETTINGS, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path),
                "PYTHONUNBUFFERED": "1",
                "OJS_TEST_SETTINGS": _settings_module() or "",
                "OJS_TEST_DATABASES": json.dumps(names),
                "OJS_TEST_OVERRIDES": json.dumps(_overrides()),
                **self._environment,
            },
            start_new_session=True,
        )

    def _database(self) -> str:
        """That of the worker: ``--database``, else ``OJS["DATABASE"]``."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--database")
        named = parser.parse_known_args(self._options)[0].database
        return databases_of("WorkerProcess", using=named or conf.current().database)[0]

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "start() first"
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has written so far."""
        assert self._file is not None, "start() first"
        return Path(self._file.name).read_text(errors="replace")

    def wait(self, job: JobRef, *, timeout: float = _PATIENCE) -> JobRecord:
        """Wait until the job has ended, for at most ``timeout`` seconds, and return it.

        Raises ``AssertionError``, with what the worker has written, when it takes longer or the worker
        ends before it. Raises :class:`NotFound`.
        """
        assert self._process is not None, "start() first"
        job_id = id_of(job)
        until = clock.boottime() + timeout
        while True:
            ended = self._process.poll() is not None
            found = selectors.jobs([job_id], using=databases.of_job(job_id)).get(job_id)
            if found is None:
                raise NotFound(f"there is no job {job_id}")
            if found.state in TERMINAL:
                return JobRecord(found)
            if ended or clock.boottime() > until:
                why = "the worker has ended" if ended else f"not within {timeout:g} s"
                raise AssertionError(f"{why}: job {job_id} is {found.state}\n{self.output}")
            clock.pause(0.01)

    def stop(self, *, timeout: float = _PATIENCE) -> int:
        """Tell it to stop, wait until it has, and return its exit code; after ``timeout`` kill it."""
        assert self._process is not None, "start() first"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()


def _overrides() -> dict[str, Any]:
    """The settings that Django has changed for tests: a worker must send no mail either."""
    mail = "MAILERS" if hasattr(settings, "MAILERS") else "EMAIL_BACKEND"
    return {name: getattr(settings, name) for name in ("ALLOWED_HOSTS", "DEBUG", mail)}


def _settings_module() -> str | None:
    """The module of the project's settings; while a test overrides some, it is that of the others."""
    found: Any = settings
    while (module := getattr(found, "SETTINGS_MODULE", None)) is None:
        if (found := getattr(found, "default_settings", None)) is None:
            return None
    return str(module)


def _require_shared(using: str) -> None:
    """Raise ``RuntimeError`` where another process would not see the jobs."""
    connection = connections[using]
    if family_of(connection) is EngineFamily.SQLITE and connection.is_in_memory_db():  # type: ignore[attr-defined]
        raise RuntimeError(
            "a worker cannot share SQLite in memory: give the test database a file, "
            f"DATABASES[{using!r}]['TEST'] = {{'NAME': ...}}"
        )
    if connection.in_atomic_block:
        raise RuntimeError(
            "a worker does not see what TestCase never commits: use TransactionTestCase, or "
            "django_db(transaction=True)"
        )
    if not _settings_module():
        raise RuntimeError("a worker needs settings that are a module (DJANGO_SETTINGS_MODULE)")
