"""The base of the worker's threads: each has its own connection and counts its statements."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from django.db import connections

from django_ojs.store.contention import impatient, repeating_statements

STATEMENT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds by which the durations of claims and settlements are counted."""


class MainLoop(Protocol):
    """The supervisor's loop, as its threads use it."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the supervisor's thread. From any thread."""


class ConnectedThread(threading.Thread):
    """Opens its connection at the first statement and closes it when :meth:`work` returns."""

    def __init__(self, name: str, using: str) -> None:
        super().__init__(name=name, daemon=True)
        self._using = using
        self.statements = 0

    @abstractmethod
    def work(self) -> None:
        """Do the work of the thread until it is closed."""

    def run(self) -> None:
        """Call :meth:`work`, then close the connection."""
        connection = connections[self._using]
        try:
            with (
                repeating_statements(self._using),
                connection.execute_wrapper(self._count),
                impatient(),
            ):
                self.work()
        finally:
            connection.close()

    def _count(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        self.statements += 1
        return execute(sql, params, many, context)
