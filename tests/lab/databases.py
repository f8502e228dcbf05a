"""The databases of the lab: a file, servers of our own, and servers whose clock can be set."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.clusters import clusters
from tests.clusters.clusters import Cluster

LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def faketime() -> str | None:
    """The library that gives a process another clock, if it is installed."""
    return next((str(path) for path in sorted(Path("/").glob(LIBRARIES[1:]))), None)


class _Steppable:
    """A server whose wall clock is ours to set; its monotonic clock is not."""

    folder: Path

    @property
    def _offset(self) -> Path:
        return self.folder / "offset"

    def set_clock(self, seconds: int) -> None:
        """So many seconds from the real time, at once for every process of the server."""
        ready = self.folder / "offset.new"
        ready.write_text(f"{seconds:+d}\n")
        ready.chmod(0o644)
        ready.rename(self._offset)

    def _faked(self, command: list[str]) -> list[str]:
        """The command with that clock."""
        if not self._offset.exists():
            self.set_clock(0)
        return [
            "/usr/bin/env",
            f"LD_PRELOAD={faketime()}",
            f"FAKETIME_TIMESTAMP_FILE={self._offset}",
            "FAKETIME_NO_CACHE=1",
            "DONT_FAKE_MONOTONIC=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            *command,
        ]


class SteppablePostgreSQL(_Steppable, clusters.PostgreSQL):
    """PostgreSQL."""

    def _command(self) -> list[str]:
        return self._faked(super()._command())


class SteppableMariaDB(_Steppable, clusters.MariaDB):
    """MariaDB."""

    def _command(self) -> list[str]:
        return self._faked(super()._command())


KINDS: dict[str, type[Cluster]] = {"pg": clusters.PostgreSQL, "mariadb": clusters.MariaDB}
STEPPABLE: dict[str, type[SteppablePostgreSQL | SteppableMariaDB]] = {
    "pg": SteppablePostgreSQL,
    "mariadb": SteppableMariaDB,
}


class Database:
    """Where a case runs; ``server`` is ``None`` for SQLite."""

    def __init__(self, name: str, url: str, server: Cluster | None) -> None:
        self.name = name
        self.url = url
        self.server = server

    def set_clock(self, seconds: int) -> None:
        """Of a server that was made for it."""
        assert isinstance(self.server, SteppablePostgreSQL | SteppableMariaDB)
        self.server.set_clock(seconds)


def missing(name: str, *, steppable: bool = False) -> str | None:
    """Why there can be no such database here."""
    if name == "sqlite":
        return None
    if reason := KINDS[name].missing():
        return reason
    if steppable and faketime() is None:
        return "faketime: not installed"
    return None


@contextmanager
def database(name: str, *, steppable: bool = False) -> Iterator[Database]:
    """A new database, without tables; it is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="ojs-lab-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o755)
        if name == "sqlite":
            yield Database(name, f"sqlite:///{folder}/lab.sqlite3", None)
            return
        server: Cluster = (STEPPABLE if steppable else KINDS)[name](folder / "server", durable=True)
        try:
            server.create()
            yield Database(name, server.url(), server)
        finally:
            server.kill()


@contextmanager
def suspended(server: Cluster) -> Iterator[None]:
    """Every process of the server is stopped meanwhile; it was started by us."""
    stopped: list[int] = []
    try:
        # The first of them starts the others.
        while new := server.pids().difference(stopped):
            for pid in sorted(new):
                stopped.append(pid)
                # A session may have ended since: this process has just closed its own.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
