"""What a worker or reaper does to its connections, and no other user of the same alias has done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


@contextmanager
def at_connecting(using: str, act: Callable[[BaseDatabaseWrapper], None]) -> Iterator[None]:
    """Have ``act`` done to every connection that is opened while the block runs.

    Commands may be called by a process that does something else afterwards: a connection that this
    thread opened meanwhile is closed at the end.
    """

    def opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
        if connection.alias == using:
            act(connection)

    own = connections[using]
    before = own.connection
    connection_created.connect(opened, weak=False)
    try:
        yield
    finally:
        connection_created.disconnect(opened)
        if own.connection is not before:
            own.close()
