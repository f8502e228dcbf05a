"""The base of the runner's threads: each has a connection of its own and counts its statements."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from django.db import connections

from django_ojs.store.contention import impatient


class MainLoop(Protocol):
    """The supervisor's loop, as its threads see it."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the supervisor's thread, soon. From any thread."""


class ConnectedThread(threading.Thread):
    """Opens its connection on first use and closes it when :meth:`work` returns."""

    def __init__(self, name: str, using: str) -> None:
        super().__init__(name=name, daemon=True)
        self._using = using
        self.statements = 0

    @abstractmethod
    def work(self) -> None:
        """What the thread does, until it is told to end."""

    def run(self) -> None:
        """Do the work with the connection of this thread."""
        connection = connections[self._using]
        try:
            with connection.execute_wrapper(self._count), impatient():
                self.work()
        finally:
            connection.close()

    def _count(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        self.statements += 1
        return execute(sql, params, many, context)
