"""The systems under test: a package each, with an ``adapter`` and the handlers.

A name is a system and, after a dot, a variant of its set-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness.adapter import Adapter


@dataclass(frozen=True, slots=True)
class System:
    """``venv`` is the environment it runs in, empty for the one of the benchmark itself.

    ``needs`` are servers. ``share`` is how large a part of the jobs of a drain it is given, so that
    a slow one takes seconds, not minutes. ``alone`` is measured on a PostgreSQL server of its own.
    """

    what: str
    venv: str = ""
    needs: tuple[str, ...] = ("pg",)
    share: float = 1.0
    alone: bool = False


SYSTEMS = {
    "ojs": System("django-ojs on PostgreSQL"),
    "ojs.sqlite": System("django-ojs on a SQLite file", needs=()),
    "ojs.mariadb": System("django-ojs on MariaDB", needs=("mariadb",)),
    "ojs.history": System("django-ojs on PostgreSQL, with a history and a backlog"),
    "ojs.scaling": System("django-ojs on PostgreSQL, of different sizes"),
    "ojs.crowd": System("django-ojs on a PostgreSQL server of its own", needs=(), alone=True),
    "ojs.lasting": System("django-ojs", needs=(), alone=True),
    "ojs.http": System("django-ojs over HTTP, on PostgreSQL"),
    "pgqueuer": System("PgQueuer on PostgreSQL", "pgqueuer"),
    "pgqueuer.lasting": System("PgQueuer", "pgqueuer", (), alone=True),
    "procrastinate": System("Procrastinate on PostgreSQL", "procrastinate", share=0.25),
    "procrastinate.lasting": System("Procrastinate", "procrastinate", (), 0.25, alone=True),
    "celery": System("Celery on Redis, late acknowledgement, no results", "celery", ("redis",), 0.5),
    "huey.sqlite": System("huey on a SQLite file", "huey", ()),
    "ox": System("django-ox on PostgreSQL", "ox", share=0.1),
    "tasks_db": System("django-tasks-db on PostgreSQL", "tasks_db", share=0.05),
}


def adapter_of(name: str) -> Adapter:
    """The adapter of a system; only in the environment that the system is installed in."""
    system = name.partition(".")[0]
    found: Adapter = import_module(f"benchmarks.systems.on_{system}.adapter").Adapter(name)
    return found
