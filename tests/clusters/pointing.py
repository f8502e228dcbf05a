"""Which database this process means by ``default``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from django.db import connections
from django.db.utils import ConnectionHandler

from django_ojs import clock
from example_project.databases import parse


@contextmanager
def default_is(url: str, **options: Any) -> Iterator[None]:
    """Within the block the alias ``default`` of this process is the database at ``url``."""
    place = urlsplit(url)
    assert place.scheme == "sqlite" or place.hostname == "127.0.0.1"
    before = connections.databases["default"]
    entry = parse(url)
    entry["OPTIONS"].update(options)
    _point(ConnectionHandler({"default": entry}).settings["default"])
    try:
        yield
    finally:
        _point(before)


def _point(database: dict[str, Any]) -> None:
    connections["default"].close()
    del connections["default"]
    connections.databases["default"] = database
    clock.database_clock.forget()
