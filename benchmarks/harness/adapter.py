"""What every system's adapter shares: its database, its worker processes, its records."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.harness import config
from benchmarks.harness.processes import Workers
from benchmarks.harness.records import Records

BATCH = 1000
"""Jobs per call of a system's bulk enqueue."""


class Adapter(ABC):
    """One system under test. A subclass says how to enqueue, how to work, and what is left."""

    installed_apps: list[str] = []
    database = "pg"
    """``pg``, ``mariadb``, ``sqlite`` or ``none``: where the queue is."""
    has_bulk = True
    keeps_rows = False
    """Whether a measurement starts on what the one before left."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.system, _, self.variant = name.partition(".")
        self.package = f"benchmarks.systems.on_{self.system}"
        self.slug = name.replace(".", "_")
        self.dbname = f"{config.PREFIX}_{self.slug}"
        self.workers = Workers()
        self._side: Any = None

    # --- what a subclass says ---

    @property
    def own(self) -> Mapping[str, Callable[..., dict[str, Any]]]:
        """Workloads that only this system has: functions of the adapter and options."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Django settings of the system."""
        return {}

    def install(self) -> None:
        """Create the system's tables in the fresh database."""
        manage("migrate", "--verbosity", "0")

    @abstractmethod
    def reset(self) -> None:
        """Empty the queue and the history."""

    @abstractmethod
    def enqueue(self, number: int) -> None:
        """One no-op job with two small arguments, committed."""

    def enqueue_limited(self, number: int, seconds: int) -> None:
        """The same with a time limit, if the system has one for a job."""
        self.enqueue(number)

    def enqueue_batch(self, numbers: range) -> None:
        """Many of them by the system's bulk call, if it has one."""
        raise TypeError(f"{self.name} has no bulk call")

    @abstractmethod
    def worker_commands(self, concurrency: int) -> list[list[str]]:
        """The commands that run ``concurrency`` jobs at a time."""

    @abstractmethod
    def remaining(self) -> int:
        """Jobs that the system has not yet recorded as finished."""

    # --- the database ---

    def django_database(self) -> dict[str, Any]:
        """The entry of ``DATABASES``."""
        from example_project.databases import parse

        if self.database in ("sqlite", "none"):
            return parse(f"sqlite:///{config.scratch() / self.slug}.sqlite3")
        return parse(config.database_url(self.database, self.dbname))

    def create_database(self) -> None:
        """A fresh, empty database; Django is not set up yet."""
        if self.database in ("sqlite", "none"):
            for path in config.scratch().glob(f"{self.slug}.sqlite3*"):
                path.unlink()
        else:
            self.drop_database()
            administer(self.database, f"CREATE DATABASE {self.dbname}")

    def drop_database(self) -> None:
        """Leave nothing behind."""
        if self.database == "pg":
            administer("pg", f"DROP DATABASE IF EXISTS {self.dbname} WITH (FORCE)")
        elif self.database == "mariadb":
            administer("mariadb", f"DROP DATABASE IF EXISTS {self.dbname}")
        else:
            for path in config.scratch().glob(f"{self.slug}.*"):
                path.unlink()

    def sql(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """A statement on the system's PostgreSQL database, aside from Django's connection."""
        import psycopg

        if self._side is None:
            self._side = psycopg.connect(config.pg_dsn(self.dbname), autocommit=True)
        cursor = self._side.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def scalar(self, statement: str, parameters: tuple[Any, ...] = ()) -> int:
        """The one value that a statement answers."""
        return int(self.sql(statement, parameters)[0][0])

    def analyze(self) -> None:
        """What autovacuum would do within a minute of a load."""
        if self.database == "pg":
            self.sql("ANALYZE")

    # --- processes ---

    def start_workers(self, concurrency: int) -> float:
        """Start the system's own worker processes; when that was, in monotonic seconds."""
        with open(config.scratch() / f"{self.slug}.worker.log", "ab") as log:
            return self.workers.start(self.worker_commands(concurrency), folder=config.ROOT, log=log)

    def records(self) -> Records:
        """A fresh record for one measurement."""
        return Records(config.scratch() / f"{self.slug}.records")


def administer(kind: str, statement: str) -> None:
    """A statement about databases, on a server itself."""
    if kind == "pg":
        import psycopg

        with psycopg.connect(config.pg_dsn("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())
        return
    from example_project.databases import parse

    parse(config.server(kind))  # brings a driver
    from urllib.parse import urlsplit

    import MySQLdb

    parts = urlsplit(config.server(kind))
    connection = MySQLdb.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=parts.username or "",
        password=parts.password or "",
    )
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()


def module(*arguments: str) -> list[str]:
    """``python -m ...`` in this environment."""
    return [sys.executable, "-m", *arguments]


def command(*arguments: str) -> list[str]:
    """A Django command of the project under test."""
    return module("django", *arguments)


def manage(*arguments: str) -> None:
    """Run a Django command to its end."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.harness.settings"}
    subprocess.run(command(*arguments), cwd=config.ROOT, check=True, env=environment)
