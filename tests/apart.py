"""Somebody else at the same moment, over a connection of their own: one of the two waits for the other.

Nothing here is left to the speed of the machine: the database says who waits for a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from django.db import connections, transaction

from tests.support import family, poll


def waits_for_lock(session: int | None, asking: Any) -> bool:
    """Whether a server lets the session with this number wait, asked over another connection."""
    with asking.cursor() as cursor:
        if family() == "mysql":
            # Its tables of transactions are copies, and not renewed while they are read often.
            cursor.execute("SHOW ENGINE INNODB STATUS")
            every = cursor.fetchone()[2].split("---TRANSACTION ")[1:]
            mine = [one for one in every if f"thread id {session}," in one]
            return any("LOCK WAIT" in one for one in mine)
        cursor.execute(
            "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [session]
        )
        found = cursor.fetchone()
        return bool(found and found[0])


class Session:
    """A session as others see it."""

    def __init__(self) -> None:
        self._number = 0
        self._statement: str | None = None

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Called by the thread of the session: for the block others can ask about it."""
        connection = connections["default"]
        connection.ensure_connection()
        if family() != "sqlite":
            driver = connection.connection
            number = driver.info.backend_pid if family() == "postgresql" else driver.thread_id()
            self._number = int(number)

        def execute(run: Any, sql: str, *rest: Any) -> Any:
            self._statement = sql
            try:
                return run(sql, *rest)
            finally:
                self._statement = None

        with connection.execute_wrapper(execute):
            yield

    def waits(self, asking: Any) -> bool:
        """Whether the database lets it wait for a lock, asked over another connection.

        Of a file: whether it begins to write while the one who calls this is its writer.
        """
        if family() == "sqlite":
            writes = (self._statement or "").startswith(("BEGIN", "INSERT", "UPDATE", "DELETE"))
            return writes and connections["default"].in_atomic_block
        return waits_for_lock(self._number, asking)


class Apart(threading.Thread):
    """Somebody else does it, beginning now."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work, self._session = work, Session()
        self._value: object = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Keep what it comes to."""
        try:
            with self._session.observed():
                self._value = self._work()
        except BaseException as error:
            self._error = error
        finally:
            connections["default"].close()

    def goes_as_far_as_it_can(self) -> bool:
        """Wait until it has ended, or waits for a lock of whoever calls this (True)."""
        with closing(connections.create_connection("default")) as asking:
            return poll(lambda: "ended" if not self.is_alive() else self._waits(asking)) == "waits"

    def outcome(self) -> Any:
        """What it returned, once nothing is in its way; its error is raised."""
        self.join(30)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error
        return self._value

    def _waits(self, asking: Any) -> str:
        return "waits" if self._session.waits(asking) else ""


@contextmanager
def uncommitted(work: Callable[[], object]) -> Iterator[None]:
    """Somebody else has done it, and commits once the block waits for that; a block that does not
    wait fails.
    """
    done, over, me = threading.Event(), threading.Event(), Session()

    def stand() -> bool:
        with transaction.atomic(), closing(connections.create_connection("default")) as asking:
            work()
            done.set()
            return poll(lambda: me.waits(asking) or over.is_set()) and not over.is_set()

    other = Apart(stand)
    try:
        poll(lambda: done.is_set() or not other.is_alive())
        with me.observed():
            yield
    finally:
        over.set()
        waited = other.outcome()
    assert waited, "nobody waited for the one who had not committed"
