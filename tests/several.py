"""Queues on two databases: each a SQLite file of its own, or one the database under test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_ojs.services import databases
from django_ojs.services import enqueue as enqueue_service
from django_ojs.services.rate_limits import policies

FIRST, SECOND = "jobs1", "jobs2"
SETTINGS: Mapping[str, Any] = {
    "DATABASE": FIRST,
    "QUEUE_DATABASES": {SECOND: ["mail", "report*"]},
    "EVENTS": "all",
}
_migrated: list[bytes] = []


def _forget() -> None:
    databases._silent_since.clear()
    enqueue_service._known_queues.clear()
    policies.forget_limited()


@contextmanager
def two_databases(folder: Path) -> Iterator[None]:
    """For the block they are there, with our tables, and the settings name them; ``default`` has none
    of the jobs.
    """
    with _files(folder, FIRST, SECOND), override_settings(OJS=SETTINGS):
        yield


@contextmanager
def beside_default(folder: Path) -> Iterator[None]:
    """For the block ``default``, the database under test, has all queues but those of a SQLite file."""
    with _files(folder, SECOND), override_settings(OJS={**SETTINGS, "DATABASE": "default"}):
        yield


@contextmanager
def _files(folder: Path, *aliases: str) -> Iterator[None]:
    for alias in aliases:
        connections.databases[alias] = {
            **connections.databases["default"],
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(folder / f"{alias}.sqlite3"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        }
    try:
        if not _migrated:
            first = aliases[0]
            call_command("migrate", "django_ojs", database=first, verbosity=0)
            connections[first].close()
            _migrated.append((folder / f"{first}.sqlite3").read_bytes())
        for alias in aliases:
            (folder / f"{alias}.sqlite3").write_bytes(_migrated[0])
        _forget()
        yield
    finally:
        _forget()
        for alias in aliases:
            connections[alias].close()
            del connections[alias]
            del connections.databases[alias]


@contextmanager
def gone(alias: str) -> Iterator[None]:
    """For the block the database cannot be opened: a folder is where its file was."""
    connections[alias].close()
    file = Path(str(connections.databases[alias]["NAME"]))
    away = file.rename(file.with_suffix(".away"))
    file.mkdir()
    try:
        yield
    finally:
        connections[alias].close()
        file.rmdir()
        away.rename(file)
