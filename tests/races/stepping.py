"""Players: threads with a connection of their own, which can be stopped at named points.

A point is the moment before a statement or before a commit, counted from the start of a piece of
work and named after what comes next: ``2 UPDATE``, ``4 COMMIT``. Nothing in the product knows of
them: they are hung into the connection.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from django.db import connections, transaction

from django_ojs.domain.errors import OJSError
from tests.apart import waits_for_lock
from tests.support import family, poll

Work = Callable[[], object]
_PATIENCE = 20.0


class Point(NamedTuple):
    """Where a piece of work can be stopped; ``open`` inside a transaction."""

    number: int
    label: str
    open: bool

    def __str__(self) -> str:
        return f"{self.number} {self.label}"


class Player:
    """One of the two. Work is done in its thread, over its connection."""

    def __init__(self) -> None:
        self._tasks: queue.Queue[tuple[Work, int | None] | None] = queue.Queue()
        self._news: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._go = threading.Semaphore(0)
        self._stop_at: int | None = None
        self._count = 0
        self._statement: str | None = None
        self.points: list[Point] = []
        self.session = 0
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()
        self.run(lambda: None)

    def begin(self, work: Work, *, stop_at: int | None = None) -> None:
        """Start a piece of work, to be stopped before its point of that number."""
        self._tasks.put((work, stop_at))

    def until_stopped(self) -> bool:
        """Wait until the work stops at its point (True) or has ended before it (False)."""
        kind, value = self._news.get(timeout=_PATIENCE)
        if kind != "stopped":
            self._news.put((kind, value))
        return kind == "stopped"

    def go_on(self) -> None:
        """Let stopped work run to its end."""
        self._go.release()

    @property
    def done(self) -> bool:
        """Whether the work has ended."""
        return not self._news.empty()

    def outcome(self) -> str:
        """What became of the work: its value, or the reason of a refusal.

        Any other error is raised: both orders of a broken operation end alike, as any race of it does.
        """
        kind, value = self._news.get(timeout=_PATIENCE)
        if kind == "failed":
            raise value
        assert kind == "done", value
        return str(value)

    def run(self, work: Work) -> str:
        """A piece of work from start to end."""
        self.begin(work)
        return self.outcome()

    def waits_for(self, other: Player) -> bool:
        """Whether the database lets it wait for a lock."""
        vendor = family()
        if vendor == "sqlite":
            statement = self._statement
            begins = statement is not None and statement.startswith("BEGIN")
            return begins and bool(other.points) and other.points[-1].open
        return waits_for_lock(self.session, connections["default"])

    def close(self) -> None:
        """End the thread, wherever it stands."""
        self._tasks.put(None)
        self._go.release()
        self._thread.join(_PATIENCE)

    # In the thread

    def _play(self) -> None:
        connection = connections["default"]
        try:
            with self._hooks(connection):
                connection.ensure_connection()
                self.session = _session(connection)
                while task := self._tasks.get():
                    work, self._stop_at = task
                    self._count, self.points = 0, []
                    try:
                        news = "done", work()
                    except OJSError as error:
                        news = "done", error.details.get("reason") or type(error).__name__
                    except Exception as error:
                        news = "failed", error
                    self._news.put(news)
        finally:
            connection.close()

    @contextmanager
    def _hooks(self, connection: Any) -> Iterator[None]:
        commit = connection._commit

        def committing() -> None:
            self._point("COMMIT", connection)
            commit()

        def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            self._point(sql.split(None, 1)[0], connection)
            self._statement = sql
            try:
                return run(sql, params, many, context)
            finally:
                self._statement = None

        with ExitStack() as stack:
            stack.enter_context(connection.execute_wrapper(execute))
            connection._commit = committing
            stack.callback(connection.__dict__.pop, "_commit")
            yield

    def _point(self, label: str, connection: Any) -> None:
        inside = connection.in_atomic_block or label == "COMMIT"
        self.points.append(Point(self._count, label, inside))
        self._count += 1
        if self._stop_at is not None and self._count > self._stop_at:
            self._stop_at = None
            self._news.put(("stopped", None))
            self._go.acquire()


def _session(connection: Any) -> int:
    """The number of this session in the server's own lists. Deadlocks are looked for at once."""
    if family() == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET deadlock_timeout = '20ms'")
        return int(connection.connection.info.backend_pid)
    return int(connection.connection.thread_id()) if family() == "mysql" else 0


def interleave(first: Player, one: Work, stop_at: int, second: Player, other: Work) -> tuple[str, str]:
    """Stop ``one`` at its point, let ``other`` run until it ends or waits for it, then both."""
    first.begin(one, stop_at=stop_at)
    if first.until_stopped():
        second.begin(other)
        poll(lambda: second.done or second.waits_for(first), _PATIENCE, every=0.0005)
        first.go_on()
    else:
        second.begin(other)
    return first.outcome(), second.outcome()
