"""A database to break: a server of our own on a free port, or a file."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.clusters import clusters


class Missing(Exception):
    """A program that is needed is not there, or does not work."""


class Database(Protocol):
    """What a soak asks of its database."""

    url: str

    def start(self) -> None:
        """Up, and answering."""

    def halt(self) -> None:
        """Down at once, as in a crash."""

    def tend(self) -> int | None:
        """Up again if it has gone down by itself; its exit code then."""

    def stop(self) -> None:
        """Down for good, and nothing left."""

    def pids(self) -> set[int]:
        """Its processes."""

    def end_sessions(self, pick: float) -> int:
        """End up to three sessions of others; how many."""

    def freeze(self) -> set[int]:
        """Stand still, with every connection open; who does."""

    def thaw(self, pids: set[int]) -> None:
        """Go on."""


class File:
    """SQLite: no server, so no faults of one."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/soak.sqlite3"

    def start(self) -> None:
        """Nothing to do."""

    halt = tend = stop = start

    def pids(self) -> set[int]:
        """None."""
        return set()

    def end_sessions(self, pick: float) -> int:
        """There are none."""
        return 0

    def freeze(self) -> set[int]:
        """Nothing to stop."""
        return set()

    def thaw(self, pids: set[int]) -> None:
        """Nothing was stopped."""


class Server:
    """A server of our own, as durable as in production."""

    kind: type[clusters.Cluster]

    def __init__(self, folder: Path) -> None:
        if missing := self.kind.missing():
            raise Missing(missing)
        self._cluster = self.kind(folder / "server", durable=True)
        self._made = False
        self.url = self._cluster.url()

    def start(self) -> None:
        """Up, the first time as a new one."""
        try:
            (self._cluster.start if self._made else self._cluster.create)()
        except RuntimeError as error:
            raise Missing(str(error)) from error
        self._made = True

    def halt(self) -> None:
        """Down at once, as in a crash; who stands still would not hear of it."""
        self.thaw(self._cluster.pids())
        self._cluster.crash()

    def tend(self) -> int | None:
        """Up again if it has gone down by itself; its exit code then."""
        code = self._cluster.ended()
        if code is not None:
            self._cluster.start()
        return code

    def stop(self) -> None:
        """Down for good."""
        self._cluster.kill()

    def pids(self) -> set[int]:
        """The server and the processes below it."""
        return self._cluster.pids()

    def end_sessions(self, pick: float) -> int:
        """One to three neighbours in the list of sessions; none while it is away for another fault."""
        if not self._cluster.pids() or not self._cluster.answers():
            return 0
        found = sorted(self._cluster.sessions())
        first = int(pick * len(found))
        chosen = found[first : first + 1 + int(pick * 1000) % 3]
        return sum(self._cluster.terminate(session) for session in chosen)

    def freeze(self) -> set[int]:
        """The server first, so that it starts no more processes meanwhile."""
        before = self._cluster.pids()
        for pid in sorted(before):
            self._signal(pid, signal.SIGSTOP)
        later = self._cluster.pids() - before
        for pid in later:
            self._signal(pid, signal.SIGSTOP)
        return before | later

    def thaw(self, pids: set[int]) -> None:
        """Who of them is still there: another fault may have ended them."""
        for pid in sorted(pids & self._cluster.pids()):
            self._signal(pid, signal.SIGCONT)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Postgres(Server):
    """PostgreSQL."""

    kind = clusters.PostgreSQL


class MariaDB(Server):
    """MariaDB."""

    kind = clusters.MariaDB


KINDS: dict[str, type[File | Postgres | MariaDB]] = {"sqlite": File, "pg": Postgres, "mariadb": MariaDB}
